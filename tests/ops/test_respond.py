"""Recurrence, gate, output and residual by the kernel: the scan's states bit for bit, all else to rounding."""

import itertools

import pytest
import torch
from hypothesis import given
from respond_cases import make_grads, random_cases, values_and_gradients
from scan_cases import DRAWS, RESETS, assert_same_states, continuous, make_reset

from latchwork import MinMaxNeuron, minmax_scan
from latchwork.ops.respond import respond

LEAVES = ("u", "z", "state", "x0", "weight", "bias")


@pytest.fixture(autouse=True)
def _one_thread(_settings):
    """Threads that wait for one another on a busy machine take longer than these small cases; some tests want more."""
    torch.set_num_threads(1)


def make_case(B=3, T=13, d=7, D=8, *, gated=True, reset="never", carried=False, draw=continuous, blur=0.0):
    """The arguments of `respond`, by name."""
    return {
        "u": torch.randn(B, T, d),
        "z": draw(B, T, (3 if gated else 2) * D),
        "x0": draw(D),
        "state": draw(B, D) if carried else None,
        "reset": make_reset(reset, B, T),
        "weight": torch.randn(d, D) / D**0.5,
        "bias": torch.randn(d),
        "gated": gated,
        "blur": blur,
    }


def define(u, z, x0, state, reset, weight, bias, gated, blur):
    """y = u + what `MinMaxNeuron.recur` gives, and every state."""
    neuron = MinMaxNeuron(u.shape[2], len(x0), output_gate=gated, blur=blur)
    for part, name, value in [(neuron, "x0", x0), (neuron.output, "weight", weight), (neuron.output, "bias", bias)]:
        delattr(part, name)
        setattr(part, name, value)  # the leaf itself, so that its gradient can be asked for
    return u + neuron.recur(z, state, reset=reset)[0], neuron.states(z, state, reset=reset)


def widen(case):
    return {name: each.double() if name in LEAVES and each is not None else each for name, each in case.items()}


def assert_equals_definition(case, *, of_y=True, of_states=True, tolerance=1e-6):
    grads = make_grads(case, of_y, of_states)
    actual = values_and_gradients(respond, case, grads, LEAVES)
    wide = [None if each is None else each.double() for each in grads]
    expected = values_and_gradients(define, widen(case), wide, LEAVES)
    D = len(case["x0"])
    r, s = case["z"][..., :D], case["z"][..., D : 2 * D]
    scanned = minmax_scan(r, s, case["x0"], state=case["state"], reset=case["reset"], backend="reference")
    assert_same_states(actual["states"], scanned)
    for name in actual:
        one, other = actual[name].double(), expected[name]
        scale = max(1.0, other.abs().max().item() if other.numel() else 1.0)
        allowed = {"atol": tolerance * (1 if name in ("y", "states") else 10) * scale, "rtol": 0}
        torch.testing.assert_close(one, other, **allowed, msg=lambda text, name=name: f"{name}: {text}")


both_gates = pytest.mark.parametrize("gated", [False, True])


@both_gates
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("reset", RESETS)
def test_values_and_gradients_equal_the_definition(reset, carried, gated):
    for of_y, of_states in [(True, True), (True, False), (False, True)]:
        case = make_case(gated=gated, reset=reset, carried=carried)
        assert_equals_definition(case, of_y=of_y, of_states=of_states)


@both_gates
@pytest.mark.parametrize("T", [1, 2, 65])
@pytest.mark.parametrize("reset", RESETS)
def test_a_blurred_gradient_equals_the_definition(reset, T, gated):
    assert_equals_definition(make_case(T=T, gated=gated, reset=reset, carried=True, blur=0.5))


@both_gates
@pytest.mark.parametrize("D", [1, 8, 40, 41])
@pytest.mark.parametrize("d", [1, 7, 16, 90])
def test_every_width_equals_the_definition(d, D, gated):
    assert_equals_definition(make_case(d=d, D=D, gated=gated, reset="random", carried=True))


@both_gates
@pytest.mark.parametrize(
    ("B", "T"), [(1, 1), (1, 2), (5, 1), (1, 95), (1, 96), (1, 97), (97, 1), (2, 48), (1, 193), (3, 300)]
)
def test_every_number_of_rows_equals_the_definition(B, T, gated):
    torch.set_num_threads(1 if B * T < 768 else 2)
    assert_equals_definition(make_case(B, T, 5, 3, gated=gated, reset="random"))


@given(case=random_cases(make_case, (4, 60, 40, 40)))
def test_any_case_equals_the_definition(case):
    assert_equals_definition(case, tolerance=3e-6)


@both_gates
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("carried", [False, True])
def test_states_are_those_of_the_scan_bit_for_bit_whatever_the_data(carried, draw, gated):
    case = make_case(2, 65, 5, 9, gated=gated, reset="random", carried=carried, draw=draw)
    _, x = respond(**case)
    r, s = case["z"][..., :9], case["z"][..., 9:18]
    assert_same_states(x, minmax_scan(r, s, case["x0"], state=case["state"], reset=case["reset"], backend="reference"))


@both_gates
@pytest.mark.parametrize(("B", "T"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("carried", [False, True])
def test_of_no_rows_the_result_is_empty_and_every_gradient_zero(carried, B, T, gated):
    case = make_case(B, T, gated=gated, reset="random", carried=carried)
    found = values_and_gradients(respond, case, make_grads(case), LEAVES)
    assert (found["y"].shape, found["states"].shape) == ((B, T, 7), (B, T, 8))
    assert found["z"].shape == case["z"].shape
    assert not any(found[name].any() for name in ("x0", "weight", "bias", *(["state"] if carried else [])))


LAYOUTS = {
    "time first": lambda a: a.transpose(0, 1).contiguous().transpose(0, 1) if a.dim() > 1 else a,
    "every other": lambda a: a.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda a: a[:1].expand_as(a),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["u", "z", "state", "x0", "reset", "weight", "bias", "incoming gradients"])
def test_strides_do_not_matter(name, layout):
    case = make_case(reset="random", carried=True)
    grads = make_grads(case)
    if name == "incoming gradients":
        grads = tuple(LAYOUTS[layout](each) for each in grads)
    else:
        case[name] = LAYOUTS[layout](case[name])
    plain = {key: each.contiguous() if isinstance(each, torch.Tensor) else each for key, each in case.items()}
    actual = values_and_gradients(respond, case, grads, LEAVES)
    expected = values_and_gradients(respond, plain, tuple(each.contiguous() for each in grads), LEAVES)
    for key in actual:
        assert torch.equal(actual[key], expected[key]), key


def gate_of(logits):
    """What the kernel makes of the gate's logits (N,): y where the state is 1, the output the identity and u 0."""
    N = len(logits)
    z = torch.cat((torch.full((N,), -9.0), torch.ones(N), logits)).view(1, 1, 3 * N).expand(1, 2, 3 * N)
    u, nothing = torch.zeros(1, 2, N), torch.zeros(N)
    return respond(u, z, nothing, None, None, torch.eye(N), nothing, True)[0][0, 0]


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


def test_the_gradient_of_a_gate_at_the_ends_is_zero():
    case = make_case(1, 4, 5, 6)
    with torch.no_grad():
        case["z"][..., 12:] = torch.tensor([100.0, -100.0, torch.inf, -torch.inf, 3e38, -3e38])
    found = values_and_gradients(respond, case, make_grads(case, of_states=False), LEAVES)
    assert found["z"][..., 12:].abs().max() < 1e-30


def test_a_nan_in_a_gate_reaches_its_own_step_and_no_other():
    case = make_case(2, 100, 5, 6)
    case["z"][1, 95, 14] = torch.nan
    y, x = respond(**case)
    expected = torch.zeros(2, 100, dtype=torch.bool)
    expected[1, 95] = True
    assert torch.equal(y.isnan().all(-1), expected)
    assert torch.equal(y.isnan().any(-1), expected)
    assert not x.isnan().any()


@both_gates
def test_the_number_of_threads_changes_no_value(gated):
    case = make_case(3, 500, 7, 9, gated=gated, reset="random")
    results = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        results.append(respond(**case))
    for (y, x), (other, states) in itertools.pairwise(results):
        assert torch.equal(y, other)
        assert torch.equal(x, states)


@pytest.mark.parametrize("wanted", LEAVES)
def test_a_gradient_is_the_same_when_no_other_is_wanted(wanted):
    case = make_case(reset="random", carried=True)
    grads = make_grads(case)
    expected = values_and_gradients(respond, case, grads, LEAVES)[wanted]
    leaf = case[wanted].detach().requires_grad_()
    y, x = respond(**{**case, wanted: leaf})
    outputs = [(y, grads[0]), (x, grads[1])] if x.requires_grad else [(y, grads[0])]
    (found,) = torch.autograd.grad([each for each, _ in outputs], leaf, [grad for _, grad in outputs])
    torch.testing.assert_close(found, expected)


def test_a_second_derivative_is_a_clear_error():
    case = make_case()
    case["z"].requires_grad_()
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(respond(**case)[0].sum(), case["z"], create_graph=True)


def test_changing_an_input_in_between_is_found_out():
    case = make_case()
    case["z"] = case["z"].requires_grad_() * 1
    y, _ = respond(**case)
    case["z"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
