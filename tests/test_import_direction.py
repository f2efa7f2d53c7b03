"""Folders import those above them in one order, so that there is no cycle. Files are read, not imported."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "latchwork"
# From the bottom up: a folder, or a single file, may import what stands before it, and itself. This is the one table to
# edit when a folder is added, moved or renamed; a name that is not there (yet) does no harm.
ORDER = (
    "extras", "errors", "files", "markup", "tensor_files", "run_lock", "seeds", "signals", "config_reader",
    "differences",
    "ops", "modules", "models", "zoo", "temporal", "machines", "tasks", "baselines", "selfcheck", "load", "data",
    "evaluation", "automata", "training", "learning", "interop", "experiments", "reports", "cli", "__main__",
)  # fmt: skip


def imports(path):
    """The folders of latchwork that a file imports, anywhere in it, but for what only type checkers read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            if parts == ["latchwork"]:
                yield from (alias.name for alias in node.names if alias.name in ORDER)
            elif parts[0] == "latchwork":
                yield parts[1]
        elif isinstance(node, ast.Import):
            yield from (
                name.split(".")[1] for name in (each.name for each in node.names) if name.startswith("latchwork.")
            )


def graph():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.setdefault(folder, {})
        for target in imports(path):
            found[folder].setdefault(target, path.relative_to(PACKAGE).as_posix())
    found.pop("__init__")  # it imports when it is asked
    return found


def test_every_folder_has_a_place_in_the_order():
    folders = graph()
    assert set(folders) <= set(ORDER), f"put into ORDER: {sorted(set(folders) - set(ORDER))}"


def test_a_folder_imports_only_what_stands_before_it():
    wrong = {
        (folder, target): file
        for folder, targets in graph().items()
        for target, file in targets.items()
        if target in ORDER and ORDER.index(target) > ORDER.index(folder)
    }
    assert not wrong, f"these imports go upwards: {wrong}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import latchwork.ops.scan", {"ops"}),
        ("from latchwork import zoo, State", {"zoo"}),
        ("def f():\n    from latchwork.cli import main", {"cli"}),
        ("if TYPE_CHECKING:\n    from latchwork.tasks import Task", set()),
        ("from torch import ops", set()),
    ],
)
def test_imports_are_seen_wherever_they_stand(text, found, tmp_path):
    (tmp_path / "file.py").write_text(text)
    assert set(imports(tmp_path / "file.py")) == found


def test_gradient_steps_are_taken_in_one_place():
    takes_steps = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "loss.backward()" in path.read_text().replace(">>> loss.backward()", "")
        or ").backward()" in path.read_text()
    }
    assert takes_steps == {"training/engine.py"}
