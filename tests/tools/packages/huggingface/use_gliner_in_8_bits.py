# /// script
# dependencies = ["gliner", "transformers", "torch", "onnx", "onnxruntime"]
# ///
"""Finds entities in lines with an exported model in 8 bits."""

import torch
from gliner import GLiNER
from small_models import LINES, bert_config, make_tokenizer
from transformers import BertModel

torch.manual_seed(0)
make_tokenizer().save_pretrained("bert")
BertModel(bert_config()).save_pretrained("bert")
model = GLiNER.from_config(
    {"model_name": "bert", "hidden_size": 32, "max_width": 3, "max_len": 48, "num_layers": 1, "span_mode": "markerV0"}
)
with torch.no_grad():
    for name, weight in model.model.named_parameters():
        if weight.ndim > 1 and "bert" not in name:  # scores of new weights are all alike
            weight.mul_(4)
model.save_pretrained("model")
model.export_to_onnx("model", quantize=True)
model = GLiNER.from_pretrained("model", load_onnx_model=True, onnx_model_file="model_quantized.onnx")
for entities in model.inference(LINES, ["animal", "place", "thing"], threshold=0.3, batch_size=2):
    print([(each["text"], each["label"], round(each["score"], 3)) for each in entities])
