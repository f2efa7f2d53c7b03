import pytest
import torch

from latchwork import use_backend, zoo
from latchwork.automata import Machine
from latchwork.automata.certify import Proof, certify
from latchwork.tasks import IGNORE, make_task


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_of_the_zoo_is_proved_right_again(name):
    record = zoo.proof(name)
    task = make_task(record["task"])
    found = certify(zoo.load(name), Machine.from_task(task), no_answer=task.vocabulary)
    assert isinstance(found, Proof)
    assert found.precision == record["precision"] == "float32"
    assert found.tolerance == record["tolerance"] == 0
    assert found.bound == pytest.approx(record["bound"], rel=1e-3)
    assert found.states == record["states"]
    assert found.margin == pytest.approx(record["margin"])


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_of_the_zoo_answers_long_sequences_of_its_task(name):
    task = make_task(zoo.proof(name)["task"])
    tokens, targets = task.sample("evaluation", 0, 2, 20_000)
    with torch.no_grad():
        said = zoo.load(name)(tokens)[0].argmax(-1)
    assert (said == targets)[targets != IGNORE].all()


def step_by_step(model, tokens):
    state, pieces = None, []
    for t in range(tokens.shape[1]):
        logits, state = model(tokens[:, t : t + 1], state)
        pieces.append(logits)
    return torch.cat(pieces, 1)


def with_backend(name):
    def run(model, tokens):
        with use_backend(name):
            return model(tokens)[0]

    return run


MODES = {
    "at once": lambda model, tokens: model(tokens)[0],
    "step by step": step_by_step,
    "in chunks": lambda model, tokens: model(tokens, chunk_size=7)[0],
    "one row at a time": lambda model, tokens: torch.cat([model(row[None])[0] for row in tokens]),
    "by the definition": with_backend("reference"),
    "by a parallel scan": with_backend("torch"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["latching-4", "fflm", "sequences-2"])
def test_every_way_to_run_it_stays_within_the_bound_of_its_proof(name, mode, threads):
    torch.set_num_threads(threads)
    record, model = zoo.proof(name), zoo.load(name)
    tokens, targets = make_task(record["task"]).sample("train", 0, 33, 150)
    with torch.no_grad():
        exact = model.double()(tokens)[0]
        logits = MODES[mode](zoo.load(name), tokens)
    assert logits.dtype == torch.float32
    assert (logits.double() - exact).abs().max() <= record["bound"]
    assert (logits.argmax(-1) == targets)[targets != IGNORE].all()


def test_an_unknown_name_is_named():
    with pytest.raises(ValueError, match=r"name must be one of fflm, .*; got 'tiger'"):
        zoo.load("tiger")
