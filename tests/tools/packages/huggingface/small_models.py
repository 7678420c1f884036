"""Makes tokenizers and configurations of small models, which the programs beside it fill with random weights."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, CLIPTokenizer, PreTrainedTokenizerFast

LINES = [
    "The quick brown fox jumps over the lazy dog and runs home.",
    "A small model reads these lines, and learns nothing from them.",
    "Ships sail in the morning; trains leave Paris in the evening.",
    "She sells sea shells on the shore, he buys books in Berlin.",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of words and their pieces as BERT has it, trained on a few lines."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=200, special_tokens=SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        bos_token="[CLS]",
        eos_token="[SEP]",
    )


def bert_config(**changes: object) -> BertConfig:
    """A BERT of two narrow layers, whose large weights make its answers differ from line to line."""
    return BertConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        **changes,
    )


def make_clip_tokenizer() -> CLIPTokenizer:
    """A tokenizer as CLIP has it, whose words are the bytes of texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"{letter}</w>" for letter in alphabet), "<|startoftext|>", "<|endoftext|>"]
    Path("vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    Path("merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer("vocab.json", "merges.txt", model_max_length=77)
