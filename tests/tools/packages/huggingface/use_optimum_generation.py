# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime"]
# ///
"""Generates text with Optimum's models of GPT-2, Llama and Qwen3, with and without caches, in pipelines too."""

import torch
from optimum.onnxruntime import ORTModelForCausalLM
from small_models import LINES, make_tokenizer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    TextStreamer,
    pipeline,
)

torch.manual_seed(0)
torch.set_printoptions(precision=6)
tokenizer = make_tokenizer()
tokenizer.padding_side = "left"
SHARED = {"vocab_size": 200, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "initializer_range": 0.3}
ROTARY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
MODELS = {
    "gpt2": GPT2LMHeadModel(GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=4, **SHARED)),
    "llama": LlamaForCausalLM(LlamaConfig(**ROTARY, **SHARED)),
    "qwen3": Qwen3ForCausalLM(Qwen3Config(head_dim=8, **ROTARY, **SHARED)),
}


def export(name, use_cache):
    """Writes the ONNX files of a model, and loads them."""
    MODELS[name].save_pretrained(name)
    tokenizer.save_pretrained(name)
    model = ORTModelForCausalLM.from_pretrained(name, export=True, use_cache=use_cache, use_io_binding=False)
    model.save_pretrained(f"{name}-{use_cache}")
    return ORTModelForCausalLM.from_pretrained(f"{name}-{use_cache}", use_cache=use_cache, use_io_binding=False)


prompts = tokenizer(
    [line.rsplit(maxsplit=4)[0] for line in LINES], padding=True, return_tensors="pt", return_token_type_ids=False
)
for name in MODELS:
    for use_cache in (True, False):
        model = export(name, use_cache)
        print(name, "with a cache" if use_cache else "without a cache", len(model.input_names))
        print(model(**prompts).logits[:, -1, :4])
        for line in tokenizer.batch_decode(model.generate(**prompts, max_new_tokens=12, do_sample=False)):
            print(line)
        for options in (
            {"num_beams": 3, "num_return_sequences": 2},
            {"do_sample": True, "top_k": 20, "temperature": 0.8},
            {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        ):
            torch.manual_seed(0)
            print(tokenizer.batch_decode(model.generate(**prompts, max_new_tokens=8, **options)))

model = ORTModelForCausalLM.from_pretrained("llama-True")
write = pipeline("text-generation", model=model, tokenizer=tokenizer)
print(write(LINES[:2], max_new_tokens=6, do_sample=False))
prompt = tokenizer("The quick", return_tensors="pt", return_token_type_ids=False)
model.generate(**prompt, max_new_tokens=9, do_sample=False, streamer=TextStreamer(tokenizer))
