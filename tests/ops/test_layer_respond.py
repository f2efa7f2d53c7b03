"""Recurrence, gate, output and residual by the kernel: the scan's states bit for bit, all else to rounding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_cases import LAYOUTS, assert_close, assert_same
from scan_cases import assert_same_states, continuous, extreme, tied, with_nan

from latchwork import MinMaxNeuron, minmax_scan
from latchwork.modules.sequences import at_step
from latchwork.ops import layer as ops
from reset_cases import RESETS, make_reset

pytestmark = pytest.mark.usefixtures("one_thread")

each_gate = pytest.mark.parametrize("gated", [False, True])
LEAVES = ("u", "z", "state", "x0", "weight", "bias")


def make_case(B=3, T=13, d=7, D=8, *, gated=True, reset="never", carried=False, early=False, draw=continuous):
    """The arguments of `layer_respond`, by name."""
    return {
        "u": torch.randn(B, T, d),
        "z": draw(B, T, (3 if gated else 2) * D),
        "state": draw(B, D) if carried else None,
        "reset": make_reset(reset, B, T),
        "last": torch.randint(T, (B,)) if early and T else None,
        "x0": draw(D),
        "weight": torch.randn(d, D) / D**0.5,
        "bias": torch.randn(d),
        "gated": gated,
    }


def define_response(u, z, state, reset, last, x0, weight, bias, gated):
    """y = u + what `MinMaxNeuron.respond` gives, and the state after step last."""
    neuron = MinMaxNeuron(u.shape[2], len(x0), output_gate=gated)
    for part, name, value in [(neuron, "x0", x0), (neuron.output, "weight", weight), (neuron.output, "bias", bias)]:
        delattr(part, name)
        setattr(part, name, value)  # the leaf itself, so that its gradient can be asked for
    y, x = neuron.respond(z, state, reset, last)
    return u + y, x


def every_state(case):
    """Every state that the kernel computes: it keeps them for the gradient, and nothing else."""
    case = {**case, "z": case["z"].clone().requires_grad_()}
    y, _ = ops.layer_respond(**case)
    (B, T, _), D = case["u"].shape, len(case["x0"])
    tape = next(each for each in y.grad_fn.saved_tensors if each is not None)
    return tape[:, :D].view(B, T, D)


def make_grads(case, of_y=True, of_state=True):
    (B, T, d), D = case["u"].shape, len(case["x0"])
    return torch.randn(B, T, d) if of_y else None, torch.randn(B, D) if of_state else None


def response_and_gradients(function, case, grads):
    """Results, and the gradients of all that may have one, by name; grads: of y and of the last state, or None."""
    leaves = {name: case[name].detach().requires_grad_() for name in LEAVES if case[name] is not None}
    y, x = function(**{**case, **leaves})
    loss = sum((one * grad).sum() for one, grad in zip((y, x), grads, strict=True) if grad is not None)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"y": y.detach(), "state after": x.detach(), **dict(zip(leaves, found, strict=True))}


def scan(case):
    D = len(case["x0"])
    r, s = case["z"][..., :D], case["z"][..., D : 2 * D]
    return minmax_scan(r, s, case["x0"], state=case["state"], reset=case["reset"], backend="reference")


@st.composite
def responses(draw):
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    torch.set_num_threads(draw(st.integers(1, 3)))
    rows = st.tuples(st.integers(0, 4), st.integers(0, 60)) | st.tuples(st.integers(1, 3), st.integers(95, 300))
    return make_case(
        *draw(rows),
        draw(st.integers(1, 40) | st.just(90)),
        draw(st.integers(1, 41)),
        gated=draw(st.booleans()),
        reset=draw(st.sampled_from(RESETS)),
        carried=draw(st.booleans()),
        early=draw(st.booleans()),
        draw=draw(st.sampled_from([continuous, tied])),
    )


@given(case=responses(), of_y=st.booleans(), of_state=st.booleans())
def test_any_response_and_its_gradients_are_those_of_the_neuron(case, of_y, of_state):
    grads = make_grads(case, of_y or not of_state, of_state)
    actual = response_and_gradients(ops.layer_respond, case, grads)
    wide = {name: each.double() if name in LEAVES and each is not None else each for name, each in case.items()}
    grads = [None if each is None else each.double() for each in grads]
    if case["u"].numel():
        assert_same_states(actual["state after"], at_step(scan(case), case["last"]))
    assert_close(actual, response_and_gradients(define_response, wide, grads), 1e-5)


@each_gate
@pytest.mark.parametrize("draw", [extreme, with_nan])
def test_states_are_those_of_the_scan_bit_for_bit_whatever_the_data(draw, gated):
    for carried in (False, True):
        case = make_case(2, 65, 5, 9, gated=gated, reset="random", carried=carried, draw=draw)
        assert_same_states(every_state(case), scan(case))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "shifted"])
def test_strides_of_the_inputs_of_a_response_and_of_its_gradients_do_not_matter(layout):
    for name in (*LEAVES, "reset", "last", "incoming gradients"):
        case = make_case(reset="random", carried=True, early=True)
        grads = make_grads(case)
        if name == "incoming gradients":
            grads = tuple(LAYOUTS[layout](each) for each in grads)
        else:
            case[name] = LAYOUTS[layout](case[name])
        plain = {key: each.contiguous() if isinstance(each, torch.Tensor) else each for key, each in case.items()}
        actual = response_and_gradients(ops.layer_respond, case, grads)
        assert_same(actual, response_and_gradients(ops.layer_respond, plain, tuple(a.contiguous() for a in grads)))


def gate_of(logits):
    """What the kernel makes of the gate's logits (N,): y where the state is 1, the output the identity and u 0."""
    N = len(logits)
    z = torch.cat((torch.full((N,), -9.0), torch.ones(N), logits)).view(1, 1, 3 * N).expand(1, 2, 3 * N)
    u, nothing = torch.zeros(1, 2, N), torch.zeros(N)
    return ops.layer_respond(u, z, None, None, None, nothing, torch.eye(N), nothing, True)[0][0, 0]


def test_the_gate_is_the_sigmoid_within_two_units_in_the_last_place():
    logits = torch.cat((torch.linspace(-87, 87, 601), torch.randn(400) * 1e-3, torch.tensor([0.0, -0.0])))
    for part in logits.split(100):
        exact = torch.sigmoid(part.double())
        unit = torch.nextafter(exact.float(), torch.tensor(2.0)).double() - exact.float().double()
        assert ((gate_of(part).double() - exact).abs() / unit).max() <= 2


def test_the_gate_at_the_ends_and_at_a_nan():
    logits = torch.tensor([100.0, -100.0, 0.0, torch.inf, -torch.inf, 3e38, -3e38, torch.nan])
    found = torch.cat([gate_of(each.view(1)) for each in logits])
    assert found[:-1].tolist() == pytest.approx([1, 0, 0.5, 1, 0, 1, 0], abs=1e-37)
    assert found[-1].isnan()
    case = make_case(1, 4, 5, 6)
    case["z"][..., 12:] = torch.tensor([100.0, -100.0, torch.inf, -torch.inf, 3e38, -3e38])
    gradients = response_and_gradients(ops.layer_respond, case, make_grads(case, of_state=False))
    assert gradients["z"][..., 12:].abs().max() < 1e-30


def test_a_nan_in_a_gate_reaches_its_own_step_and_no_other():
    case = make_case(2, 100, 5, 6)
    case["z"][1, 95, 14] = torch.nan
    y, x = ops.layer_respond(**case)
    expected = torch.zeros(2, 100, dtype=torch.bool)
    expected[1, 95] = True
    assert torch.equal(y.isnan().all(-1), expected)
    assert torch.equal(y.isnan().any(-1), expected)
    assert not x.isnan().any()


@each_gate
def test_a_response_is_repeated_bit_for_bit_and_its_values_on_any_number_of_threads(gated):
    case = make_case(3, 500, 7, 9, gated=gated, reset="random")
    grads, values = make_grads(case), []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        twice = [response_and_gradients(ops.layer_respond, case, grads) for _ in range(2)]
        assert_same(*twice)
        values.append({name: twice[0][name] for name in ("y", "state after")})
    assert_same(values[0], values[1])
    assert_same(values[0], values[2])


def test_a_gradient_of_a_response_is_the_same_when_no_other_is_wanted():
    case = make_case(reset="random", carried=True)
    grads = make_grads(case)
    expected = response_and_gradients(ops.layer_respond, case, grads)
    for wanted in LEAVES:
        leaf = case[wanted].detach().requires_grad_()
        y, x = ops.layer_respond(**{**case, wanted: leaf})
        outputs = [(y, grads[0]), (x, grads[1])] if wanted in ("z", "state", "x0") else [(y, grads[0])]
        (found,) = torch.autograd.grad([each for each, _ in outputs], leaf, [grad for _, grad in outputs])
        torch.testing.assert_close(found, expected[wanted], msg=lambda text, wanted=wanted: f"{wanted}: {text}")


# ---- As an operation of torch; test_layer_operation.py has more.


def test_a_second_derivative_of_a_response_is_a_clear_error():
    case = make_case()
    case["z"].requires_grad_()
    (first,) = torch.autograd.grad(ops.layer_respond(**case)[0].sum(), case["z"], create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivative.*use_backend"):
        first.sum().backward()


def test_changing_an_input_of_a_response_in_between_is_found_out():
    case = make_case()
    case["z"] = case["z"].requires_grad_() * 1
    y, _ = ops.layer_respond(**case)
    case["z"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
