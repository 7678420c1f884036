# /// script
# dependencies = ["rembg", "torch", "onnxscript", "pillow", "numpy"]
# ///
"""Cuts out what a small network of ours takes for the foreground, by its path."""

import os
from itertools import pairwise

import numpy as np
import torch
from PIL import Image, ImageDraw
from rembg import new_session, remove


class Network(torch.nn.Module):
    """Halves an image three times, doubles it again, and joins both at each size, as U2-Net does."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 8, 16, 32]
        pairs = list(pairwise(widths))
        self.down = torch.nn.ModuleList(torch.nn.Conv2d(a, b, 3, padding=1) for a, b in pairs)
        self.up = torch.nn.ModuleList(torch.nn.Conv2d(a + b, a, 3, padding=1) for a, b in reversed(pairs))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(b) for _, b in pairs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        skips = []
        for convolution, norm in zip(self.down, self.norms, strict=True):
            skips.append(x)
            x = torch.max_pool2d(torch.relu(norm(convolution(x))), 2, ceil_mode=True)
        coarse = x.mean(1, keepdim=True)
        for convolution, skip in zip(self.up, reversed(skips), strict=True):
            x = torch.nn.functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = convolution(torch.cat([x, skip], 1))
        return torch.sigmoid(x.mean(1, keepdim=True) * 4), coarse


torch.manual_seed(0)
torch.onnx.export(
    Network().eval(), (torch.randn(1, 3, 320, 320),), "network.onnx", output_names=["d0", "d1"], dynamo=True,
    external_data=False, verbose=False,
)  # fmt: skip
os.environ["U2NET_HOME"] = os.getcwd()  # rembg reads models in this folder only
picture = Image.new("RGB", (240, 180), (60, 120, 90))
draw = ImageDraw.Draw(picture)
draw.ellipse((70, 30, 170, 150), fill=(230, 200, 60))
draw.rectangle((100, 80, 210, 120), fill=(200, 40, 90))
session = new_session("u2net_custom", model_path="network.onnx")
for options in ({}, {"only_mask": True}, {"bgcolor": (10, 20, 30, 255)}, {"post_process_mask": True}):
    result = np.asarray(remove(picture, session=session, **options), np.float64)
    print(options, result.shape, np.round(result[::45, ::40].mean(-1) / 255, 2).tolist(), f"{result.mean():.1f}")
