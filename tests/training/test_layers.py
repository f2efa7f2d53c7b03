"""What training stands on does not import it."""

import re
from pathlib import Path

import pytest

import latchwork

SOURCE = Path(latchwork.__file__).parent
BELOW = ("automata", "baselines", "data", "evaluation", "models", "modules", "ops", "tasks")
ABOVE = re.compile(r"^\s*(?:from|import) latchwork\.(training|experiments|reports|cli)\b", re.MULTILINE)


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_below_training_imports_nothing_above_it(folder):
    found = {path.name: ABOVE.findall(path.read_text()) for path in (SOURCE / folder).rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


def test_there_is_one_place_where_a_model_is_trained():
    places = [path for path in (SOURCE / "training").rglob("*.py") if ".backward()" in path.read_text()]
    assert [path.name for path in places] == ["engine.py"]
    for folder in (*BELOW, "experiments", "zoo", "cli"):
        for path in (SOURCE / folder).rglob("*.py"):
            assert ".backward()" not in path.read_text(), path
