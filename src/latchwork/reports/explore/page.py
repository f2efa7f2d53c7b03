"""The page: markup, style, scripts and data in one file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

SCRIPTS = ("network.js", "regex.js", "machine.js", "drawing.js", "view.js", "app.js")


def make_page(subjects: Sequence[dict[str, Any]], *, title: str = "latchwork explore", word: str = "") -> str:
    """One HTML page on these subjects, the first shown first. word: typed in at the start."""
    folder = files(__package__)
    parts = {
        "TITLE": escape(title),
        "STYLE": (folder / "page.css").read_text(encoding="utf-8"),
        "DATA": safe_json({"subjects": list(subjects), "word": word}),
        "SCRIPT": "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS),
    }
    pieces = (folder / "page.html").read_text(encoding="utf-8").split("%%")  # text, name, text, name, ..., text
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def safe_json(values: object) -> str:
    r"""JSON that may stand in a script element: no tag can begin or end in it.

    >>> safe_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
