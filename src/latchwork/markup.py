"""HTML in which everything is escaped unless it was made here, and words that are safe as ids and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from html import escape

VOID = ("input", "link", "meta")  # elements without content
IDS = ("figures", "filter", "manifests", "more", "runs", "shown")  # the page's own
LONGEST = 40  # characters of a slug, without its hash


class Markup(str):
    """Text that is HTML already. Everything else is escaped."""


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. children: Markup as it is, all else as escaped text. attributes: True is a bare one, None is none.

    An underscore at the end of an attribute's name is left out, others are hyphens.
    >>> print(element("a", "1 < 2", element("br"), class_="x", href='"', hidden=True, id=None))
    <a class="x" href="&quot;" hidden>1 &lt; 2<br></br></a>
    """
    start = tag
    for name, value in attributes.items():
        if value is not None:
            name = name.rstrip("_").replace("_", "-")
            start += f" {name}" if value is True else f' {name}="{escape(str(value))}"'
    return Markup(f"<{start}>" if tag in VOID else f"<{start}>{join(children)}</{tag}>")


def join(parts: Iterable[object], between: str = "") -> Markup:
    """The parts one after the other, escaped unless they are Markup."""
    return Markup(between.join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> Markup:
    """A table: one line of headings, then the rows."""
    head = element("tr", *(element("th", each) for each in header))
    return element("table", head, *(element("tr", *(element("td", each) for each in row)) for row in rows))


def slug(text: str) -> str:
    """A word for ids and file names: the text itself if it is a short word of a-z, 0-9 and _; else one with a hash.

    Different texts have different words. One without a hash has no hyphen, and is none of IDS.
    >>> slug("latching"), slug("../<b>"), slug("runs")
    ('latching', 'b-9f46aef2', 'runs-1f64fff0')
    """
    if re.fullmatch(f"[a-z0-9_]{{1,{LONGEST}}}", text) and text not in IDS:
        return text
    word = re.sub(r"[^a-z0-9_]+", "-", text[:LONGEST].lower()).strip("-")
    return f"{word or 'x'}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
