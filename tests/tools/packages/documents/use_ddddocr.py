# /// script
# dependencies = ["ddddocr", "pillow"]
# ///
"""Reads ten captchas, with both of its models, and finds the words in a picture."""

import io

import ddddocr
from PIL import Image, ImageDraw, ImageFont

WORDS = ["ab3d", "7xk2", "QWER", "hello", "93751", "m4n5", "ZZtop", "a1b2", "2026", "word"]


def picture(word: str, index: int) -> bytes:
    """A word in slanted letters with a line through it."""
    image = Image.new("RGB", (30 * len(word) + 20, 60), (240, 240, 230))
    draw = ImageDraw.Draw(image)
    for i, letter in enumerate(word):
        tile = Image.new("L", (40, 48), 0)
        ImageDraw.Draw(tile).text((8, 4), letter, fill=255, font=ImageFont.load_default(size=32))
        image.paste((40, 30 * i % 200, 90), (10 + 30 * i, 6), tile.rotate((-1) ** i * (5 + index % 8)))
    draw.line((5, 50 - index, image.width - 5, 10 + index), fill=(90, 120, 60), width=1)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


for old in (False, True):
    reader = ddddocr.DdddOcr(show_ad=False, old=old)
    print([reader.classification(picture(word, i)) for i, word in enumerate(WORDS)])

page = Image.new("RGB", (300, 200), "white")
for i, word in enumerate(("first", "second", "third")):
    ImageDraw.Draw(page).text((20 + 60 * i, 20 + 55 * i), word, fill="black", font=ImageFont.load_default(size=30))
stream = io.BytesIO()
page.save(stream, "PNG")
print(ddddocr.DdddOcr(det=True, ocr=False, show_ad=False).detection(stream.getvalue()))
