# /// script
# dependencies = ["flashrank", "torch", "onnxscript", "tokenizers"]
# ///
"""Ranks passages for two questions with a cross-encoder from its cache."""

from pathlib import Path

import encoders
from flashrank import Ranker, RerankRequest

PASSAGES = ["The cat sat on the mat.", "A red ship on the sea", "slow trees", "The house was green.", "dogs"]

encoders.write_folder(Path("cache/ms-marco-TinyBERT-L-2-v2"), "flashrank-TinyBERT-L-2-v2.onnx", 128, labels=1)
ranker = Ranker("ms-marco-TinyBERT-L-2-v2", cache_dir="cache")
for question in ("Is the cat on the mat?", "ship"):
    request = RerankRequest(question, [{"id": i, "text": text} for i, text in enumerate(PASSAGES)])
    for passage in ranker.rerank(request):
        print(passage["id"], passage["text"], f"{passage['score']:.6f}")
