# /// script
# dependencies = ["rapidocr-onnxruntime", "pillow", "numpy"]
# ///
"""Finds, turns and reads the lines of a page."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

LINES = ["Invoice 2026-118", "Paper, 500 sheets   12.50", "Total: 1,234.56 EUR", "hello@example.com"]

page = Image.new("RGB", (640, 360), "white")
for i, line in enumerate(LINES):
    size = ImageFont.load_default(size=24 + 4 * i)
    ImageDraw.Draw(page).text((30 + 10 * i, 30 + 80 * i), line, fill="black", font=size)
reader = RapidOCR()
for image in (page, page.rotate(180)):
    lines, _ = reader(np.asarray(image))
    for box, text, score in lines or []:
        print(np.round(box).astype(int).tolist(), text, f"{float(score):.4f}")
