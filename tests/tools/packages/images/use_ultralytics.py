# /// script
# dependencies = ["ultralytics", "torch", "torchvision", "onnx", "numpy", "pillow"]
# ///
"""Detects, poses and classifies with YOLO models of random weights, which it exports to ONNX itself."""

import contextlib
import os
import sys

import numpy as np
import torch
from PIL import Image, ImageDraw

os.environ |= {"YOLO_CONFIG_DIR": os.getcwd(), "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
with contextlib.redirect_stdout(sys.stderr):  # it logs the names of folders
    from ultralytics import YOLO

picture = Image.new("RGB", (320, 240), (60, 120, 90))
draw = ImageDraw.Draw(picture)
draw.ellipse((40, 30, 170, 190), fill=(230, 200, 60))
draw.rectangle((180, 80, 300, 220), fill=(200, 40, 90))
for name in ("yolov8n", "yolov8n-pose", "yolov8n-cls"):
    torch.manual_seed(0)
    model = YOLO(f"{name}.yaml")
    for module in model.model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
            module.weight.data *= 1.18  # so that scores differ
            if module.bias is not None:
                module.bias.data.zero_()
    path = model.export(format="onnx", imgsz=160, dynamic="cls" not in name, simplify=False, verbose=False)
    result = YOLO(path).predict(picture, imgsz=160, conf=0.2, max_det=5, verbose=False)[0]
    if result.boxes is not None:
        print(name, np.round(result.boxes.data.numpy(), 3))
    if result.keypoints is not None:
        print(np.round(result.keypoints.data[:, ::4].numpy(), 2).tolist())
    if result.probs is not None:
        print(name, result.probs.top5, np.round(result.probs.top5conf.numpy(), 6))
