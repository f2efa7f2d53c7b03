"""What is seen while a model trains."""

import pytest

CELL = """
from latchwork.training.display import Display
from latchwork.training.engine import Progress

with Display("a < b") as display:
    for step in range(1, 6):
        display.watch(Progress(step, step, 5, 2.5, 6e-4, 1.25, 12345.6))
    display.tell("a line")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_shows_one_bar_that_ends_at_the_last_step():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(book, kernel_name="python3", timeout=120).execute()
    bar, told = book.cells[0].outputs
    shown = bar["data"]["text/html"]
    assert shown.startswith('a &lt; b <progress value="5" max="5"></progress> loss 2.5000')
    assert told["data"]["text/plain"] == "a line\n"
