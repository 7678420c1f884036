"""Images as their models read them: in tiles, or in patches of a number that depends on the image's shape."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmljax.errors import require
from dmljax.run.onnxruntime_genai.transforms.images import normalize, resample


def tile_for_phi3(pixels: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """A small image and up to 16 tiles of a large one, its height and width, and the number of their tokens."""
    large = _fill_tiles(_enlarge(pixels))
    height, width = large.shape[:2]
    rows, columns = height // _TILE, width // _TILE
    colors = np.moveaxis(normalize(large.astype(np.float32) / np.float32(255), {}), 2, 0)
    small = np.stack([resample(color, _TILE, _TILE, "BICUBIC") for color in colors])
    tiles = colors.reshape(3, rows, _TILE, columns, _TILE).transpose(1, 3, 0, 2, 4).reshape(-1, 3, _TILE, _TILE)
    empty = np.zeros((_MOST_TILES - len(tiles), *tiles.shape[1:]), np.float32)
    count = (rows * columns + 1) * 144 + 1 + (rows + 1) * 12
    return np.concatenate([small[None], tiles, empty]), np.array([height, width]), np.array([count])


_TILE, _MOST_TILES = 336, 16


def _enlarge(pixels: Any) -> Any:
    """An image scaled so that its longer side is as many tiles as its shorter side leaves room for."""
    height, width = pixels.shape[:2]
    ratio = max(height, width) / min(height, width)
    tiles = max(count for count in range(1, _MOST_TILES + 1) if count * np.ceil(count / ratio) <= _MOST_TILES)
    longer = tiles * _TILE
    sides = (longer, int(longer / ratio))
    return resample(pixels, *(sides if width < height else sides[::-1]), "BILINEAR")


def _fill_tiles(pixels: Any) -> Any:
    """An image with white at both ends of its shorter side, so that tiles divide it."""
    missing = [-side % _TILE for side in pixels.shape[:2]]
    return np.pad(pixels, [(count // 2, count - count // 2) for count in missing] + [(0, 0)], constant_values=255)


def pad_for_phi4(pixels: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """An image scaled to fit whole tiles, with white at its right or lower end, and where its patches show it."""
    side, most = attributes.get("dyhd_base_resolution", 448), attributes.get("dynamic_hd", 36)
    height, width = pixels.shape[:2]
    rows, columns = -(-height // side), -(-width // side)
    if rows * columns > most:
        rows, columns = _nearest_tiles(height, width, side, most)
    ratios = np.float32(side * rows) / np.float32(height), np.float32(side * columns) / np.float32(width)
    if ratios[1] < ratios[0]:
        size = int(np.float32(height) * ratios[1]), side * columns
    else:
        size = side * rows, int(np.float32(width) * ratios[0])
    require("images", min(size) >= 10, "must not be so narrow", f"{width}x{height}")
    scaled = resample(pixels, *size, "BILINEAR")
    missing = side * rows - size[0], side * columns - size[1]
    padded = np.pad(scaled, ((0, missing[0]), (0, missing[1]), (0, 0)), constant_values=255)
    is_shown = np.zeros((side // _PATCH * rows, side // _PATCH * columns), np.int64)
    is_shown[: len(is_shown) - missing[0] // _PATCH, : is_shown.shape[1] - missing[1] // _PATCH] = 1
    return padded, is_shown


_PATCH = 14


def _nearest_tiles(height: int, width: int, side: int, most: int) -> tuple[int, int]:
    """The rows and columns whose ratio is nearest to an image's; of those equally near, the most that it fills half."""
    pairs = [(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most]
    ratio, best = np.float32(width) / np.float32(height), (1, 1)
    nearest: Any = np.inf
    for columns, rows in sorted(pairs, key=lambda pair: pair[0] * pair[1]):
        difference = abs(ratio - np.float32(columns) / np.float32(rows))
        fills_half = height * width > 0.5 * side * side * columns * rows
        if difference < nearest or (difference == nearest and fills_half):
            nearest, best = difference, (rows, columns)
    return best


def tile_for_phi4(pixels: Any, is_shown: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """A small image and the tiles of a large one, its size, the patches that show it, and the number of its tokens."""
    side = attributes.get("dyhd_base_resolution", 448)
    small = np.stack([resample(color, side, side, "BICUBIC") for color in np.moveaxis(pixels, 2, 0)])
    values = np.concatenate([small[None], np.moveaxis(_tiles(pixels, side), 3, 1)])
    masks = _tiles(is_shown, side // _PATCH)
    shown = is_shown[::2, ::2]
    count = 256 + 1 + shown.sum() + shown[:, 0].sum() + 16
    masks = np.concatenate([np.ones_like(masks[:1]), masks])
    return values, np.array(pixels.shape[:2]), masks, np.array([count])


def _tiles(values: Any, side: int) -> Any:
    """The squares (tiles, side, side, ...) of values (height, width, ...), row by row."""
    rows, columns = (length // side for length in values.shape[:2])
    parts = values.reshape(rows, side, columns, side, *values.shape[2:])
    return np.moveaxis(parts, 2, 1).reshape(rows * columns, side, side, *values.shape[2:])


def patch_for_gemma4(pixels: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The patches (patches, elements) of a scaled image, their columns and rows, and the number of its tokens."""
    size, most, pool = (attributes.get(name, usual) for name, usual in _GEMMA4)
    patches, step = most * pool**2, size * pool
    height, width = _size_of_pools(pixels.shape[0], pixels.shape[1], step, most)
    scaled = np.stack([_scale(color, height, width) for color in np.moveaxis(pixels, 2, 0)], -1)
    rows, columns = height // size, width // size
    parts = scaled.reshape(rows, size, columns, size, 3).swapaxes(1, 2).reshape(rows * columns, -1)
    places = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
    missing = ((0, patches - len(parts)), (0, 0))
    count = np.array([len(parts) // pool**2])
    return np.pad(parts, missing), np.pad(places, missing, constant_values=-1), count


_GEMMA4 = (("patch_size", 16), ("max_soft_tokens", 280), ("pooling_kernel_size", 3))


def _size_of_pools(height: int, width: int, step: int, most: int) -> tuple[int, int]:
    """The largest size of an image's shape that has at most so many squares of `step` pixels, and at least one."""
    factor = np.sqrt(float(most) * step * step / (float(height) * width))
    rows, columns = (int(np.floor(factor * side / step)) for side in (height, width))
    require("images", rows > 0 or columns > 0, "must not be so narrow", f"{width}x{height}")
    if not rows:
        rows, columns = 1, max(1, min(width // height, most))
    elif not columns:
        rows, columns = max(1, min(height // width, most)), 1
    return rows * step, columns * step


def _scale(color: Any, height: int, width: int) -> Any:
    """A color as floats from 0 to 1 in another size, with what bicubic interpolation exceeds these by."""
    return resample(color.astype(np.float32) / np.float32(255), height, width, "BICUBIC")
