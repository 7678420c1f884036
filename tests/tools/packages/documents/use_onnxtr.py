# /// script
# dependencies = ["onnxtr", "torch", "onnxscript", "pillow", "numpy"]
# ///
"""Finds the words of a page with a network that looks for ink, and reads them with one of random weights."""

import numpy as np
import torch
from onnxtr.models import crnn_vgg16_bn, db_resnet50, ocr_predictor
from PIL import Image, ImageDraw, ImageFont


class Ink(torch.nn.Module):
    """How much darker than paper the neighborhood of each pixel is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dark = -x.mean(1, keepdim=True)
        return 6 * torch.max_pool2d(torch.nn.functional.avg_pool2d(dark, 5, 1, 2), 9, 1, 4) - 2


class Reader(torch.nn.Module):
    """Convolutions, a recurrent layer in both directions, and a score for each letter."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 16, (32, 8), stride=(32, 4))
        self.recurrence = torch.nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.linear = torch.nn.Linear(48, letters + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.convolution(x)).squeeze(2).transpose(1, 2)
        return self.linear(self.recurrence(x)[0]) * 5


torch.manual_seed(0)
batch = torch.export.Dim("batch")
for name, network, sizes in (("ink", Ink(), (1024, 1024)), ("reader", Reader(126), (32, 128))):
    torch.onnx.export(
        network.eval(), (torch.randn(2, 3, *sizes),), f"{name}.onnx", dynamic_shapes=({0: batch},), dynamo=True,
        external_data=False, verbose=False,
    )  # fmt: skip
page = Image.new("RGB", (600, 400), "white")
for i, line in enumerate(("A first line", "of several", "words 123")):
    ImageDraw.Draw(page).text((40, 40 + 110 * i), line, fill="black", font=ImageFont.load_default(size=40))
reader = crnn_vgg16_bn("reader.onnx")
print(len(reader.vocab))
predictor = ocr_predictor(db_resnet50("ink.onnx"), reader, symmetric_pad=True, preserve_aspect_ratio=True)
for block in predictor([np.asarray(page)]).pages[0].blocks:
    for line in block.lines:
        for word in line.words:
            print(np.round(word.geometry, 4).tolist(), repr(word.value), f"{word.confidence:.4f}")
