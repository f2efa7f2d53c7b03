"""A compiled model is one graph for all lengths, keeps the layer's operations in it, and equals eager."""

import shutil
from collections import Counter

import pytest
import torch
from functorch.compile import make_boxed_func
from model_cases import (
    VARIANTS,
    assert_same_gradients,
    assert_same_run,
    gradients,
    make_model,
    make_state,
    make_tokens,
    pairs_were_used,
    watched_pairs,
)
from torch._dynamo.backends.common import aot_autograd

from latchwork import use_backend
from reset_cases import make_reset

pytestmark = pytest.mark.usefixtures("fresh_compiler")


class Recorder:
    """A backend that runs its graphs as they are. graphs: of each, forward or backward, how often it has which of our
    operations.
    """

    def __init__(self):
        self.graphs = []
        self.compile = aot_autograd(fw_compiler=self.record, bw_compiler=self.record)

    def record(self, graph, inputs):
        names = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        self.graphs.append(Counter(name.split(".")[1] for name in names if name.startswith("latchwork.")))
        return make_boxed_func(graph.forward)

    def __call__(self, graph, inputs):
        return self.compile(graph, inputs)


def make_step(model):
    """A function of tokens, targets, state and reset: everything that a training step needs of the model."""

    def step(tokens, targets, state, reset):
        loss, after = model.loss(tokens, targets, state, reset=reset)
        return loss + after.x.square().mean(), after

    return step


def assert_steps_agree(model, compiled, B, T, vocab_size, tolerance=1e-5):
    tokens, state, reset = make_tokens(B, T, vocab_size), make_state(model, B), make_reset("random", B, T)
    found = []
    for run in (compiled, make_step(model)):
        loss, after = run(tokens, tokens.flip(1), state, reset)
        found.append(((loss.reshape(1), after), gradients(model, loss)))
    assert_same_run(found[0][0], found[1][0], tolerance)
    assert_same_gradients(found[0][1], found[1][1], 10 * tolerance)


def test_one_graph_keeps_the_operations_of_the_layer_for_every_length_and_batch():
    model = make_model(50, n_layers=1, dtype=torch.float32).train()
    recorder = Recorder()
    compiled = torch.compile(make_step(model), fullgraph=True, dynamic=True, backend=recorder)
    for B, T in [(3, 17), (2, 33), (7, 40)]:
        assert_steps_agree(model, compiled, B, T, 50)
    forward, backward = recorder.graphs
    assert (forward["layer"], backward["layer_backward"]) == (1, 1)
    assert (forward["linear_cross_entropy"], backward["linear_cross_entropy_backward"]) == (1, 1)
    assert forward["minmax_scan"] == 0


@pytest.mark.slow
def test_without_gradients_and_of_one_token_a_graph_equals_eager():
    model, recorder = make_model(50, n_layers=1, dtype=torch.float32), Recorder()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=recorder)
    with torch.no_grad():
        tokens = make_tokens(2, 9, 50)
        assert_same_run(compiled(tokens), model(tokens), 1e-5)
        state = expected = model.initial_state(2)
        for token in make_tokens(2, 4, 50).split(1, 1):
            logits, state = compiled(token, state)
            plain, expected = model(token, expected)
            assert_same_run((logits, state), (plain, expected), 1e-5)
    assert all(graph["layer"] == 1 for graph in recorder.graphs)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gated conv, basic ffn", "degree 3, levels", "extra units"])
def test_a_compiled_training_step_of_other_kinds_equals_eager(variant):
    model = make_model(50, **VARIANTS[variant], n_layers=1, dtype=torch.float64).train()
    compiled = torch.compile(make_step(model), fullgraph=True, backend="aot_eager")
    assert_steps_agree(model, compiled, 2, 7, 50, 1e-9)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_small_vocabulary_has_its_pairs_in_the_graph(dynamic):
    model, recorder = make_model(3, n_layers=1, dtype=torch.float32).train(), Recorder()
    compiled = torch.compile(make_step(model), fullgraph=True, dynamic=dynamic, backend=recorder)
    with watched_pairs() as seen:
        assert_steps_agree(model, compiled, 2, 40, 3)
    assert pairs_were_used(seen[:1])
    assert recorder.graphs[0]["layer"] == 3  # the drives of all pairs, those of the first step, and what follows


def test_dropout_in_a_graph_is_drawn_anew_and_follows_the_seed():
    model = make_model(50, n_layers=1, prelayers_dropout=0.5, dtype=torch.float32).train()
    compiled = torch.compile(model, fullgraph=True, backend=Recorder())
    tokens, results = make_tokens(2, 30, 50), []
    for _ in range(2):
        torch.manual_seed(3)
        results.append((compiled(tokens)[0].detach(), compiled(tokens)[0].detach()))
    assert torch.equal(results[0][0], results[1][0])
    assert not torch.equal(*results[0])


def test_the_backend_asked_for_is_that_of_the_graph():
    model, recorder = make_model(50, n_layers=1, dtype=torch.float32), Recorder()
    compiled, tokens = torch.compile(model, fullgraph=True, backend=recorder), make_tokens(2, 30, 50)
    with torch.no_grad():
        compiled(tokens)
        with use_backend("torch"):
            assert_same_run(compiled(tokens), model(tokens), 1e-5)
    assert [graph["layer"] for graph in recorder.graphs] == [1, 0]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of torch to itself, when inductor is first imported
def test_inductor_gives_the_loss_and_the_gradients_of_eager():
    model = make_model(50, n_layers=1, train_init=True, dtype=torch.float32).train()
    compiled = torch.compile(make_step(model), fullgraph=True, dynamic=True)
    for B, T in [(2, 20), (3, 31)]:
        assert_steps_agree(model, compiled, B, T, 50)
