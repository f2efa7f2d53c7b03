"""A layer as one operation is its parts: the states bit for bit, all else to rounding, on any number of threads."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_cases import assert_close, assert_same
from test_layer_drive import KINDS, make_inputs, make_layer, widen

from latchwork.modules import FeedForward, GatedConv, State, fast_layer
from latchwork.ops import layer as ops
from reset_cases import RESETS

pytestmark = pytest.mark.usefixtures("one_thread")


def run(layer, u, first, state, reset, last):
    return ops.layer(
        u,
        first,
        state,
        reset,
        last,
        layer.neuron.x0,
        fast_layer.Parts.of(layer).weights(),
        fast_layer.Parts.of(layer).options(),
    )


def define(layer, u, first, state, reset, last):
    """By the parts. A state is both first and state."""
    before = None
    if first is not None or state is not None:
        zero, start = u.new_zeros(u.shape[0], u.shape[2]), layer.neuron.x0.expand(u.shape[0], -1)
        before = State(zero if first is None else first, start if state is None else state)
    y, after = layer(u, before, reset=reset, last=last)
    return y, after.x, after.conv


def outputs_and_gradients(function, layer, u, first, state, reset, last, grads):
    given = {"u": u, "first": first, "state": state}
    leaves = {name: each.detach().requires_grad_() for name, each in given.items() if each is not None}
    outputs = function(layer, *({**given, **leaves}.values()), reset, last)
    loss = sum((one * grad).sum() for one, grad in zip(outputs, grads, strict=True) if grad is not None)
    named = leaves | dict(layer.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    names = ("y", "state after", "convolution after")
    return dict(zip((*names, *named), (*(each.detach() for each in outputs), *found), strict=True))


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    torch.set_num_threads(draw(st.integers(1, 3)))
    options = {name: draw(st.sampled_from(each)) for name, each in KINDS.items()}
    D = draw(st.integers(1, 40))
    layer = make_layer(draw(st.integers(1, 40) | st.just(90)), D, **options)
    rows = st.tuples(st.integers(0, 4), st.integers(0, 60)) | st.tuples(st.integers(1, 3), st.integers(95, 500))
    B, T = draw(rows | st.tuples(st.integers(95, 200), st.integers(1, 3)))
    u, first, reset = make_inputs(layer, B, T, draw(st.booleans()), draw(st.sampled_from(RESETS)))
    state = torch.randn(B, D) if draw(st.booleans()) else None
    last = torch.randint(T, (B,)) if T and draw(st.booleans()) else None
    wanted = draw(st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]))
    grads = [
        torch.randn(B, *size) if one else None
        for one, size in zip(wanted, [u.shape[1:], (D,), u.shape[2:]], strict=True)
    ]
    return layer, u, first, state, reset, last, grads


@given(case=cases())
def test_any_layer_and_its_gradients_are_those_of_the_parts(case):
    layer, u, first, state, reset, last, grads = case
    actual = outputs_and_gradients(run, *case)
    u, first, state, *grads = (None if each is None else each.double() for each in (u, first, state, *grads))
    expected = outputs_and_gradients(define, widen(layer), u, first, state, reset, last, grads)
    assert_close(actual, expected, 1e-4)


# d_model and d_state so that 48, 96 and 192 rows are computed at a time.
@pytest.mark.parametrize(("d", "D"), [(33, 21), (250, 180), (530, 500)])
@pytest.mark.parametrize("conv", KINDS["conv"])
def test_a_layer_with_many_weights_and_its_gradients_are_those_of_the_parts(d, D, conv):
    layer = make_layer(d, D, conv=conv, act_fn="swish")
    u, first, reset = make_inputs(layer, 2, 199, True, "random")
    state, last = torch.randn(2, D), torch.randint(199, (2,))
    grads = torch.randn(2, 199, d), torch.randn(2, D), torch.randn(2, d)
    torch.set_num_threads(2)
    actual = outputs_and_gradients(run, layer, u, first, state, reset, last, grads)
    u, first, state, *grads = (each.double() for each in (u, first, state, *grads))
    expected = outputs_and_gradients(define, widen(layer), u, first, state, reset, last, grads)
    assert_close(actual, expected, 1e-4)


@pytest.mark.parametrize(("B", "T"), [(4, 300), (3, 500), (1, 7000), (30, 50)])
def test_a_layer_is_repeated_bit_for_bit_and_its_values_on_any_number_of_threads(B, T):
    """Threads have sequences of their own, or take blocks of 48 rows in turn."""
    layer = make_layer(33, 21)
    u, first, reset = make_inputs(layer, B, T, True, "random")
    case = u, first, torch.randn(B, 21), reset, torch.randint(T, (B,))
    grads = torch.randn(B, T, 33), torch.randn(B, 21), torch.randn(B, 33)
    values, alone = [], outputs_and_gradients(run, layer, *case, grads)
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        twice = [outputs_and_gradients(run, layer, *case, grads) for _ in range(2)]
        assert_same(*twice)
        assert_close(twice[0], alone)
        values.append({name: twice[0][name] for name in ("y", "state after", "convolution after")})
        with torch.no_grad():  # nothing is kept
            assert_same(dict(zip(values[0], run(layer, *case), strict=True)), values[0])
    assert_same(values[0], values[1])
    assert_same(values[0], values[2])


LIMITED = """
import torch
from latchwork import MinMaxRNCConfig, MinMaxRNC
torch.manual_seed(0)
model, u = MinMaxRNC(MinMaxRNCConfig(d_model=8, d_state=5, n_layers=1, ffn_dropout=0.0)), torch.randn(1, 2000, 8)
found = []
for threads in (1, 4):
    torch.set_num_threads(threads)
    y = model(u)[0]
    found.append((y, *torch.autograd.grad(y.square().mean(), list(model.parameters()), materialize_grads=True)))
assert torch.equal(found[0][0], found[1][0])
for one, other in zip(*found):
    torch.testing.assert_close(one, other)
"""


def test_threads_that_wait_for_each_other_end_where_the_system_gives_fewer_than_were_asked_for():
    given = {**os.environ, "OMP_THREAD_LIMIT": "2"}
    assert subprocess.run([sys.executable, "-c", LIMITED], env=given, timeout=300).returncode == 0


def test_chunks_with_the_state_handed_on_are_the_whole_bit_for_bit():
    layer, u, state, parts = make_layer(33, 21), torch.randn(2, 500, 33), None, []
    whole, ending = layer(u)
    for chunk in u.split([100, 96, 33, 271], 1):
        y, state = layer(chunk, state)
        parts.append(y)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert torch.equal(state.x, ending.x)
    assert torch.equal(state.conv, ending.conv)


@pytest.mark.parametrize("what", ["z", "first", "reset", "last", "state"])
def test_the_kernel_refuses_a_tensor_of_another_size(what):
    """In a compiled graph nothing else has compared them."""
    layer, u = make_layer(), torch.randn(3, 13, 7)
    given = dict.fromkeys(["z", "first", "reset", "last", "state"])
    given[what] = torch.zeros(2, 13, 9)
    weights = fast_layer.Parts.of(layer).weights()
    if what == "z":
        weights = ops.Weights(output=weights.output, output_bias=weights.output_bias)
    with pytest.raises(ValueError, match=f"{what} must be .*; got"):
        ops._run(u, *given.values(), layer.neuron.x0, weights, fast_layer.Parts.of(layer).options())


def arguments(mode, layer, *, everything, requires_grad):
    """Of the operation: the whole layer, what comes before its recurrence, or what follows."""
    layer = copy.deepcopy(layer).requires_grad_(requires_grad)
    weights, options = fast_layer.Parts.of(layer).weights(), fast_layer.Parts.of(layer).options()
    u, D = torch.randn(2, 9, 7), layer.neuron.d_state
    z = torch.randn(2, 9, (3 if layer.neuron.output_gate else 2) * D) if mode == "respond" else None
    first = torch.randn(2, 7) if everything and mode != "respond" else None
    state = torch.randn(2, D) if everything and mode != "drive" else None
    reset, last = (torch.rand(2, 9) < 0.3, torch.tensor([8, 3])) if everything else (None, None)
    for each in (u, z, first, state):
        if each is not None:
            each.requires_grad_(requires_grad)
    x0 = None if mode == "drive" else layer.neuron.x0
    if mode == "drive":
        weights = weights._replace(output=None, output_bias=None)
    if mode == "respond":
        weights = ops.Weights(output=weights.output, output_bias=weights.output_bias)
    seed = torch.tensor(7) if everything else None
    options = options._replace(dropout=0.3 if everything else 0.0)
    return u, z, first, reset, last, state, x0, seed, *weights, *options


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("mode", ["layer", "drive", "respond"])
def test_the_layer_is_what_torch_asks_of_an_operation(mode, everything):
    """Schema, fake and gradient agree, with all optional inputs and with none."""
    options = {} if everything else {"norm_type": "none", "conv": GatedConv, "ffn": FeedForward, "output_gate": False}
    layer, names = make_layer(**options), torch.ops.latchwork
    given = {"everything": everything}
    torch.library.opcheck(names.layer.default, (*arguments(mode, layer, **given, requires_grad=True), True))
    with torch.no_grad():
        plain = arguments(mode, layer, **given, requires_grad=False)
        torch.library.opcheck(names.layer.default, (*plain, False))
        out, x, v, tape = names.layer(*plain, True)
    grads = (
        torch.randn_like(out),
        torch.randn_like(x) if mode != "drive" else None,
        torch.randn_like(v) if mode != "respond" else None,
    )
    torch.library.opcheck(names.layer_backward.default, (*grads, tape, *plain))
