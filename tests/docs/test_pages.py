"""What README and documentation say: their Python runs, their links lead somewhere, the tests they name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "studies").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]


def names(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.slow
def test_the_python_of_the_readme_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.S):
        exec(compile(block, "README.md", "exec"), found)
    assert "proved" in capsys.readouterr().out


def test_the_readme_is_one_screen_and_links():
    assert len(README.read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_link_to_a_file_leads_to_one(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_test_that_is_named_exists(page):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
