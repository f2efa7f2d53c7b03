"""The report as a whole: complete, escaped, self-contained, the same each time."""

import re
from html.parser import HTMLParser

import pytest
from record_cases import make_record, some_records, write_record

from latchwork.reports.page import inline_svg
from latchwork.reports.records import group_records
from latchwork.reports.report import summarise, write_report
from latchwork.reports.tables import latex_text, markdown_text

pytest.importorskip("matplotlib")

NAMES = sorted({record["experiment"] for record in some_records()})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The texts of a report by their names, and its folder."""
    folder = tmp_path_factory.mktemp("report")
    for record in some_records():
        write_record(folder / "runs", record)
    paths = write_report(folder / "runs", folder / "out")
    return {path.relative_to(folder / "out").as_posix(): path.read_text(encoding="utf-8") for path in paths}, folder


def test_a_folder_without_records_is_an_error_and_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"no record\.json under .*empty"):
        write_report(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "escape"), [("report.md", markdown_text), ("report.tex", latex_text), ("report.html", str)]
)
def test_every_experiment_is_in_every_report(written, name, escape):
    for experiment in NAMES:
        assert escape(experiment) in written[0][name]


def test_markdown_shows_every_figure(written):
    texts, _ = written
    assert set(re.findall(r"\((figures/.*?)\)", texts["report.md"])) == {
        name for name in texts if name.endswith(".svg")
    }


def test_latex_environments_and_braces_are_balanced(written):
    text = written[0]["report.tex"]
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 5
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.findall(r"(?<!\\)[%#]", text)
    assert text.isascii()


def test_the_same_records_give_the_same_bytes_whatever_folder_they_are_in(tmp_path):
    texts = []
    for name, order in (("one", 1), ("two", -1)):
        for record in some_records()[2:4][::order]:
            write_record(tmp_path / name / "runs", record)
        paths = write_report(tmp_path / name / "runs", tmp_path / name / "out")
        texts.append({path.name: path.read_bytes() for path in paths})
    assert texts[0] == texts[1]


def test_the_page_refers_to_nothing_outside_itself(written):
    page = written[0]["report.html"]
    assert not re.search(r"https?://|//[a-z]|@import|<link[^>]*stylesheet|<script[^>]*src", page)
    for reference in re.findall(r'(?:href|src)="([^"]*)"', page):
        assert reference.startswith(("#", "data:"))


class Elements(HTMLParser):
    """The open and closed elements of a page, its ids, and the places that links go to."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("href", "").startswith("#"):
            self.links.append(values["href"][1:])
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_elements_are_closed_ids_unique_and_links_lead_somewhere(written):
    elements = Elements(written[0]["report.html"])
    assert elements.open == []
    assert len(elements.ids) == len(set(elements.ids))
    assert set(elements.links) <= set(elements.ids)


def test_manifests_are_on_the_page(written):
    page = written[0]["report.html"]
    for text in ("0123456789abcdef", "torch 2.13.0", "A &lt;fast&gt; &amp; small one", "2026-01-02T03:04:05+00:00"):
        assert page.count(text) == len(some_records())


def test_an_inlined_figure_has_ids_of_its_own_and_the_pages_ink():
    svg = (
        '<?xml?><svg xmlns="http://a"><style>*{}</style><g id="b"/>'
        '<use xlink:href="#b" clip-path="url(#b)" fill="#24292f"/></svg>'
    )
    assert inline_svg(svg, "c", "d <e>") == (
        '<svg role="img" aria-label="d &lt;e&gt;"><g id="c-b"/>'
        '<use href="#c-b" clip-path="url(#c-b)" fill="currentColor"/></svg>'
    )


def test_the_summary_counts():
    assert summarise(group_records(some_records())) == (
        "15 runs of 8 experiments at scale laptop, smoke. In 3 of 6 rows every evaluation answer of every seed was "
        "right. The paper has 5 rows of these and agrees on that in 4."
    )
    assert summarise(group_records([make_record(published=None)])) == (
        "1 run of 1 experiment at scale laptop. In 1 of 1 row every evaluation answer of every seed was right."
    )
