"""Whatever the texts of a record are, the report holds them as text: no element, id, link or file of theirs."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from record_cases import make_record

from latchwork.markup import slug
from latchwork.reports.page import SCRIPT, STYLE
from latchwork.reports.report import write_report

pytest.importorskip("matplotlib")

HOSTILE = {
    "attribute": '"><script>alert(1)</script>',
    "quote": "' onmouseover='alert(1)",
    "style": "</style><script>alert(1)</script><style>",
    "script": "</script><script>alert(1)</script>",
    "svg": "</text></svg><script>alert(1)</script><svg><text>",
    "title": "</title><img src=x onerror=alert(1)>",
    "link": "javascript:alert(1)",
    "markdown": "[x](javascript:alert(1)) ![x](//x) | `x` | **x** ~~x~~ <b> \\| \\",
    "sql": "'; -- DROP TABLE runs",
    "comment": "--> ]]> <!-- <![CDATA[",
    "regular expression": r"\1 \g<0> \d [a-",
    "formula": r"$\frac{$ \$ $x$",
    "latex": r"\input{/etc/passwd} \end{document} ^^5c %",
    "path": "../../../../tmp/x",
    "entity": "&lt;script&gt; &#x3c; &amp;",
    "unicode": "é 日本 \U0001f600 \u202e \u2028 ²",
    "broken unicode": "a\ud800b",
    "control characters": "a\x00b\x08\x1b[31m\x7f",
    "lines": "a\n\n# b\r\n| c |\n```\n",
    "underscore": "_hidden",
    "an id of the page": "manifests",
    "nothing": "",
    "digits": "9" * 5000,
    "100 kB": '"><script>' * 10_000,
}


def poison(value, text):
    """The same with this text in place of every text, names of fields that are free included."""
    if isinstance(value, dict):
        free = not value.keys() & {"experiment", "stopped", "mean", "loss", "asked", "versions"}
        return {(f"{name}{text}" if free else name): poison(each, text) for name, each in value.items()}
    if isinstance(value, list):
        return [poison(each, text) for each in value]
    return text if isinstance(value, str) else value


class Page(HTMLParser):
    """The elements with their attributes, and the text of each kind of element."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts, self.open = [], {}, []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:40]}")


def write_records(folder, text):
    """Two tables that no one knows, and an ablation; each run in a folder whose name is hostile too."""
    name = re.sub(r"[/\x00\ud800]", "", text)[:60]
    records = [
        make_record(accuracy=0.5),
        make_record(accuracy=0.5, seed=1, epochs=2),
        make_record("ablation/a/b", seed=2, accuracy=0.5, converged=[1, 2], changes={"gate": "on", "conv": True}),
    ]
    for record in records:
        poisoned = poison(record, text)
        poisoned["table"] = [text, f"{text}1", "ablation"][record["seed"]]
        run = folder / f"{name} {record['seed']}"
        run.mkdir(parents=True)
        (run / "record.json").write_text(json.dumps(poisoned))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_stays_a_text(tmp_path, text):
    write_records(tmp_path / "runs", text)
    paths = write_report(tmp_path / "runs", tmp_path / "out")
    names = [path.resolve().relative_to(tmp_path / "out").as_posix() for path in paths]
    assert all(re.fullmatch(r"report\.(md|tex|html)|figures/[a-z0-9_-]+\.svg", name) for name in names)
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == set(names)
    assert len(names) == len(set(names))

    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.texts["script"] == [SCRIPT]
    assert page.texts["style"] == [STYLE]
    expected = (
        "html head meta link title style body header h1 p nav ul li a main form label input output section h2 div "
        "table thead tr th button tbody td figure figcaption details summary dl dt dd script small "
        "svg metadata defs g path use clippath rect text tspan image"
    )
    assert {tag for tag, _ in page.elements} <= set(expected.split())
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if not re.fullmatch(r"[a-zA-Z0-9._-]+", each)] == []
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or not re.fullmatch(r"[a-zA-Z:-]+", name)]
        for name in ("href", "src", "xlink:href", "action", "formaction"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,", "data:,")), (tag, attributes)
    if shown := " ".join(re.sub(r"[\x00\x08\x1b\x7f\ud800]", "\ufffd", text).split()):
        cells = [" ".join(each.split()) for each in page.texts["td"]]
        assert shown in cells

    for name in names:
        if name.endswith(".svg"):
            picture = ElementTree.fromstring((tmp_path / "out" / name).read_text(encoding="utf-8"))
            assert not [each for each in picture.iter() if each.tag.endswith(("script", "foreignObject", "}a"))]

    in_markdown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert not re.search(r"<|javascript:[^)]*\)(?<!\\)\]\(", in_markdown)
    bare = re.sub(r"\\.", "", in_markdown)
    assert "`" not in bare
    tables = [line for line in bare.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} <= {18, 19, 20, 21, 11}
    assert set(re.findall(r"\]\((.*?)\)", bare)) == {name for name in names if name.endswith(".svg")}

    in_latex = (tmp_path / "out" / "report.tex").read_text(encoding="utf-8")
    assert in_latex.count(r"\end{document}") == 1
    assert r"\input{/etc" not in in_latex
    without_escapes = re.sub(r"\\[{}]", "", in_latex)
    assert without_escapes.count("{") == without_escapes.count("}")


def test_different_texts_have_different_words():
    texts = [*HOSTILE.values(), "latching", "Latching", "latching-", "latching ", "runs", "latching-title"]
    assert len({slug(text).lower() for text in texts}) == len(texts)
