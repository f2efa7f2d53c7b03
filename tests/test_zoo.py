import pytest
import torch

from latchwork import zoo
from latchwork.automata import Machine
from latchwork.automata.certify import Proof, certify
from latchwork.tasks import IGNORE, make_task


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_of_the_zoo_is_proved_right_again(name):
    record = zoo.proof(name)
    task = make_task(record["task"])
    found = certify(zoo.load(name), Machine.from_task(task), no_answer=task.vocabulary, tolerance=record["tolerance"])
    assert isinstance(found, Proof)
    assert found.states == record["states"]
    assert found.margin == pytest.approx(record["margin"])


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_of_the_zoo_answers_long_sequences_of_its_task(name):
    task = make_task(zoo.proof(name)["task"])
    tokens, targets = task.sample("evaluation", 0, 2, 20_000)
    with torch.no_grad():
        said = zoo.load(name)(tokens)[0].argmax(-1)
    assert (said == targets)[targets != IGNORE].all()


def test_an_unknown_name_is_named():
    with pytest.raises(ValueError, match=r"name must be one of fflm, .*; got 'tiger'"):
        zoo.load("tiger")
