# /// script
# dependencies = ["sentence-transformers", "optimum-onnx", "transformers", "torch", "onnxruntime"]
# ///
"""Embeds, compares and ranks sentences with its ONNX backend, dense and sparse, in floats and in 8 bits."""

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder, export_dynamic_quantized_onnx_model
from sentence_transformers.models import Normalize, Pooling, Transformer
from sentence_transformers.sparse_encoder.models import MLMTransformer, SpladePooling
from small_models import LINES, bert_config, make_tokenizer
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

torch.manual_seed(0)
torch.set_printoptions(precision=6)
tokenizer = make_tokenizer()
for name, model in {
    "body": BertModel(bert_config()),
    "ranker": BertForSequenceClassification(bert_config(num_labels=1)),
    "words": BertForMaskedLM(bert_config()),
}.items():
    model.save_pretrained(name)
    tokenizer.save_pretrained(name)

for mode in ("mean", "cls", "max"):
    SentenceTransformer(modules=[Transformer("body"), Pooling(32, mode), Normalize()]).save(f"bi-{mode}")
    model = SentenceTransformer(f"bi-{mode}", backend="onnx", device="cpu", model_kwargs={"export": True})
    vectors = model.encode(LINES, batch_size=2)
    print(mode, vectors.shape, vectors[:, :4])
    print(model.similarity(vectors, vectors))
model.save_pretrained("bi-onnx")
model = SentenceTransformer("bi-onnx", backend="onnx", device="cpu")
print(model.encode(LINES[:2], convert_to_tensor=True, normalize_embeddings=True)[:, :5])
export_dynamic_quantized_onnx_model(model, "avx512_vnni", "bi-onnx")
names = {"file_name": "onnx/model_qint8_avx512_vnni.onnx"}
model = SentenceTransformer("bi-onnx", backend="onnx", device="cpu", model_kwargs=names)
print(model.encode(LINES)[:, :5].round(3))

ranker = CrossEncoder("ranker", backend="onnx", device="cpu", model_kwargs={"export": True})
print(ranker.predict([(LINES[0], line) for line in LINES]))
print([(hit["corpus_id"], round(float(hit["score"]), 5)) for hit in ranker.rank("ships and trains", LINES)])

sparse = SparseEncoder(
    modules=[MLMTransformer("words", backend="onnx", model_args={"export": True}), SpladePooling()], device="cpu"
)
vectors = sparse.encode(LINES, convert_to_sparse_tensor=False)
print(vectors.shape, vectors[:, 5:11])
print(sparse.decode(vectors[0], top_k=5))
