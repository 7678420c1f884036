# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime", "onnx", "datasets"]
# ///
"""Quantizes a BERT with Optimum, with and without calibration, and runs the models in 8 bits."""

from pathlib import Path

import onnx
import torch
from datasets import Dataset
from optimum.onnxruntime import ORTModelForSequenceClassification, ORTQuantizer
from optimum.onnxruntime.configuration import AutoCalibrationConfig, AutoQuantizationConfig
from small_models import LINES, bert_config, make_tokenizer
from transformers import BertForSequenceClassification, pipeline

torch.manual_seed(0)
tokenizer = make_tokenizer()
BertForSequenceClassification(bert_config(id2label={0: "good", 1: "bad", 2: "neither"})).save_pretrained("bert")
tokenizer.save_pretrained("bert")
model = ORTModelForSequenceClassification.from_pretrained("bert", export=True)
model.save_pretrained("float")
tokenizer.save_pretrained("float")


def show(folder, file_name):
    """Prints the operators of a model, and what it answers."""
    graph = onnx.load(Path(folder, file_name)).graph
    operators = [node.op_type for node in graph.node]
    print(folder, {each: operators.count(each) for each in sorted(set(operators))})
    model = ORTModelForSequenceClassification.from_pretrained(folder, file_name=file_name)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    for answer in classify(LINES, padding="max_length", max_length=32):
        print([(each["label"], round(each["score"], 4)) for each in answer])


quantizer = ORTQuantizer.from_pretrained("float", file_name="model.onnx")
for name, config in {
    "avx512_vnni": AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False),
    "avx2": AutoQuantizationConfig.avx2(is_static=False, per_channel=True),
    "arm64": AutoQuantizationConfig.arm64(is_static=False, per_channel=False),
}.items():
    quantizer.quantize(save_dir=name, quantization_config=config)
    show(name, "model_quantized.onnx")

lines = Dataset.from_dict(dict(tokenizer(LINES, padding="max_length", max_length=32)))
config = AutoQuantizationConfig.avx512(is_static=True, per_channel=False)
ranges = quantizer.fit(
    dataset=lines,
    calibration_config=AutoCalibrationConfig.minmax(lines),
    operators_to_quantize=config.operators_to_quantize,
)
print(len(ranges.data))
quantizer.quantize(save_dir="static", quantization_config=config, calibration_tensors_range=ranges)
show("static", "model_quantized.onnx")
