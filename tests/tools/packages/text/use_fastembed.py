# /// script
# dependencies = ["fastembed", "torch", "onnxscript", "tokenizers", "numpy"]
# ///
"""Embeds texts in batches, and ranks them, with models from folders."""

from pathlib import Path

import encoders
import numpy as np
from fastembed import TextEmbedding
from fastembed.rerank.cross_encoder import TextCrossEncoder

TEXTS = ["The cat sat on the mat.", "A red ship", "slow", "The tree in the house was green, is it?", "2026!"]

folder = Path("encoder").resolve()
encoders.write_folder(folder, "model_optimized.onnx", 384)
model = TextEmbedding("BAAI/bge-small-en-v1.5", specific_model_path=str(folder))
for batch in (5, 2):
    vectors = np.array(list(model.embed(TEXTS, batch_size=batch)))
    print(vectors.shape, vectors.dtype)
    print(np.round(vectors[:, :6], 5))
    print(np.round(vectors @ vectors.T, 4))

folder = Path("ranker").resolve()
encoders.write_folder(folder, "onnx/model.onnx", 64, labels=1)
ranker = TextCrossEncoder("Xenova/ms-marco-MiniLM-L-6-v2", specific_model_path=str(folder))
print([f"{score:.5f}" for score in ranker.rerank("fast ship", TEXTS)])
