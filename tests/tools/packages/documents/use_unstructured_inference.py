# /// script
# dependencies = ["unstructured-inference", "torch", "onnxscript", "numpy", "pillow"]
# ///
"""Finds the parts of a page with its YOLOX reader and a small network of ours."""

import numpy as np
import torch
from PIL import Image, ImageDraw
from unstructured_inference.models.yolox import YOLOX_LABEL_MAP, UnstructuredYoloXModel


class Network(torch.nn.Module):
    """YOLOX's outputs: at each place of three grids a box, how likely it is, and what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 8, stride=8)
        self.stages = torch.nn.ModuleList(
            [torch.nn.Identity(), *(torch.nn.Conv2d(8, 8, 2, stride=2) for _ in range(2))]
        )
        self.heads = torch.nn.ModuleList(torch.nn.Conv2d(8, 5 + len(YOLOX_LABEL_MAP), 1) for _ in range(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x, grids = torch.relu(self.stem(images / 64)), []
        for stage, head in zip(self.stages, self.heads, strict=True):
            x = torch.relu(stage(x))
            grid = head(x).flatten(2).transpose(1, 2)
            grids.append(torch.cat([grid[..., :4], torch.sigmoid(12 * grid[..., 4:])], -1))
        return torch.cat(grids, 1)


torch.manual_seed(3)
torch.onnx.export(
    Network().eval(), (torch.randn(1, 3, 1024, 768),), "page.onnx", dynamo=True, external_data=False, verbose=False
)
paper = np.random.default_rng(0).integers(90, 256, (800, 600, 3), np.uint8)  # whose parts differ
page = Image.fromarray(paper)
draw = ImageDraw.Draw(page)
for y in range(80, 700, 60):
    draw.rectangle((60, y, 520 - y // 4, y + 25), fill=(20, 20, 20 + y // 4))
model = UnstructuredYoloXModel()
model.initialize("page.onnx", YOLOX_LABEL_MAP)
layout = model.predict(page)
print(len(layout.element_coords))
rows = list(zip(layout.element_coords, layout.element_class_ids, layout.element_probs, strict=True))
for box, label, score in rows[::9]:
    print(np.round(box, 2).tolist(), layout.element_class_id_map[label], f"{score:.4f}")
