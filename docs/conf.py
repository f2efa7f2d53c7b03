"""Sphinx: pages in Markdown, executed by myst-nb; a warning is an error (`make docs`)."""

import re
from importlib.metadata import version as installed
from typing import Any

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


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain)


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
