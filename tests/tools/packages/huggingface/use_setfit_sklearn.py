# /// script
# dependencies = ["setfit", "sentence-transformers", "transformers", "torch", "skl2onnx", "onnx", "onnxruntime"]
# ///
"""Classifies lines with scikit-learn's head in an exported model."""

import onnxruntime as ort
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from setfit import SetFitModel
from setfit.exporters.onnx import export_onnx
from small_models import LINES, bert_config, make_tokenizer
from transformers import BertModel

torch.manual_seed(0)
BertModel(bert_config()).save_pretrained("body")
tokenizer = make_tokenizer()
tokenizer.save_pretrained("body")
SentenceTransformer(modules=[Transformer("body"), Pooling(32)]).save("sentences")

model = SetFitModel.from_pretrained("sentences")
model.fit(LINES, [0, 1, 2, 3], num_epochs=1)
export_onnx(model.model_body, model.model_head, opset=17, output_path="model.onnx")
session = ort.InferenceSession("model.onnx")
inputs = tokenizer(LINES, padding=True, return_tensors="np")
names = [each.name for each in session.get_inputs()]
print([each.name for each in session.get_outputs()], names)
for output in session.run(None, {name: inputs[name] for name in names}):
    print(output)
