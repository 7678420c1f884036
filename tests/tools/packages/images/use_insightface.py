# /// script
# dependencies = ["insightface", "torch", "onnxscript", "numpy", "opencv-python-headless"]
#
# [tool.dmljax]
# tolerance = 1e-3
# ///
"""Finds, measures and compares faces with four small networks of ours from a folder."""

from pathlib import Path

import cv2
import numpy as np
import torch
from insightface.app import FaceAnalysis


class Detector(torch.nn.Module):
    """SCRFD's outputs: for each stride, scores, boxes and five points of two anchors at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.stages = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, stride=2, padding=1) for _ in range(4))
        self.heads = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Conv2d(8, 2 * size, 1) for size in (1, 4, 10)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = torch.relu(self.stem(x))
        outputs = []
        for i, stage in enumerate(self.stages):
            x = torch.relu(stage(x))
            if i:
                scores, boxes, points = (
                    head(x).permute(0, 2, 3, 1).reshape(-1, size)
                    for head, size in zip(self.heads[i - 1], (1, 4, 10), strict=True)
                )
                outputs.append((torch.sigmoid(4 * scores), torch.nn.functional.softplus(boxes) * 2, points))
        return [output for kind in zip(*outputs, strict=True) for output in kind]


def head(size: int, outputs: int) -> torch.nn.Module:
    """A network from an image to numbers."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=4), torch.nn.PReLU(8), torch.nn.BatchNorm2d(8), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(128, outputs),
    )  # fmt: skip


folder = Path("models/small")
folder.mkdir(parents=True)
torch.manual_seed(1)
NETWORKS = {
    "det": (Detector(), None),
    "genderage": (head(96, 3), 96),
    "landmarks": (head(192, 212), 192),
    "recognition": (head(112, 64), 112),
}
for name, (network, size) in NETWORKS.items():
    axes = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC} if size is None else {0: torch.export.Dim.DYNAMIC}
    images = torch.randn(1 if size is None else 2, 3, size or 128, size or 128)
    torch.onnx.export(
        network.eval(), (images,), str(folder / f"{name}.onnx"), dynamic_shapes=(axes,), dynamo=True,
        external_data=False, verbose=False,
    )  # fmt: skip

analysis = FaceAnalysis("small", root=".", providers=["CPUExecutionProvider"])
analysis.prepare(ctx_id=-1, det_size=(160, 160), det_thresh=0.5)
picture = np.full((200, 240, 3), 90, np.uint8)
for x, y in ((60, 70), (160, 120)):
    cv2.ellipse(picture, (x, y), (30, 40), 0, 0, 360, (170, 190, 230), -1)
    cv2.circle(picture, (x - 10, y - 10), 4, (20, 20, 20), -1)
    cv2.circle(picture, (x + 10, y - 10), 4, (20, 20, 20), -1)
faces = analysis.get(picture, max_num=4)
print(len(faces), sorted(analysis.models))
for face in faces:
    print(np.round(face.bbox, 2), f"{face.det_score:.4f}", face.sex, face.age)
    print(np.round(face.kps, 2).tolist(), np.round(face.landmark_2d_106[:4], 2).tolist())
    print(np.round(face.normed_embedding[:8], 4))
print(f"{analysis.models['recognition'].compute_sim(faces[0].embedding, faces[1].embedding):.4f}")
