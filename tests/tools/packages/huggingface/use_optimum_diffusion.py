# /// script
# dependencies = ["optimum-onnx", "diffusers", "transformers", "torch", "onnxruntime", "pillow"]
# ///
"""Draws with Optimum's pipelines of Stable Diffusion, from texts, pictures and masks."""

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from optimum.onnxruntime import (
    ORTStableDiffusionImg2ImgPipeline,
    ORTStableDiffusionInpaintPipeline,
    ORTStableDiffusionPipeline,
    ORTStableDiffusionXLPipeline,
)
from PIL import Image
from small_models import make_clip_tokenizer
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

torch.manual_seed(0)
tokenizer = make_clip_tokenizer()
TEXT = {
    "vocab_size": len(tokenizer),
    "hidden_size": 32,
    "intermediate_size": 37,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "projection_dim": 32,
    "bos_token_id": tokenizer.bos_token_id,
    "eos_token_id": tokenizer.eos_token_id,
    "pad_token_id": tokenizer.pad_token_id,
}
UNET = {"block_out_channels": (32, 64), "layers_per_block": 1, "sample_size": 32}
BLOCKS = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}
XL = {
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "transformer_layers_per_block": (1, 2),
    "projection_class_embeddings_input_dim": 6 * 8 + 32,
    "cross_attention_dim": 64,
}


def make_autoencoder():
    """An autoencoder that halves the sizes of pictures."""
    return AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=64,
    )


def show(picture):
    """A summary of a picture in numbers."""
    print(picture.shape, picture.mean((0, 1)), picture.std(), picture[::16, ::16, 1].ravel())


StableDiffusionPipeline(
    unet=UNet2DConditionModel(cross_attention_dim=32, **UNET, **BLOCKS),
    vae=make_autoencoder(),
    text_encoder=CLIPTextModel(CLIPTextConfig(**TEXT)),
    tokenizer=tokenizer,
    scheduler=DDIMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
).save_pretrained("sd")
ORTStableDiffusionPipeline.from_pretrained("sd", export=True).save_pretrained("sd-onnx")
options = {"num_inference_steps": 3, "output_type": "np"}

draw = ORTStableDiffusionPipeline.from_pretrained("sd-onnx")
for prompt, changes in (
    ("a fox jumps over a dog", {}),
    (["ships", "trains"], {"guidance_scale": 1.0}),
    ("a fox", {"negative_prompt": "a dog", "num_images_per_prompt": 2, "height": 48}),
):
    pictures = draw(
        prompt, **{"height": 64, "width": 64, **options, **changes}, generator=torch.Generator().manual_seed(1)
    )
    for picture in pictures.images:
        show(picture)

y, x = np.mgrid[:64, :64]
start = Image.fromarray(np.stack([x * 4, y * 4, (x + y) * 2], -1).astype(np.uint8))
mask = Image.fromarray(((x - 32) ** 2 + (y - 32) ** 2 < 300).astype(np.uint8) * 255)
draw = ORTStableDiffusionImg2ImgPipeline.from_pretrained("sd-onnx")
show(draw("a fox", image=start, strength=0.7, **options, generator=torch.Generator().manual_seed(1)).images[0])
draw = ORTStableDiffusionInpaintPipeline.from_pretrained("sd-onnx")
show(
    draw(
        "a fox",
        image=start,
        mask_image=mask,
        height=64,
        width=64,
        **options,
        generator=torch.Generator().manual_seed(1),
    ).images[0]
)

StableDiffusionXLPipeline(
    unet=UNet2DConditionModel(**UNET, **BLOCKS, **XL),
    vae=make_autoencoder(),
    text_encoder=CLIPTextModel(CLIPTextConfig(**TEXT)),
    text_encoder_2=CLIPTextModelWithProjection(CLIPTextConfig(**TEXT)),
    tokenizer=tokenizer,
    tokenizer_2=tokenizer,
    scheduler=EulerDiscreteScheduler(),
).save_pretrained("xl")
draw = ORTStableDiffusionXLPipeline.from_pretrained("xl", export=True)
show(draw("a fox", height=64, width=64, **options, generator=torch.Generator().manual_seed(1)).images[0])
