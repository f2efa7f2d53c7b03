"""Sphinx: pages in Markdown, executed by myst-nb; a warning is an error (`make docs`)."""

import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

project = "latchwork"
author = copyright = "The latchwork developers"
version = release = installed("latchwork")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "gfm"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_preserve_defaults = True

# Pages of the studies link to files that are no pages; tests/docs follows every link.
suppress_warnings = ["myst.xref_missing"]
default_role = "code"


def plain(app: object, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: their stars and bars mean themselves. Examples stay as they are."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else re.sub(r"[*|]|_(?=\W|$)", r"\\\g<0>", line)
        for line in lines
    ]


NAMED = re.compile(r"`(tests/[\w/]+\.py)::test_(\w+)`")  # a test, as pages name it


def link_tests(app: Any, page: str, source: list[str]) -> None:
    """Where a page names a test, link to its code, which the page of tests shows."""
    if page != "explanations/tests":
        source[0] = NAMED.sub(lambda test: f"[{test[2].replace('_', ' ')}](#{test[2]})", source[0])
        return
    pages = [Path(app.env.doc2path(each)).read_text() for each in sorted(app.env.found_docs)]
    for path, name in dict.fromkeys(test for text in pages for test in NAMED.findall(text)):
        source[0] += (
            f"\n({name})=\n## {name.replace('_', ' ').capitalize()}\n\n"
            f"```{{literalinclude}} ../../{path}\n:pyobject: test_{name}\n:caption: {path}\n```\n"
        )


def formula(translator: Any, node: nodes.math | nodes.math_block) -> None:
    """A formula as MathML, which browsers draw themselves: pages need no connection and no script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    translator.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_tests)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", plain)


html_math_renderer = "mathml"
html_theme = "sphinx_book_theme"
html_title = "latchwork"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {
    "show_toc_level": 2,
    "use_fullscreen_button": False,
    "use_download_button": False,
    "navbar_persistent": [],
}
