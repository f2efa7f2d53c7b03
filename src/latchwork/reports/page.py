"""A report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from latchwork.reports.figures import INK, PAPER, Picture
from latchwork.reports.records import Group, Record
from latchwork.reports.tables import Cell, Table

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --quiet: #59636e; --line: #d1d9e0; --shade: #f6f8fa;
  --link: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --quiet: #9198a1; --line: #3d444d; --shade: #161b22; --link: #58a6ff; }
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
.filter output { color: var(--quiet); font-size: .875rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
section { scroll-margin-top: 4rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .375rem; margin: .75rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .45rem; text-align: right; white-space: nowrap; vertical-align: bottom; }
.word { text-align: left; }
thead th { background: var(--shade); border-bottom: 1px solid var(--line); padding: 0; white-space: normal; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { font-weight: 400; }
tbody tr:hover { background: var(--shade); }
th button { all: unset; box-sizing: border-box; display: block; width: 100%; padding: .4rem .45rem; cursor: pointer;
  font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: -2px; }
th[aria-sort] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
figure { margin: 1.5rem 0; }
figure > div { overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; }
@media (max-width: 44rem) { figure svg { max-width: none; } thead th { white-space: nowrap; } }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { max-width: 46rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
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
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<header>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="summary">{escape(summary)}</p>',
            *(f"<p>{escape(paragraph)}</p>" for paragraph in about),
            '<nav aria-label="Contents"><ul>',
            *(f'<li><a href="#{escape(name)}">{escape(text)}</a></li>' for name, text in links),
            "</ul></nav>",
            "</header>",
            "<main>",
            '<form class="filter" role="search" hidden><label for="filter">Filter rows</label>',
            '<input id="filter" type="search" autocomplete="off" placeholder="latching minmax">',
            '<output id="shown" for="filter" aria-live="polite"></output></form>',
            *(_table(table) for table in tables),
            '<section id="figures"><h2>Figures</h2>',
            *(_figure(picture) for picture in figures),
            "</section>",
            _table(runs),
            '<section id="manifests"><h2>Manifests</h2>',
            '<p class="note">What each run was made with: the commit of the source (a + marks files changed since), '
            "versions, hardware, date.</p>",
            *(_manifest(record) for group in groups for record in group.records),
            "</section>",
            "</main>",
            f"<script>{SCRIPT}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def inline_svg(svg: str, name: str, label: str) -> str:
    """An SVG file as an element of a page: its ids are made unique by name, its ink and paper are the page's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s*xmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = svg.replace(INK, "currentColor").replace(f"fill: {PAPER}", "fill: none")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).strip()


def _table(table: Table) -> str:
    def kind(column: int) -> str:
        return ' class="word"' if _is_word(table, column) else ""

    head = "".join(
        f'<th scope="col"{kind(column)}><button type="button">{escape(text)}</button></th>'
        for column, text in enumerate(table.head)
    )
    rows = "\n".join(
        "<tr>" + "".join(_cell(cell, n, kind(n)) for n, cell in enumerate(row)) + "</tr>" for row in table.rows
    )
    name = escape(table.name)
    return (
        f'<section id="{name}"><h2 id="{name}-title">{escape(table.title)}</h2>\n'
        f'<p class="note">{escape(table.caption)}</p>\n'
        f'<div class="scroll" role="region" aria-labelledby="{name}-title" tabindex="0">'
        f'<table aria-labelledby="{name}-title">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def _is_word(table: Table, column: int) -> bool:
    """Whether a column is sorted as words."""
    return any(isinstance(row[column].value, str) for row in table.rows)


def _cell(cell: Cell, column: int, kind: str) -> str:
    value = "" if cell.value is None else f' data-value="{escape(str(cell.value))}"'
    if column == 0:
        return f'<th scope="row"{kind}{value}>{escape(cell.text)}</th>'
    return f"<td{kind}{value}>{escape(cell.text)}</td>"


def _figure(picture: Picture) -> str:
    svg = inline_svg(picture.svg, picture.name, picture.title)
    return (
        f'<figure id="{escape(picture.name)}">\n<div tabindex="0">{svg}</div>\n'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _manifest(record: Record) -> str:
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
    shown = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in lines.items()
        if value not in (None, "")
    )
    summary = f"{record['experiment']}, {record['scale']}, batch {record['batch_size']}, seed {record['seed']}"
    return f"<details><summary>{escape(summary)}</summary><dl>{shown}</dl></details>"


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items() if value is not None)
