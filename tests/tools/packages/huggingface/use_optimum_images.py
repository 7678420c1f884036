# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime", "pillow"]
# ///
"""Classifies, segments and describes pictures with Optimum's models of ViT, ResNet, SegFormer and CLIP."""

import numpy as np
import torch
from optimum.onnxruntime import (
    ORTModelForFeatureExtraction,
    ORTModelForImageClassification,
    ORTModelForSemanticSegmentation,
    ORTModelForVision2Seq,
    ORTModelForZeroShotImageClassification,
)
from PIL import Image
from small_models import make_tokenizer
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SegformerImageProcessor,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
    pipeline,
)

torch.manual_seed(0)
tokenizer = make_tokenizer()
y, x = np.mgrid[:40, :48]
PICTURES = [
    Image.fromarray(np.stack([x * 5, y * 6, (x + y) * 2], -1).astype(np.uint8)),
    Image.fromarray(np.stack([(x // 8 + y // 8) % 2 * 255] * 3, -1).astype(np.uint8)),
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)),
]
LABELS = {0: "slope", 1: "board", 2: "noise", 3: "cat"}
processor = ViTImageProcessor(size={"height": 32, "width": 32})
vit = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.3,
}
resnet = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}


def export(model, ort_class, processor, **options):
    """Saves a random model, and loads it with Optimum."""
    folder = type(model).__name__
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    ort_class.from_pretrained(folder, export=True, **options).save_pretrained(f"{folder}-onnx")
    return ort_class.from_pretrained(f"{folder}-onnx")


for torch_model in (
    ViTForImageClassification(ViTConfig(**vit, id2label=LABELS)),
    ResNetForImageClassification(ResNetConfig(**resnet, id2label=LABELS)),
):
    model = export(torch_model, ORTModelForImageClassification, processor)
    classify = pipeline("image-classification", model=model, image_processor=processor)
    for answer in classify(PICTURES, batch_size=3):
        print([(each["label"], round(each["score"], 5)) for each in answer])
    print(model(**processor(PICTURES, return_tensors="np")).logits)

widths = {"hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1], "initializer_range": 0.3}
widths |= {"num_attention_heads": [1, 2, 4, 4], "decoder_hidden_size": 32}
cutter = SegformerImageProcessor(size={"height": 64, "width": 64})
torch_model = SegformerForSemanticSegmentation(SegformerConfig(**widths, id2label=LABELS))
model = export(torch_model, ORTModelForSemanticSegmentation, cutter)
for part in pipeline("image-segmentation", model=model, image_processor=cutter)(PICTURES[0]):
    print(part["label"], np.array(part["mask"]).sum() // 255)

model = export(ViTModel(ViTConfig(**vit)), ORTModelForFeatureExtraction, processor)
embed = pipeline("image-feature-extraction", model=model, image_processor=processor)
print([round(value, 5) for value in embed(PICTURES[1])[0][0][:6]])

parts = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
config = CLIPConfig(
    text_config={**parts, "vocab_size": 200, "max_position_embeddings": 64, "eos_token_id": 3, "pad_token_id": 0},
    vision_config={**parts, "image_size": 32, "patch_size": 8},
    projection_dim=16,
)
eyes = CLIPImageProcessor(size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32})
model = export(CLIPModel(config), ORTModelForZeroShotImageClassification, CLIPProcessor(eyes, tokenizer))
choose = pipeline("zero-shot-image-classification", model=model, tokenizer=tokenizer, image_processor=eyes)
for answer in choose(PICTURES, candidate_labels=["a dog", "a ship", "a fox"]):
    print([(each["label"], round(each["score"], 5)) for each in answer])

speaker = GPT2Config(
    vocab_size=200, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3, add_cross_attention=True
)
captioner = VisionEncoderDecoderModel(encoder=ViTModel(ViTConfig(**vit)), decoder=GPT2LMHeadModel(speaker))
captioner.config.decoder_start_token_id, captioner.config.pad_token_id = 2, 0
captioner.generation_config.update(decoder_start_token_id=2, pad_token_id=0, eos_token_id=3, bos_token_id=2)
tokenizer.save_pretrained(type(captioner).__name__)
model = export(captioner, ORTModelForVision2Seq, processor)
pixels = processor(PICTURES, return_tensors="pt").pixel_values
print(tokenizer.batch_decode(model.generate(pixel_values=pixels, max_new_tokens=8)))
