"""A report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from latchwork.markup import Markup, element, join
from latchwork.reports.figures import INK, PAPER
from latchwork.reports.pictures import Picture
from latchwork.reports.records import Group, Record
from latchwork.reports.tables import Cell, Table

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --quiet: #59636e; --line: #d1d9e0; --shade: #f6f8fa;
  --link: #0969da; --shadow: #c3cad3; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --quiet: #9198a1; --line: #3d444d; --shade: #161b22; --link: #58a6ff;
    --shadow: #4a525d; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
header, main { max-width: 90rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 1.5rem; }
main { padding-bottom: 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; }
.summary { font-size: 1.1rem; }
.note, figcaption { color: var(--quiet); font-size: .875rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; margin: 1rem 0; padding: 0; }
.filter { position: sticky; top: 0; z-index: 2; display: flex; flex-wrap: wrap; align-items: center; gap: .5rem .75rem;
  padding: .6rem 0; background: var(--paper); border-bottom: 1px solid var(--line); }
.filter input { flex: 0 1 22rem; min-width: 0; font: inherit; color: inherit; background: var(--shade);
  border: 1px solid var(--line); border-radius: .375rem; padding: .3rem .6rem; }
.filter label:has([type=checkbox]) { display: inline-flex; gap: .35rem; font-size: .875rem; }
.filter [type=checkbox] { flex: none; }
.filter output { color: var(--quiet); font-size: .875rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
section { scroll-margin-top: 4rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .375rem; margin: .75rem 0;
  background: linear-gradient(to right, var(--paper) 30%, transparent) left / 3rem 100% local no-repeat,
    linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% local no-repeat,
    linear-gradient(to right, var(--shadow), transparent) left / 1.25rem 100% scroll no-repeat,
    linear-gradient(to left, var(--shadow), transparent) right / 1.25rem 100% scroll no-repeat; }
.scroll:focus-visible { outline-offset: -2px; }
.hint { display: none; color: var(--quiet); font-size: .8125rem; margin: -.4rem 0 0; }
.hint.needed { display: block; }
.few .more { display: none; }
small { color: var(--quiet); font-size: .75rem; }
.stopped { display: inline-block; margin-right: .35rem; padding: 0 .4rem; border: 1px solid var(--line);
  border-radius: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .45rem; text-align: right; white-space: nowrap; vertical-align: bottom; }
.word { text-align: left; }
thead th { background: color-mix(in srgb, var(--shade) 80%, transparent);
  border-bottom: 1px solid var(--line); padding: 0; white-space: normal; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { font-weight: 400; }
tbody tr:hover { background: var(--shade); }
th button { all: unset; box-sizing: border-box; display: block; width: 100%; padding: .4rem .45rem; cursor: pointer;
  font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: -2px; }
th[aria-sort] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
figure { margin: 1.5rem 0; }
figure > div { display: flex; flex-wrap: wrap; gap: 1rem; overflow-x: auto; scrollbar-width: thin; }
figure svg { display: block; flex: none; max-width: 100%; height: auto; }
figure .hint { margin: .25rem 0; }
@media (max-width: 44rem) { figure svg { max-width: none; } figure svg.small { max-width: 100%; }
  thead th { white-space: nowrap; } .stopped { display: block; width: max-content; margin: 0 0 .1rem auto; } }
figure svg text { filter: brightness(.75); }
@media screen and (prefers-color-scheme: dark) {
  figure svg { filter: brightness(1.3); } figure svg text { filter: none; } }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { max-width: 46rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
section > details { border: 0; padding: 0; }
section > details .note { margin: .25rem 0; }
section > details > summary { color: var(--quiet); font-size: .875rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0 .5rem 1.1rem;
  font-size: .875rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
[hidden] { display: none !important; }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  :root { --paper: #ffffff; --ink: #000000; --quiet: #444444; --line: #bbbbbb; --shade: #f2f2f2; --link: #000000; }
  html { font-size: 9pt; }
  .filter, nav { display: none; }
  header, main { max-width: none; padding: 0; }
  .scroll { overflow: visible; border: 0; }
  table { font-size: 6.5pt; }
  th, td, th button { padding: .1rem .25rem; white-space: normal; }
  tr, figure, details { break-inside: avoid; }
  figure svg { max-width: 100%; max-height: 170mm; }
  h2, .note { break-after: avoid; }
  h2 { margin-top: 1.5rem; }
  p, figcaption { max-width: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""

SHORT = 200  # characters of a caption that needs no click
SMALL = 350  # points: a figure so wide is shown whole on a phone
SECONDARY = {  # columns that are shown when they are asked for
    *("At changes", "Worst step", "Train", "Epochs", "Seeds", "Sequences, length", "Training", "Evaluation", "Batch"),
    *("Scale", "95% interval", "95% interval, paper"),
}

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
    const numbers = !head.classList.contains("word");
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[column].dataset.value;
    const compare = (a, b) => numbers ? a - b : a < b ? -1 : a > b ? 1 : 0;
    const rows = [...body.rows].sort((one, two) => {
      const a = value(one), b = value(two);
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return sign * compare(a, b);
    });
    body.append(...rows);
  }));
}
const box = document.getElementById("filter"), shown = document.getElementById("shown");
const items = [...document.querySelectorAll("tbody tr, #manifests details")];
const texts = items.map(item => (item.querySelector("summary") || item).textContent.toLowerCase());
const rows = items.filter(item => item.matches("tr"));
function filter() {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  items.forEach((item, place) => { item.hidden = !words.every(word => texts[place].includes(word)); });
  const left = rows.filter(row => !row.hidden).length;
  shown.textContent = words.length ? left + " of " + rows.length + " rows" : "";
}
box.addEventListener("input", filter);
box.form.addEventListener("submit", event => event.preventDefault());
box.form.hidden = false;
filter();
const more = document.getElementById("more");
function widen() {
  document.body.classList.toggle("few", !more.checked);
  for (const each of document.querySelectorAll(".scroll, figure > div")) {
    each.nextElementSibling.classList.toggle("needed", each.scrollWidth > each.clientWidth + 1);
  }
}
more.addEventListener("change", widen);
addEventListener("resize", widen);
widen();
"""


def make_page(
    title: str,
    about: Sequence[str],
    summary: str,
    tables: Sequence[Table],
    figures: Sequence[Picture],
    runs: Table,
    groups: Sequence[Group],
) -> str:
    """The page. title, about, summary: plain text; about in paragraphs. runs: the table after the figures."""
    links = [*((table.name, table.title) for table in tables), ("figures", "Figures")]
    links += [(runs.name, runs.title), ("manifests", "Manifests")]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    header = element(
        "header",
        element("h1", title),
        element("p", summary, class_="summary"),
        *(element("p", paragraph) for paragraph in about),
        element(
            "nav",
            element("ul", *(element("li", element("a", text, href=f"#{name}")) for name, text in links)),
            aria_label="Contents",
        ),
    )
    search = element(
        "form",
        element("label", "Filter rows", for_="filter"),
        element("input", id="filter", type="search", autocomplete="off", placeholder="latching minmax"),
        element("label", element("input", id="more", type="checkbox"), "All columns"),
        element("output", id="shown", for_="filter", aria_live="polite"),
        class_="filter",
        role="search",
        hidden=True,
    )
    note = (
        "What each run was made with: the commit of the source (a + marks files changed since), versions, hardware, "
        "date."
    )
    main = [
        search,
        *(_table(table) for table in tables),
        element("section", element("h2", "Figures"), *(_figure(picture) for picture in figures), id="figures"),
        _table(runs),
        element(
            "section",
            element("h2", "Manifests"),
            element("p", note, class_="note"),
            *(_manifest(record) for group in groups for record in group.records),
            id="manifests",
        ),
    ]
    body = element("body", header, element("main", join(main, "\n")), element("script", Markup(SCRIPT)))
    return "<!DOCTYPE html>\n" + element("html", head, "\n", body, lang="en") + "\n"


def inline_svg(svg: str, name: str, label: str) -> Markup:
    """An SVG file of ours as an element of a page: its ids are made unique by name, its ink and paper are the page's.

    name: a `slug`. What stands between tags is left alone.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)

    def adapt(match: re.Match[str]) -> str:
        tag = re.sub(r'\s*xmlns(:\w+)?="[^"]*"', "", match[0])
        tag = tag.replace("xlink:href=", "href=").replace('href="#', f'href="#{name}-')
        tag = re.sub(r'\sid="', f' id="{name}-', tag).replace("url(#", f"url(#{name}-")
        return tag.replace(INK, "currentColor").replace(f"fill: {PAPER}", "fill: none")

    svg = re.sub(r"<[^>]*>", adapt, svg)
    width = re.match(r'<svg[^>]*\swidth="([0-9.]+)pt"', svg)
    small = ' class="small"' if width is not None and float(width[1]) <= SMALL else ""
    return Markup(svg.replace("<svg", f'<svg role="img"{small} aria-label="{escape(label)}"', 1).strip())


def _table(table: Table) -> Markup:
    def kind(column: int) -> str | None:
        return "word" if _is_word(table, column) else None

    head = element(
        "tr",
        *(
            element("th", element("button", text, type="button"), scope="col", class_=_classes(kind(column), text))
            for column, text in enumerate(table.head)
        ),
    )
    classes = [_classes(kind(column), text) for column, text in enumerate(table.head)]
    rows = [element("tr", *(_cell(cell, n, classes[n]) for n, cell in enumerate(row))) for row in table.rows]
    title = f"{table.name}-title"
    return element(
        "section",
        element("h2", table.title, id=title),
        _caption(table.caption),
        element(
            "div",
            element("table", element("thead", head), element("tbody", join(rows, "\n")), aria_labelledby=title),
            class_="scroll",
            role="region",
            aria_labelledby=title,
            tabindex=0,
        ),
        element("p", "The table goes on to the right.", class_="hint", aria_hidden="true"),
        id=table.name,
    )


def _classes(kind: str | None, head: str) -> str | None:
    return " ".join(filter(None, (kind, "more" if head in SECONDARY else None))) or None


def _caption(text: str) -> Markup:
    """A short one as it is, a long one behind a line to click on."""
    note = element("p", text, class_="note")
    return note if len(text) < SHORT else element("details", element("summary", "What the columns say"), note)


def _is_word(table: Table, column: int) -> bool:
    """Whether a column is sorted as words."""
    return any(isinstance(row[column].value, str) for row in table.rows)


def _cell(cell: Cell, column: int, kind: str | None) -> Markup:
    if column == 0:
        return element("th", cell.text, scope="row", class_=kind, data_value=cell.value)
    return element("td", _quieter(cell.text), class_=kind, data_value=cell.value)


def _quieter(text: str) -> Markup:
    """What stands in brackets after a number, and why a run was stopped, smaller."""
    match = re.fullmatch(r"(.*?\S)(?: (\([^)]*\)))?(?:, ((?:training|evaluation) stopped: .*))?", text)
    if match is None or not (match[2] or match[3]):
        return join([text])
    stopped = [element("small", match[3], class_="stopped"), " "] if match[3] else []
    bracket = [" ", element("small", match[2])] if match[2] else []
    return join([*stopped, match[1], *bracket])


def _figure(picture: Picture) -> Markup:
    return element(
        "figure",
        element(
            "div",
            *(inline_svg(svg, name, picture.title) for name, svg in picture.parts.items()),
            tabindex=0,
            role="group",
            aria_label=picture.title,
        ),
        element("p", "The figure goes on to the right.", class_="hint", aria_hidden="true"),
        element("figcaption", picture.caption),
        id=picture.name,
    )


def _manifest(record: Record) -> Markup:
    manifest: Mapping[str, Any] = record.get("manifest") or {}
    lines = {
        "folder": record["run"],
        "date": manifest.get("date"),
        "commit": manifest.get("commit"),
        "versions": _pairs(manifest.get("versions")),
        "hardware": _pairs(manifest.get("hardware")),
        "task, model": f"{record['task']}, {record['model']}, {record.get('n_layers')} layers",
        "trainer": f"{record.get('trainer')}, batch {record['batch_size']}",
        "changes": _pairs(record.get("changes")),
    }
    shown = [element("dt", name) + element("dd", value) for name, value in lines.items() if value not in (None, "")]
    summary = f"{record['experiment']}, {record['scale']}, batch {record['batch_size']}, seed {record['seed']}"
    return element("details", element("summary", summary), element("dl", *map(Markup, shown)))


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items() if value is not None)
