"""The transforms of images in a folder's configuration, as GenAI computes them."""

import io
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmljax.errors import DmlError, InvalidDesc, Problem, Unsupported, require
from dmljax.foundation.files import import_pillow
from dmljax.run.onnxruntime_genai.transforms.jpeg import decode_sampled_colors
from dmljax.text import reason_of, show

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # CLIP's
_FILTERS = {"LINEAR": "BILINEAR", "CUBIC": "BICUBIC", "LANCZOS": "LANCZOS"}
_MOST_RATIO = 200  # of an image's sides


def decode_image(content: bytes, attributes: Mapping[str, Any]) -> Any:
    """The pixels (height, width, 3) of an image as bytes; what is transparent shows its color."""
    module = import_pillow()
    try:
        pixels = decode_sampled_colors(content)
        if pixels is None:
            with module.open(io.BytesIO(content)) as image:
                if image.mode == "CMYK":
                    rule, remedy = "must have three colors", "convert them to red, green and blue"
                    raise Unsupported(Problem("images", rule, image.mode, remedy=remedy))
                pixels = _pixels_of(image)
    except (OSError, ValueError, SyntaxError, LookupError, struct.error, module.DecompressionBombError) as error:
        if isinstance(error, DmlError):
            raise
        raise InvalidDesc(Problem("images", "must be images", reason_of(error))) from None
    return pixels[..., ::-1] if str(attributes.get("color_space", "RGB")).upper() == "BGR" else pixels


def _pixels_of(image: Any) -> Any:
    if image.mode.startswith("I;16"):  # of 16 bits, the upper 8 count
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode in ("P", "RGBA"):
        return np.asarray(image.convert("RGBA"))[..., :3]
    return np.asarray(image.convert("RGB"))


def swap_colors(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The pixels with the first and the last color exchanged."""
    return pixels[..., ::-1]


def resize(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The pixels in another size: the configuration's, or one near the image's that patches divide."""
    if attributes.get("smart_resize"):
        height, width = _size_of_patches(pixels.shape[0], pixels.shape[1], attributes)
    else:
        height, width = (int(attributes.get(name, 256)) for name in ("height", "width"))
    interpolation = attributes.get("interpolation", "CUBIC")
    require("interpolation", interpolation in _FILTERS, f"must be one of {', '.join(_FILTERS)}", show(interpolation))
    return resample(pixels, height, width, _FILTERS[interpolation])


def resample(pixels: Any, height: int, width: int, name: str) -> Any:
    """The pixels in another size by one of Pillow's filters."""
    module = import_pillow()
    image, method = module.fromarray(np.ascontiguousarray(pixels)), getattr(module.Resampling, name)
    wide = image.resize((width, image.height), method)  # rows first; newer versions of Pillow may begin with columns
    return np.asarray(wide.resize((width, height), method))


def _size_of_patches(height: int, width: int, attributes: Mapping[str, Any]) -> tuple[int, int]:
    """The size nearest to an image's that whole patches divide, with a number of pixels within bounds."""
    ratio = max(height, width) / min(height, width)
    require(
        "images", ratio <= _MOST_RATIO, f"must have sides whose ratio is at most {_MOST_RATIO}", f"{width}x{height}"
    )
    factor = attributes.get("patch_size", 14) * attributes.get("merge_size", 2)
    least, most = attributes.get("min_pixels", 3136), attributes.get("max_pixels", 12845056)
    sides = [max(factor, int(np.floor(side / factor + 0.5)) * factor) for side in (height, width)]
    if sides[0] * sides[1] > most:
        scale = np.sqrt(height * width / most)
        sides = [int(side / scale) // factor * factor for side in (height, width)]
    elif sides[0] * sides[1] < least:
        scale = np.sqrt(least / (height * width))
        sides = [-(-int(side * scale) // factor) * factor for side in (height, width)]
    return sides[0], sides[1]


def rescale(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The pixels as floats, multiplied by a factor."""
    return pixels.astype(np.float32) * np.float32(attributes.get("rescale_factor", 1 / 255))


def normalize(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The pixels less a mean, divided by a deviation, of each color."""
    mean, std = (
        np.asarray(attributes.get(name, usual), np.float32) for name, usual in (("mean", _MEAN), ("std", _STD))
    )
    is_swapped = attributes.get("qwen2_5_vl") or attributes.get("qwen3_vl")
    return ((pixels[..., ::-1] if is_swapped else pixels) - mean) / std


def crop_center(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The middle of an image."""
    sizes = [attributes.get(name, 224) for name in ("height", "width")]
    rule = f"must have at least {sizes[1]}x{sizes[0]} pixels"
    require("images", all(np.less_equal(sizes, pixels.shape[:2])), rule, f"{pixels.shape[1]}x{pixels.shape[0]}")
    top, left = ((size - wanted) // 2 for size, wanted in zip(pixels.shape[:2], sizes, strict=True))
    return pixels[top : top + sizes[0], left : left + sizes[1]]


def permute(pixels: Any, attributes: Mapping[str, Any]) -> Any:
    """The pixels with their axes in another order."""
    return np.transpose(pixels, attributes.get("dims", (1, 2, 0)))


def patch(pixels: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """The patches (patches, elements) of an image, with those that are merged one after another, and their grid."""
    size, frames, merged = (attributes.get(name, usual) for name, usual in _PATCHES)
    rows, columns = (side // size for side in pixels.shape[:2])
    is_whole = rows * size == pixels.shape[0] and columns * size == pixels.shape[1]
    rule = f"must have sides that {size * merged} divides"
    require("images", is_whole and not rows % merged and not columns % merged, rule, pixels.shape[:2])
    parts = pixels.reshape(rows // merged, merged, size, columns // merged, merged, size, -1)
    ordered = np.transpose(parts, (0, 3, 1, 4, 6, 2, 5))  # ..., colors, height, width
    repeated = np.repeat(ordered[:, :, :, :, :, None], frames, axis=5)
    return repeated.reshape(rows * columns, -1), np.array([1, rows, columns])


_PATCHES = (("patch_size", 14), ("temporal_patch_size", 2), ("merge_size", 2))


def with_sizes(pixels: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """The pixels (3, height, width) as they are, and their height and width."""
    return pixels, np.array(pixels.shape[1:])
