# /// script
# dependencies = ["magika"]
#
# [tool.dmljax]
# tolerance = 1e-3
# remark = "dmljax's are within 3e-6 of what the model gives in float64"
# ///
"""Recognizes the types of eleven files."""

import json
from pathlib import Path

from magika import Magika

TEXTS = {
    "python": "import sys\n\n\ndef main(names):\n    for name in names:\n        print(name)\n\n\nmain(sys.argv[1:])\n"
    * 9,
    "json": json.dumps({"name": "a", "sizes": [1, 2, 3], "inner": {"x": None, "y": True}}, indent=1),
    "html": "<!DOCTYPE html>\n<html><head><title>A</title></head><body><p>Some text</p></body></html>\n",
    "csv": "name,size,color\n" + "".join(f"part{i},{i * 3},red\n" for i in range(40)),
    "c": '#include <stdio.h>\n\nint main(void) {\n    printf("hello\\n");\n    return 0;\n}\n' * 2,
    "sql": "SELECT name, SUM(size) FROM parts WHERE color = 'red' GROUP BY name ORDER BY name;\n" * 3,
    "shell": '#!/bin/sh\nset -e\nfor f in *.txt; do\n  cp "$f" /tmp/\ndone\n' * 3,
    "markdown": "# A title\n\nSome *text* with a [link](a.md).\n\n- one\n- two\n\n```python\nx = 1\n```\n",
    "text": "The quick brown fox jumps over the lazy dog, again and again.\n" * 20,
    "binary": "".join(chr(i * 7 % 128) for i in range(2000)),
}

magika = Magika()
for name, text in TEXTS.items():
    result = magika.identify_bytes(text.encode())
    print(name, result.output.label, result.output.group, f"{result.score:.5f}")
Path("a.toml").write_text('[project]\nname = "a"\nversion = "1"\n')
for result in magika.identify_paths([Path("a.toml"), Path("none")]):
    print(result.status, result.output.label if result.ok else "")
