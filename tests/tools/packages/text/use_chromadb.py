# /// script
# dependencies = ["chromadb", "torch", "onnxscript", "numpy"]
# ///
"""Adds documents to a collection with its default embedding, and asks for the nearest."""

from pathlib import Path

import chromadb
import encoders
import numpy as np
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

DOCUMENTS = ["The cat sat on the mat.", "A red ship on the sea", "slow trees", "The house was green.", "dogs"] * 8

ONNXMiniLM_L6_V2.DOWNLOAD_PATH = Path.cwd()
encoders.write_folder(Path(ONNXMiniLM_L6_V2.EXTRACTED_FOLDER_NAME), "model.onnx", 384)
embed = ONNXMiniLM_L6_V2()
print(np.round(np.array(embed(["The cat", "a ship"]))[:, :8], 5))
client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
collection = client.create_collection("texts", embedding_function=embed)
names = [f"{i}" for i in range(len(DOCUMENTS))]
collection.add(ids=names, documents=[f"{document} {i}" for i, document in enumerate(DOCUMENTS)])
found = collection.query(query_texts=["a fast ship", "green"], n_results=3)
print(found["ids"], found["documents"])
print(np.round(np.array(found["distances"]), 5))
