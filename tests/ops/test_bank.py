"""Banks of latches by the kernel: the scan's states bit for bit, all else to rounding."""

import itertools

import pytest
import torch
from hypothesis import given
from respond_cases import make_grads, random_cases, values_and_gradients
from scan_cases import DRAWS, RESETS, assert_same_states, continuous, make_reset

from latchwork import MinMaxNeuron, minmax_scan
from latchwork.ops.bank import Bank, drive_bank, read_bank
from latchwork.ops.respond import respond

LEAVES = ("u", "z", "state", "x0", "weight", "bias", "shift_r", "shift_s", "read_weight")


@pytest.fixture(autouse=True)
def _one_thread(_settings):
    torch.set_num_threads(1)


def make_case(B=3, T=13, d=7, P=5, K=3, *, gated=True, reset="never", carried=False, draw=continuous, blur=0.0):
    """The arguments of `respond`, by name, those of the bank one by one."""
    case = {
        "u": torch.randn(B, T, d),
        "z": draw(B, T, (3 if gated else 2) * P),
        "x0": draw(K * P),
        "state": draw(B, K * P) if carried else None,
        "reset": make_reset(reset, B, T),
        "weight": torch.randn(d, P) / P**0.5,
        "bias": torch.randn(d),
        "gated": gated,
        "blur": blur,
    }
    return case | {name: draw(K * P) for name in LEAVES[-3:]}


def by_kernel(shift_r, shift_s, read_weight, **case):
    return respond(**case, bank=Bank(shift_r, shift_s, read_weight))


def define(u, z, x0, state, reset, weight, bias, gated, blur, **bank):
    """y = u + what `MinMaxNeuron.recur` gives, and every state."""
    K = len(x0) // weight.shape[1]
    neuron = MinMaxNeuron(u.shape[2], len(x0), bank=K, output_gate=gated, blur=blur)
    if K == 1:  # is no bank to the neuron
        P = len(x0)
        z = torch.cat((z[..., :P] + bank["shift_r"], z[..., P : 2 * P] + bank["shift_s"], z[..., 2 * P :]), -1)
        weight = weight * bank["read_weight"]
        bank = {}
    parts = [(neuron, "x0", x0), (neuron.output, "weight", weight), (neuron.output, "bias", bias)]
    for part, name, value in [*parts, *((neuron, name, value) for name, value in bank.items())]:
        delattr(part, name)
        setattr(part, name, value)  # the leaf itself, so that its gradient can be asked for
    return u + neuron.recur(z, state, reset=reset)[0], neuron.states(z, state, reset=reset)


def scanned(case):
    """Every state by the definition of the recurrence, from the signals of all latches."""
    P = case["weight"].shape[1]
    r, s = drive_bank(case["z"][..., :P], case["shift_r"]), drive_bank(case["z"][..., P : 2 * P], case["shift_s"])
    return minmax_scan(r, s, case["x0"], state=case["state"], reset=case["reset"], backend="reference")


def assert_equals_definition(case, *, of_y=True, of_states=True, tolerance=2e-6):
    grads = make_grads(case, of_y, of_states)
    actual = values_and_gradients(by_kernel, case, grads, LEAVES)
    expected = values_and_gradients(define, case, grads, LEAVES)
    assert_same_states(actual["states"], scanned(case))
    for name in actual:
        scale = max(1.0, expected[name].abs().max().item() if expected[name].numel() else 1.0)
        allowed = {"atol": tolerance * (1 if name in ("y", "states") else 10) * scale, "rtol": 0}
        torch.testing.assert_close(
            actual[name], expected[name], **allowed, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("blur", [0.0, 0.5])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("reset", RESETS)
def test_values_and_gradients_equal_the_definition(reset, carried, gated, blur):
    for of_y, of_states in [(True, True), (True, False), (False, True)]:
        case = make_case(gated=gated, reset=reset, carried=carried, blur=blur)
        assert_equals_definition(case, of_y=of_y, of_states=of_states)


@pytest.mark.parametrize("K", [1, 2, 3, 8])
@pytest.mark.parametrize("P", [1, 7, 8, 9, 31, 32, 33, 70])
def test_every_size_equals_the_definition(P, K):
    assert_equals_definition(make_case(P=P, K=K, reset="random", carried=True, blur=0.5))


@given(case=random_cases(make_case, (4, 60, 20, 40, 5)))
def test_any_case_equals_the_definition(case):
    assert_equals_definition(case, tolerance=1e-5)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("carried", [False, True])
def test_states_are_those_of_the_scan_bit_for_bit_whatever_the_data(carried, draw):
    case = make_case(2, 65, 5, 9, reset="random", carried=carried, draw=draw)
    assert_same_states(by_kernel(**case)[1], scanned(case))


@pytest.mark.parametrize(("B", "T"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("carried", [False, True])
def test_of_no_rows_the_result_is_empty_and_every_gradient_zero(carried, B, T):
    case = make_case(B, T, reset="random", carried=carried)
    found = values_and_gradients(by_kernel, case, make_grads(case), LEAVES)
    assert (found["y"].shape, found["states"].shape) == ((B, T, 7), (B, T, 15))
    assert not any(found[name].any() for name in LEAVES[3:])


@pytest.mark.parametrize("name", [*LEAVES, "reset", "incoming gradients"])
def test_strides_do_not_matter(name):
    case = make_case(reset="random", carried=True)
    grads = make_grads(case)

    def every_other(a):
        return a.repeat_interleave(2, -1)[..., ::2]

    expected = values_and_gradients(by_kernel, case, grads, LEAVES)
    if name == "incoming gradients":
        grads = tuple(every_other(each) for each in grads)
    else:
        case[name] = every_other(case[name])
    actual = values_and_gradients(by_kernel, case, grads, LEAVES)
    for key in actual:
        assert torch.equal(actual[key], expected[key]), key


def test_the_number_of_threads_changes_nothing():
    case = make_case(3, 300, 7, 90, reset="random", blur=0.5)
    grads = make_grads(case)
    results = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        results.append(values_and_gradients(by_kernel, case, grads, LEAVES))
    for one, other in itertools.pairwise(results):
        for name in ("y", "states", "shift_r", "shift_s", "read_weight", "x0"):
            assert torch.equal(one[name], other[name]), name


def test_a_bank_with_different_slack_holds_for_different_times():
    r = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0]).view(1, 5, 1)
    shift = torch.tensor([0.0, 0.5, 2.0])
    x = minmax_scan(drive_bank(r, shift), drive_bank(r, -shift), torch.zeros(3))
    assert x[0].T.tolist() == [[0, 1, 0, -1, 0], [0, 0.5, 0.5, -0.5, -0.5], [0, 0, 0, 0, 0]]
    assert read_bank(x, torch.ones(3), 3)[0, :, 0].tolist() == [0, 1.5, 0.5, -1.5, -0.5]
