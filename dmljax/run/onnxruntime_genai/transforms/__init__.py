"""What models see and hear: the operations that processors' configurations list, by GenAI's names."""

from collections.abc import Callable, Mapping
from typing import Any

from dmljax.run.onnxruntime_genai.transforms import images, tiles
from dmljax.run.onnxruntime_genai.transforms.features import (
    embed_for_phi4,
    log_mel,
    log_mel_for_gemma4,
    spectrum,
)
from dmljax.run.onnxruntime_genai.transforms.sounds import decode_sound, decode_sound_and_rate

# Each takes what the operation before it makes, one or several arrays, and its attributes.
Operations = Mapping[str, Callable[..., Any]]

IMAGE_OPERATIONS: Operations = {
    "DecodeImage": images.decode_image,
    "ConvertRGB": images.swap_colors,
    "Resize": images.resize,
    "Rescale": images.rescale,
    "Normalize": images.normalize,
    "CenterCrop": images.crop_center,
    "Permute3D": images.permute,
    "PatchImage": images.patch,
    "PixtralImageSizes": images.with_sizes,
    "Phi3ImageTransform": tiles.tile_for_phi3,
    "Phi4VisionDynamicPreprocess": tiles.pad_for_phi4,
    "Phi4VisionProcessor": tiles.tile_for_phi4,
    "Gemma4ImageTransform": tiles.patch_for_gemma4,
}
SOUND_OPERATIONS: Operations = {
    "AudioDecoder": decode_sound,
    "AudioDecoderEx": decode_sound_and_rate,
    "STFTNorm": spectrum,
    "LogMelSpectrum": log_mel,
    "Phi4AudioEmbed": embed_for_phi4,
    "Gemma4LogMel": log_mel_for_gemma4,
}
