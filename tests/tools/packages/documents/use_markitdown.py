# /// script
# dependencies = ["markitdown", "magika"]
# ///
"""Converts files without names to Markdown, whose types Magika's model recognizes."""

import io

from markitdown import MarkItDown

FILES = {
    "html": "<!DOCTYPE html><html><head><title>A</title></head><body><h1>One</h1><p>Some <b>text</b>.</p>"
    "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>",
    "csv": "name,size,color\n" + "".join(f"part{i},{i * 3},red\n" for i in range(20)),
    "text": "The quick brown fox jumps over the lazy dog.\n" * 5,
    "json": '{"name": "a", "sizes": [1, 2, 3], "inner": {"x": null, "y": true}}\n',
}

converter = MarkItDown()
for name, text in FILES.items():
    result = converter.convert_stream(io.BytesIO(text.encode()))
    print(name, result.title)
    print(result.markdown)
