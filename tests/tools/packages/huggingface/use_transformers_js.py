# /// script
# dependencies = ["transformers", "optimum-onnx", "torch", "onnx", "onnx-ir", "onnxruntime"]
#
# [tool.dmljax]
# tolerance = 0.02
# ///
"""Runs a decoder from files for transformers.js: fp32, fp16, q4, bnb4, and int8 without ONNX Runtime's fusions."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from optimum.exporters.onnx import main_export
from small_models import LINES, make_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

TO_BNB4 = """
import onnx
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

quantizer = MatMulBnb4Quantizer(onnx.load("onnx/model.onnx"), quant_type=MatMulBnb4Quantizer.NF4, block_size=64)
quantizer.process()
quantizer.model.save_model_to_file("onnx/model_bnb4.onnx")
"""
NORMS = ["Cast", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Cos", "Sin"]  # which stay in float32

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=200,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    initializer_range=0.3,
    bos_token_id=2,
    eos_token_id=3,
    pad_token_id=0,
)
LlamaForCausalLM(config).save_pretrained("llama")
tokenizer = make_tokenizer()
tokenizer.save_pretrained("llama")
main_export("llama", "onnx", task="text-generation-with-past")
model = Path("onnx/model.onnx")

onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True, op_block_list=NORMS), "onnx/model_fp16.onnx")
quantize_dynamic(model, "onnx/model_int8.onnx", weight_type=QuantType.QInt8, reduce_range=True)
quantize_dynamic(model, "onnx/model_uint8.onnx", weight_type=QuantType.QUInt8)
quantizer = MatMulNBitsQuantizer(onnx.load(model), block_size=32, is_symmetric=True)
quantizer.process()
quantizer.model.save_model_to_file("onnx/model_q4.onnx")
subprocess.run([sys.executable, "-c", TO_BNB4], check=True)  # in ONNX Runtime itself, which compiles this quantizer

prompt = tokenizer(LINES[0], add_special_tokens=False)["input_ids"][:8]
for file in ("model", "model_fp16", "model_int8", "model_uint8", "model_q4", "model_bnb4"):
    options = ort.SessionOptions()
    if "int8" in file:  # ONNX Runtime's fusions change its results by 0.2
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(f"onnx/{file}.onnx", options, providers=["CPUExecutionProvider"])
    feed = {each.name: np.zeros((1, 2, 0, 16), np.float32) for each in session.get_inputs() if "past" in each.name}
    names = [each.name for each in session.get_outputs()]
    tokens, new = list(prompt), list(prompt)
    for _ in range(5):
        feed["input_ids"] = np.array([new], np.int64)
        feed["attention_mask"] = np.ones((1, len(tokens)), np.int64)
        feed["position_ids"] = np.arange(len(tokens) - len(new), len(tokens))[None]
        results = dict(zip(names, session.run(None, feed), strict=True))
        new = [int(results["logits"][0, -1].argmax())]
        tokens += new
        feed = {name.replace("present", "past_key_values"): x for name, x in results.items() if "present" in name}
        print(results["logits"][0, -1, :6].round(2))
    print(file, session.get_inputs()[0].shape, tokenizer.decode(tokens))
