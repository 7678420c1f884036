"""Small encoders of text with random weights, in folders such as packages for embeddings download."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [prefix + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789.,?!" for prefix in ("", "##")]
WORDS = ["the", "cat", "dog", "sat", "on", "mat", "fast", "slow", "tree", "house", "red", "ship", "##s", "##ing"]


class Encoder(torch.nn.Module):
    """BERT's arithmetic: embeddings, layers of attention, and a head if there is a number of labels."""

    def __init__(self, width: int, labels: int = 0) -> None:
        super().__init__()
        self.words, self.positions, self.kinds = (torch.nn.Embedding(size, width) for size in (200, 512, 2))
        self.norm = torch.nn.LayerNorm(width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, labels) if labels else None

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.positions(places) + self.kinds(token_type_ids))
        x = self.layers(x, src_key_padding_mask=attention_mask == 0)
        return x if self.head is None else self.head(x[:, 0])


def write_folder(folder: Path, model_name: str, width: int, labels: int = 0) -> None:
    """Writes a tokenizer and an encoder."""
    folder.mkdir(parents=True)
    vocabulary = [*SPECIAL, *PIECES, *WORDS]
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps(special | {"model_max_length": 128, "max_length": 128}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0, "hidden_size": width}))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    tokens = torch.ones(2, 7, dtype=torch.int64)  # with copies, or the exporter takes inputs for the same
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
    path = folder / model_name
    path.parent.mkdir(exist_ok=True)
    torch.onnx.export(
        Encoder(width, labels).eval(),
        (tokens, tokens.clone(), 0 * tokens),
        str(path),
        input_names=names,
        output_names=["logits" if labels else "last_hidden_state"],
        dynamic_shapes={name: {0: batch, 1: length} for name in names},
        external_data=False,
        dynamo=True,
        verbose=False,
    )
