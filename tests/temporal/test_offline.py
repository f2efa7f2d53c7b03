"""Robustness of whole traces against the definition."""

import math

import pytest
import torch
from cases_temporal import NAMES, formulas, random_traces, same, traces, with_specials
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from latchwork import use_backend
from latchwork.ops import temporal as ops
from latchwork.ops.cpu import kernel as cpu
from latchwork.temporal import Formula, parse, signals
from latchwork.temporal.definition import define


def defined(formula, found):
    rows = [define(formula, {name: found[name][b].tolist() for name in NAMES}) for b in range(len(found["x"]))]
    return torch.tensor(rows, dtype=torch.float64).reshape(found["x"].shape)


@settings(max_examples=150)
@given(formulas(), traces())
def test_a_random_formula_equals_the_definition_bit_for_bit(formula, found):
    assert same(formula(found), defined(formula, found))


@pytest.mark.parametrize("bounds", [(0, None), (2, None), (0, 3), (2, 2), (1, 4), (0, 30), (9, 20)])
def test_since_and_until_are_the_maximum_over_their_witnesses(bounds):
    begin, end = bounds
    for seed in range(4):
        p, q = (random_traces(seed, 14, batch=1)[name][0].tolist() for name in ("x", "y"))
        for t in range(14):
            past = [u for u in range(t - begin + 1) if end is None or u >= t - end]
            ahead = [u for u in range(t + begin, 14) if end is None or u <= t + end]
            since = max((min([q[u], *p[u + 1 : t + 1]]) for u in past), default=-math.inf)
            until = max((min([q[u], *p[t:u]]) for u in ahead), default=-math.inf)
            for operator, wanted in (("since", since), ("until", until)):
                assert define(Formula(operator, signals("x y"), *bounds), {"x": p, "y": q})[t] == wanted


@settings(max_examples=60)
@given(formulas(binary=("and", "or", "implies")), st.integers(0, 999), st.integers(0, 40))
def test_nan_and_infinities_spread_as_the_definition_says(formula, seed, steps):
    found = with_specials(seed, steps, specials=(math.inf, -math.inf, math.nan), share=0.05)
    assert same(formula(found), defined(formula, found))


@pytest.fixture(params=["cpu", "torch"])
def path(request):
    """C++ and plain torch in turn."""
    if request.param == "cpu" and cpu.MISSING is not None:
        pytest.skip(cpu.MISSING)
    with use_backend(request.param):
        yield request.param


def gradients(formula, found):
    """Of a weighted sum of the robustness in every signal: as computed, and by autograd through the definition."""
    weights = torch.randn(found["x"].shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = {name: found[name].clone().requires_grad_() for name in NAMES}
    value = (formula(leaves).clamp(-50, 50) * weights).sum()
    if value.requires_grad:
        value.backward()
    scalars = {name: [value.clone().requires_grad_() for value in found[name][0]] for name in NAMES}
    by_definition = define(formula, scalars)
    total = sum(
        (
            torch.as_tensor(v, dtype=torch.float64).clamp(-50, 50) * w
            for v, w in zip(by_definition, weights[0], strict=True)
        ),
        torch.zeros((), dtype=torch.float64),
    )
    if total.requires_grad:
        total.backward()
    zero = torch.zeros((), dtype=torch.float64)
    wanted = {name: torch.stack([zero if v.grad is None else v.grad for v in scalars[name]]) for name in NAMES}
    got = {name: torch.zeros_like(wanted[name]) if v.grad is None else v.grad[0] for name, v in leaves.items()}
    return got, wanted


@settings(max_examples=60)
@given(formulas(leaves=6), st.integers(0, 10**6), st.integers(1, 12), st.sampled_from(["auto", "torch"]))
def test_the_gradient_is_that_of_the_definition(formula, seed, steps, backend):
    found = random_traces(seed, steps, batch=1)
    assume(not any(bool(part(found).isnan().any()) for part in formula.nodes()))  # as `iff` of two equal infinities
    with use_backend(backend):
        got, wanted = gradients(formula, found)
    for name in NAMES:
        torch.testing.assert_close(got[name], wanted[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("operator", ["once", "historically", "eventually", "always", "since", "until"])
@pytest.mark.parametrize(
    "bounds",
    [
        (0, None),
        (3, None),
        (0, 0),
        (0, 1),
        (0, 3),
        (2, 2),
        (1, 4),
        (0, 15),
        (0, 16),
        (0, 30),
        (5, 7),
        (9, 20),
        (30, 40),
    ],
)
def test_ties_share_the_gradient_as_in_the_definition(path, operator, bounds):
    formula = Formula(operator, signals("x y" if operator in ("since", "until") else "x"), *bounds)
    for seed in range(8):
        found = random_traces(seed, 17, batch=1, ties=True)
        if seed % 2:
            found = {name: value.clamp(-1, 1) for name, value in found.items()}
        got, wanted = gradients(formula, found)
        for name in NAMES:
            torch.testing.assert_close(got[name], wanted[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "bounds", [(-3, 0), (0, 4), (-7, -2), (2, 5), (-2, 3), (-100, 100), (-16, -16), (16, 20), (3, 3)]
)
@pytest.mark.parametrize("steps", [1, 2, 5, 16, 17, 33])
@pytest.mark.parametrize("minimum", [False, True])
def test_every_backend_agrees_on_windows_with_ties_and_nan(bounds, steps, minimum):
    x = with_specials(steps, steps, specials=(math.nan, math.inf), share=0.03, batch=3)["x"]
    grad = torch.randn(x.shape, dtype=torch.float64)
    answers = []
    for backend in ("auto", "torch", "reference"):
        leaf = x.clone().requires_grad_()
        with use_backend(backend):
            y = ops.window(leaf, *bounds, minimum=minimum)
        if y.requires_grad:
            y.backward(grad)
        answers.append((y.detach(), leaf.grad))
    numbers = ~x.isnan().any(1)  # the definition gives a NaN to all steps of a window with one
    for (value, gradient), rows in zip(answers[1:], (slice(None), numbers), strict=True):
        assert same(answers[0][0], value)
        if gradient is not None:
            torch.testing.assert_close(answers[0][1][rows], gradient[rows])


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_recurrence_of_rows_is_minmax_scan_in_value_and_gradient(step, ties, dtype):
    found = random_traces(5, 40, batch=3, ties=ties)
    grad = torch.randn(3, 40, dtype=dtype)
    answers = []
    for backend in ("auto", "reference"):
        r, s = (found[name].to(dtype).requires_grad_() for name in ("x", "y"))
        with use_backend(backend):
            x = ops.latch(r, s, step)
        x.backward(grad)
        answers.append([x.detach(), r.grad, s.grad])
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 16, 32, 33, 60])
def test_the_recurrence_over_a_window_is_the_loop_over_its_steps(backend, step, width):
    for seed, steps in enumerate((1, 5, 32, 33, 50)):
        found = with_specials(seed, steps, specials=(math.nan,), share=0.02, batch=4)
        grad = torch.randn(4, steps, dtype=torch.float64)
        answers = []
        for name in (backend, "reference"):
            r, s = (found[name].clone().requires_grad_() for name in ("x", "y"))
            with use_backend(name):
                x = ops.latch(r, s, step, width)
            x.backward(grad)
            answers.append((x.detach(), r.grad, s.grad))
        assert same(answers[0][0], answers[1][0])
        clean = ~answers[0][0].isnan().any(1)  # autograd of the loop gives a NaN's steps some of the gradient
        for got, wanted in zip(answers[0][1:], answers[1][1:], strict=True):
            if got is not None:
                torch.testing.assert_close(got[clean], wanted[clean])


def test_float32_and_half_types_give_the_values_of_float64_where_these_are_exact(path):
    found = random_traces(4, 30, ties=True)
    formula = parse("x since[1:4] y and once[2:9] z or always (x until y)")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        value = formula({name: each.to(dtype) for name, each in found.items()})
        assert value.dtype == dtype
        assert torch.equal(value.double(), formula(found))


@settings(max_examples=60)
@given(formulas(leaves=6), traces(30))
def test_not_swaps_each_operator_with_its_dual(formula, found):
    once, always = Formula("once", (formula,), 1, 4), Formula("historically", (~formula,), 1, 4)
    assert same((~once)(found), always(found))
    ahead, ever = Formula("eventually", (formula,), 0, 3), Formula("always", (~formula,), 0, 3)
    assert same((~ahead)(found), ever(found))


@settings(max_examples=60)
@given(formulas(unary=("not", "prev", "s_prev"), windows=("once", "historically"), timed=("since",)), traces(30))
def test_in_reversed_time_past_operators_are_future_ones(formula, found):
    mirror = {"prev": "next", "s_prev": "s_next", "once": "eventually", "historically": "always", "since": "until"}

    def reverse(node):
        operator = mirror.get(node.operator, node.operator)
        return Formula(operator, tuple(map(reverse, node.children)), node.begin, node.end, node.value)

    backwards = {name: value.flip(1) for name, value in found.items()}
    assert same(reverse(formula)(backwards).flip(1), formula(found))


@settings(max_examples=80)
@given(formulas(), traces(30))
def test_a_formula_whose_robustness_is_not_zero_holds_where_it_is_above_zero(formula, found):
    robust, truth = formula(found), formula.satisfied(found)
    comparable = formula.nodes() and not any(node.operator in ("iff", "xor", "==", "!=") for node in formula.nodes())
    if comparable and not any(
        bool((node(found) == 0).any()) for node in formula.nodes() if node.horizon == node.memory == 0
    ):
        assert torch.equal(truth, robust > 0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("x < 1", [True, False, False]), ("x <= 1", [True, True, False]), ("x == 1", [False, True, False]),
     ("x != 1", [True, False, True]), ("x < 1 iff x <= 1", [True, False, True]),
     ("x < 1 xor x <= 1", [False, True, False]),
     ("x - 1", [False, False, True]), ("once x == 1", [False, True, True]), ("next x == 1", [True, False, True]),
     ("not x <= 1", [False, False, True]), ("true", [True] * 3), ("always[5:6] x < 0", [True] * 3)],
)  # fmt: skip
def test_satisfied_tells_at_most_from_less_than(text, wanted):
    assert parse(text).satisfied({"x": [0.0, 1.0, 2.0]}).tolist() == wanted


def test_signals_come_as_rows_as_one_trace_or_as_one_tensor_with_names():
    formula = parse("x - y <= 1")
    found = random_traces(3, 7)
    whole = formula(found)
    assert whole.shape == (2, 7)
    assert torch.equal(formula({name: value[1] for name, value in found.items()}), whole[1])
    stacked = torch.stack([found["y"], found["x"]], -1)
    assert torch.equal(formula(stacked, ["y", "x"]), whole)
    assert formula({"x": [1, 2], "y": [0, 3]}).tolist() == [0.0, 2.0]
    assert formula({"x": [True, False], "y": [0.0, 0.0]}).tolist() == [0.0, 2.0]
    assert formula({"x": torch.zeros(3, 0), "y": torch.zeros(3, 0)}).shape == (3, 0)


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [({"x": [0.0]}, None, "the formula speaks of y; the signals are x"),
     ({"x": ["fast"], "y": [0.0]}, None, "the signal x must be numbers"),
     ({"x": [0.0], "y": [[0.0], [1.0, 2.0]]}, None, "the signal y must be numbers"),
     ({"x": [0.0], "y": [0.0, 1.0]}, None, "one shape"),
     ({"x": [[[0.0]]], "y": [[[0.0]]]}, None, r"\(B, T\) or \(T,\)"), (torch.zeros(2, 3), None, "needs `names`"),
     (torch.zeros(2, 3), ["x", "y"], "with D = 2"), ({"x": [0.0], "y": [0.0]}, ["x"], "names are for one tensor")],
)  # fmt: skip
def test_signals_that_do_not_fit_are_named(given, names, message):
    with pytest.raises(ValueError, match=message):
        parse("x <= y")(given, names)


@pytest.mark.parametrize(
    "text", ["x until[0:3] y", "once[1:4] x and y since z", "always[2:5] x", "historically y implies z"]
)
def test_the_smooth_surrogate_tends_to_the_robustness_and_has_a_gradient_everywhere(text):
    found = random_traces(1, 12, ties=False)
    formula = parse(text)
    exact = formula(found)
    close = formula(found, temperature=1e-4)
    finite = exact.isfinite()
    assert (close - exact)[finite].abs().max() < 2e-2
    leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
    formula(leaves, temperature=0.5)[:, 5].sum().backward()
    used = [leaves[name].grad for name in formula.names]
    assert all(bool(grad.isfinite().all()) for grad in used)
    assert sum(int((grad != 0).sum()) for grad in used) > 2 * len(formula.names)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        formula(found, temperature=0.0)


def test_a_threshold_has_a_gradient_and_a_name():
    formula = parse("always x <= $limit and y >= $floor - $limit")
    assert [name for name, _ in formula.named_parameters()] == ["limit", "floor"]
    limit, floor = formula.parameters()
    with torch.no_grad():
        limit.fill_(2.0)
    value = formula({"x": torch.tensor([1.0, 0.0]), "y": torch.tensor([5.0, 5.0])})
    assert value.tolist() == [1.0, 2.0]
    value.sum().backward()
    assert (limit.grad.item(), floor.grad.item()) == (2.0, 0.0)


def test_the_kernels_pass_torch_s_own_check_of_custom_ops():
    r, s = torch.randn(2, 9, requires_grad=True), torch.randn(2, 9, requires_grad=True)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.latchwork.latch.default, (r, s, 1, 4, "cpu"), test_utils=tests)
    torch.library.opcheck(torch.ops.latchwork.window.default, (r, -3, 0, False, "cpu"), test_utils=tests)
