"""A page to explore networks with: one file, no network connection, every step computed in the page itself."""

from latchwork.reports.explore.page import make_page
from latchwork.reports.explore.subject import network_subject, regex_subject, zoo_subject

__all__ = ["make_page", "network_subject", "regex_subject", "zoo_subject"]
