# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime", "onnx"]
# ///
"""Fuses the layers of a BERT with Optimum, without ONNX Runtime's own optimizations, and runs the result."""

from pathlib import Path

import onnx
import torch
from optimum.onnxruntime import ORTModelForSequenceClassification, ORTOptimizer
from optimum.onnxruntime.configuration import OptimizationConfig
from small_models import LINES, bert_config, make_tokenizer
from transformers import BertForSequenceClassification, pipeline

torch.manual_seed(0)
tokenizer = make_tokenizer()
BertForSequenceClassification(bert_config(id2label={0: "good", 1: "bad", 2: "neither"})).save_pretrained("bert")
tokenizer.save_pretrained("bert")
ORTModelForSequenceClassification.from_pretrained("bert", export=True).save_pretrained("onnx")
optimizer = ORTOptimizer.from_pretrained("onnx")
for name, options in {"exact": {}, "approximate": {"enable_gelu_approximation": True}}.items():
    optimizer.optimize(save_dir=name, optimization_config=OptimizationConfig(optimization_level=0, **options))
    operators = [node.op_type for node in onnx.load(Path(name, "model_optimized.onnx")).graph.node]
    print(name, {each: operators.count(each) for each in sorted(set(operators))})
    model = ORTModelForSequenceClassification.from_pretrained(name, file_name="model_optimized.onnx")
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    for answer in classify(LINES, batch_size=2):
        print([(each["label"], round(each["score"], 5)) for each in answer])
