# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime"]
# ///
"""Translates and sums up with Optimum's models of T5, BART and Marian, with and without caches, in pipelines too."""

import torch
from optimum.onnxruntime import ORTModelForSeq2SeqLM
from small_models import LINES, make_tokenizer
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

torch.manual_seed(0)
torch.set_printoptions(precision=6)
tokenizer = make_tokenizer()
WIDTHS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "init_std": 0.3,
}
TOKENS = {"vocab_size": 200, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
T5_WIDTHS = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "initializer_factor": 5.0}
MODELS = {
    "t5": T5ForConditionalGeneration(T5Config(**T5_WIDTHS, **TOKENS)),
    "bart": BartForConditionalGeneration(BartConfig(bos_token_id=2, forced_eos_token_id=None, **WIDTHS, **TOKENS)),
    "marian": MarianMTModel(MarianConfig(forced_eos_token_id=None, **WIDTHS, **TOKENS)),
}

sources = tokenizer(LINES, padding=True, return_tensors="pt", return_token_type_ids=False)
for name, torch_model in MODELS.items():
    torch_model.save_pretrained(name)
    tokenizer.save_pretrained(name)
    for use_cache in (True, False):
        folder = f"{name}-{use_cache}"
        ORTModelForSeq2SeqLM.from_pretrained(name, export=True, use_cache=use_cache).save_pretrained(folder)
        model = ORTModelForSeq2SeqLM.from_pretrained(folder, use_cache=use_cache)
        print(name, "with a cache" if use_cache else "without a cache")
        print(model(**sources, decoder_input_ids=torch.tensor([[2, 9, 10]] * 4)).logits[:, -1, :4])
        for options in ({"num_beams": 1}, {"num_beams": 3}, {"num_beams": 1, "do_sample": True, "top_k": 20}):
            torch.manual_seed(0)
            for line in tokenizer.batch_decode(model.generate(**sources, max_new_tokens=10, **options)):
                print(line)

model = ORTModelForSeq2SeqLM.from_pretrained("marian-True")
print(pipeline("translation_en_to_de", model=model, tokenizer=tokenizer)(LINES[:2], max_new_tokens=8, num_beams=2))
model = ORTModelForSeq2SeqLM.from_pretrained("bart-True")
print(pipeline("summarization", model=model, tokenizer=tokenizer)(" ".join(LINES[:2]), max_new_tokens=8))
