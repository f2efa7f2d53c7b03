"""One name chooses the backend of everything in a model, and a name that cannot run is an error everywhere."""

import pytest
import torch
from model_cases import assert_same_gradients, assert_same_run, gradients, make_model, make_tokens

from latchwork import minmax_scan, use_backend
from latchwork.models import token_pairs
from latchwork.models.int8 import quantize_int8
from latchwork.ops import dispatch
from latchwork.ops.choice import choose_rows
from latchwork.ops.cross_entropy import linear_cross_entropy
from latchwork.ops.matvec import int8_linear, linear
from latchwork.ops.temporal import latch, window
from latchwork.temporal import parse
from seen_operations import seen_operations

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="triton runs here")
VARIANTS = {
    "scalars": {},
    "matrices": {"degree": 3},
    "selection": {"degree": 3, "reset_form": "selection"},
    "transformation": {"degree": 3, "reset_form": "transformation"},
}


def evaluate(model, tokens):
    with torch.no_grad():
        return model(tokens)


def decode(model, tokens):
    return model.generate(tokens[:, :3], 2, temperature=0)


WAYS = {  # what is done with a model
    "training": lambda model, tokens: model(tokens),
    "evaluation": evaluate,
    "loss": lambda model, tokens: model.loss(tokens, tokens),
    "validation": torch.no_grad()(lambda model, tokens: model.loss(tokens, tokens)),
    "decoding": decode,
    "one step": lambda model, tokens: evaluate(model, tokens[:1, :1]),
    "in pieces": lambda model, tokens: model(tokens, chunk_size=7),
    "token pairs": lambda model, tokens: token_pairs.first_drives(model, tokens.repeat(2, 20), None, None),
    "int8": lambda model, tokens: evaluate(quantize_int8(model), tokens),
    "decoding in int8": lambda model, tokens: decode(quantize_int8(model), tokens),
}
PARTS = {  # operations that a model is not made of, or that it need not reach
    "the head and its loss": lambda: linear_cross_entropy(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(2).long()),
    "a linear map": lambda: linear(torch.zeros(1, 128), torch.zeros(128, 128)),
    "one in int8": lambda: int8_linear(torch.zeros(1, 3), torch.zeros(3, 3, dtype=torch.int8), torch.ones(3, 1)),
    "a choice": lambda: choose_rows(torch.zeros(2, 3)),
    "a window": lambda: window(torch.zeros(2, 3), -1, 0),
    "a latch": lambda: latch(torch.zeros(2, 3), torch.zeros(2, 3)),
    "a monitor": lambda: parse("x since y").online(),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", ["reference", "torch", "cpu"])
def test_every_backend_gives_the_same_logits_states_and_gradients(backend, variant):
    model, tokens = make_model(5, **VARIANTS[variant], dtype=torch.float32).train(), make_tokens(3, 40, 5)
    expected = model(tokens)
    wanted = gradients(model, expected[0].square().mean())
    with use_backend(backend):
        found = model(tokens)
        assert_same_run(found, expected, 1e-5)
        assert_same_gradients(gradients(model, found[0].square().mean()), wanted, 1e-3)
        assert_same_run(evaluate(model.eval(), tokens), expected, 1e-5)


@no_gpu
@pytest.mark.parametrize("way", WAYS)
def test_a_backend_that_cannot_run_is_an_error_in_all_that_a_model_does(way):
    for variant in VARIANTS.values():
        model, tokens = make_model(5, **variant, dtype=torch.float32), make_tokens(3, 40, 5)
        with use_backend("triton"), pytest.raises(ValueError, match="backend 'triton' cannot run: "):
            WAYS[way](model, tokens)


@no_gpu
@pytest.mark.parametrize("part", PARTS)
def test_a_backend_that_cannot_run_is_an_error_in_every_operation(part):
    for name in ("auto", "reference", "torch", "cpu"):
        with use_backend(name):
            PARTS[part]()
    with use_backend("triton"), pytest.raises(ValueError, match="backend 'triton' cannot run: "):
        PARTS[part]()


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_and_evaluation_take_the_same_path_to_the_same_bits(variant):
    model, tokens = make_model(50, **VARIANTS[variant], dtype=torch.float32), make_tokens(3, 40, 50)
    with seen_operations(every=True) as trained:
        expected = model.loss(tokens, tokens)
    with torch.no_grad(), seen_operations(every=True) as evaluated:
        found = model.loss(tokens, tokens)
    assert trained == evaluated != []
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].x, expected[1].x)


def test_the_definition_has_second_derivatives():
    model, tokens = make_model(5, dtype=torch.float32).train(), make_tokens(3, 40, 5)
    with use_backend("reference"):
        loss = model(tokens)[0].square().mean()
        (grad,) = torch.autograd.grad(loss, model.embedding.weight, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), model.embedding.weight)
    assert second.abs().sum() > 0


def test_the_name_reaches_a_scan_and_its_own_argument_comes_first():
    r, s, x0 = torch.randn(2, 5, 3), torch.randn(2, 5, 3), torch.zeros(3)
    expected = minmax_scan(r, s, x0)
    with use_backend("triton"):
        for name in ("torch", "cpu", "reference"):
            assert torch.equal(minmax_scan(r, s, x0, backend=name), expected)
        if not torch.cuda.is_available():
            with pytest.raises(ValueError, match="backend 'triton' cannot run: "):
                minmax_scan(r, s, x0)


def fail():
    raise RuntimeError(f"on purpose, within {dispatch.asked_for()}")


def test_a_name_holds_within_its_block_and_ends_with_it_even_by_an_error():
    model, tokens = make_model(50, dtype=torch.float32), make_tokens(3, 40, 50)
    with use_backend("torch"):
        with pytest.raises(RuntimeError, match="within cpu"), use_backend("cpu"):
            fail()
        assert (dispatch.asked_for(), dispatch.asked_for("reference")) == ("torch", "reference")
        with seen_operations() as seen:
            model(tokens)
        assert seen == []
        with use_backend("auto"), seen_operations() as seen:
            model(tokens)
        assert "layer" in seen
    assert dispatch.asked_for() == "auto"


def test_an_unknown_name_lists_those_there_are():
    with (
        pytest.raises(ValueError, match="backend 'gpu' is unknown; there are auto, reference, torch, cpu, triton"),
        use_backend("gpu"),
    ):
        pass
