"""Sphinx: pages in Markdown, executed by myst-nb; a warning is an error (`make docs`)."""

from importlib.metadata import version as installed

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

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_preserve_defaults = True

html_theme = "sphinx_book_theme"
html_title = "latchwork"
html_static_path = ["_static"]
html_theme_options = {"show_toc_level": 2, "use_fullscreen_button": False, "use_download_button": False}
