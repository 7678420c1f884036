# /// script
# dependencies = ["nudenet", "numpy", "opencv-python-headless"]
# ///
"""Runs its detector on drawn pictures and prints the raw outputs too."""

import cv2
import numpy as np
from nudenet import NudeDetector

detector = NudeDetector()
figure = np.full((400, 300, 3), 220, np.uint8)
cv2.circle(figure, (150, 80), 45, (150, 180, 220), -1)
cv2.ellipse(figure, (150, 230), (70, 110), 0, 0, 360, (150, 180, 220), -1)
for x in (135, 165):
    cv2.circle(figure, (x, 70), 5, (30, 30, 30), -1)
cv2.ellipse(figure, (150, 100), (15, 6), 0, 0, 180, (40, 40, 150), 2)
noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), np.uint8)
for picture in (figure, cv2.GaussianBlur(noise, (0, 0), 9)):
    print(detector.detect(picture))
blob = cv2.dnn.blobFromImage(figure, 1 / 255, (320, 320), swapRB=True)
(raw,) = detector.onnx_session.run(None, {detector.input_name: blob})
print(raw.shape, raw.dtype)
print(np.round(raw[0, :, ::300].astype(np.float64), 3) + 0.0)
