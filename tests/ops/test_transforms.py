"""Forward-mode derivatives and the transforms of torch.func: right, or an error in words; never a silent zero."""

import itertools

import pytest
import torch
from scan_cases import assert_same, continuous, held, make_case, tied
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from latchwork import minmax_scan, minmax_step
from latchwork.baselines.selective_scan import selective_scan
from latchwork.ops import distributed
from latchwork.ops.choice import choose_rows
from latchwork.ops.cross_entropy import linear_cross_entropy
from latchwork.ops.matvec import int8_linear, linear
from latchwork.ops.moves import selection_scan, transformation_scan
from latchwork.ops.reference import reference_scan

# Of torch to itself, when it first takes a forward-mode derivative.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
NAMES = ("r", "s", "x0", "state")
both_degrees = pytest.mark.parametrize("unit", [(5,), (3, 2)], ids=["degree one", "degree n"])


def by_forward_ad(f, inputs, tangents):
    with forward_ad.dual_level():
        y = f(*(forward_ad.make_dual(*each) for each in zip(inputs, tangents, strict=True)))
        found = forward_ad.unpack_dual(y).tangent
        return torch.zeros_like(y) if found is None else found


def by_func(f, inputs, tangents):
    return jvp(f, tuple(inputs), tuple(tangents))[1]


def share(wins, ties, one, other):
    return torch.where(ties, (one + other) / 2, torch.where(wins, one, other))


def tangent(case, given):
    """The tangent of every state by the rule, one step at a time: that of the argument selected, ties shared."""
    r, s, x0, reset = (case[name] for name in ("r", "s", "x0", "reset"))
    x, d = (case["state"], given["state"]) if case["state"] is not None else (x0, given["x0"])
    found = []
    for t in range(s.shape[1]):
        if reset is not None:
            now = reset[:, t].reshape(-1, *[1] * (x0.dim() - 1))
            x, d = torch.where(now, x0, x), torch.where(now, given["x0"], d)
        x_k, d_k = (x, d) if r.dim() == s.dim() else (x.unsqueeze(-2), d.unsqueeze(-2))
        m, d_m = torch.minimum(r[:, t], x_k), share(r[:, t] < x_k, r[:, t] == x_k, given["r"][:, t], d_k)
        if r.dim() == s.dim():
            x, d = torch.maximum(m, s[:, t]), share(m > s[:, t], m == s[:, t], d_m, given["s"][:, t])
        else:
            m, d_m = (torch.cat([a, b[:, t].unsqueeze(-1)], -1) for a, b in ((m, s), (d_m, given["s"])))
            x = m.amax(-1)
            attained = m == x.unsqueeze(-1)
            d = torch.where(attained, d_m, 0).sum(-1) / attained.sum(-1)
        found.append(d)
    return torch.stack(found, 1)


def draw_case(unit, draw, reset, state, dtype=torch.float64):
    case = make_case((3, 9, *unit), draw, dtype, reset=reset, state=state)
    names = [name for name in NAMES if case[name] is not None]
    return case, names, {name: torch.randn_like(case[name]) for name in names}


def scan_of(case, names, **options):
    return lambda *given: minmax_scan(**{**case, **dict(zip(names, given, strict=True))}, **options)


@both_degrees
@pytest.mark.parametrize("draw", [continuous, tied, held])
@pytest.mark.parametrize("reset", ["never", "random", "everywhere"])
@pytest.mark.parametrize("state", [False, True])
def test_the_tangent_is_that_of_the_selected_argument(state, reset, draw, unit):
    case, names, given = draw_case(unit, draw, reset, state)
    expected = tangent(case, given)
    inputs = [case[name] for name in names]
    for way in (by_forward_ad, by_func):
        torch.testing.assert_close(way(scan_of(case, names), inputs, given.values()), expected)
    for name in names:  # a tangent in one argument alone is not lost either
        zeros = {other: torch.zeros_like(case[other]) for other in names}
        alone = by_forward_ad(scan_of(case, [name]), [case[name]], [given[name]])
        torch.testing.assert_close(alone, tangent(case, zeros | {name: given[name]}))


@both_degrees
@pytest.mark.parametrize("draw", [continuous, tied, held])
@pytest.mark.parametrize("reset", ["never", "random"])
def test_forward_and_reverse_mode_are_each_other_s_transposes_also_at_ties(reset, draw, unit):
    case, names, given = draw_case(unit, draw, reset, state=True)
    inputs, v = [case[name] for name in names], torch.randn_like(case["s"])
    forward = (v * by_func(scan_of(case, names), inputs, given.values())).sum()
    for backend in ("reference", "torch", "cpu"):
        leaves = [each.clone().requires_grad_() for each in inputs]
        found = torch.autograd.grad(scan_of(case, names, backend=backend)(*leaves), leaves, v, materialize_grads=True)
        backward = sum((one * other).sum() for one, other in zip(found, given.values(), strict=True))
        torch.testing.assert_close(forward, backward)


@both_degrees
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_tangent_is_selected_and_not_rounded(dtype, unit):
    """torch's tangent of maximum(a, b) is b' + (a' - b'): a huge tangent of what is not selected would wipe it out."""
    case = make_case((2, 50, *unit), held, dtype)
    inputs = [case[name] for name in ("r", "s", "x0")]
    tangents = [torch.full_like(case["r"], torch.inf), torch.full_like(case["s"], 1e30), torch.randn_like(case["x0"])]
    found = by_func(scan_of(case, ("r", "s", "x0")), inputs, tangents)
    assert_same(found, tangents[2].unsqueeze(1).expand_as(found).contiguous())
    if len(unit) == 1:
        first, of_first = ([*(a[:, 0] for a in each[:2]), each[2]] for each in (inputs, tangents))
        step = by_func(minmax_step, first, of_first)
        assert_same(step, tangents[2])


@both_degrees
@pytest.mark.parametrize("reset", ["never", "random"])
def test_every_transform_of_torch_func_gives_what_the_definition_gives(reset, unit):
    case, _, given = draw_case(unit, tied, reset, state=False)
    start = None if case["reset"] is None else case["x0"]

    def ours(r):
        return minmax_scan(**{**case, "r": r})

    def definition(r):
        return reference_scan(r, case["s"], case["x0"], case["reset"], start)

    def loss(f):
        return lambda r: f(r).square().sum()

    r, dr, v = case["r"], given["r"], given["s"]
    many = torch.stack([r, r + 1, r.flip(0)])
    for transformed in (
        lambda f: jacfwd(f)(r),
        lambda f: jacrev(f)(r),
        lambda f: vjp(f, r)[1](v)[0],
        lambda f: grad(loss(f))(r),
        lambda f: hessian(loss(f))(r),
        lambda f: vmap(f)(many),
        lambda f: vmap(f, in_dims=1, out_dims=2)(many.transpose(0, 1)),
        lambda f: vmap(grad(loss(f)))(many),
        lambda f: vmap(lambda tangent: jvp(f, (r,), (tangent,))[1])(many),
        lambda f: jvp(grad(loss(f)), (r,), (dr,))[1],
        lambda f: grad(lambda a: (jvp(f, (a,), (dr,))[1] * v).sum() + loss(f)(a))(r),
    ):
        torch.testing.assert_close(transformed(ours), transformed(definition))


@pytest.mark.slow
def test_a_compiled_scan_does_not_lose_a_tangent():
    case, names, given = draw_case((5,), tied, "random", state=True)
    inputs, expected = [case[name] for name in names], tangent(case, given)
    compiled = torch.compile(minmax_scan, backend="aot_eager", fullgraph=True)
    compiled(**case)  # first a graph without tangents, which must not serve for those with

    def run(*given):
        return compiled(**{**case, **dict(zip(names, given, strict=True))})

    torch.testing.assert_close(by_forward_ad(run, inputs, given.values()), expected)
    whole = torch.compile(lambda *tangents: by_func(scan_of(case, names), inputs, tangents), backend="aot_eager")
    torch.testing.assert_close(whole(*given.values()), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_a_backend_asked_for_by_name_is_not_replaced_under_a_transform(backend):
    case, names, given = draw_case((5,), tied, "never", state=False)
    inputs = [case[name] for name in names]
    for way, reason in ((by_func, "under a transform of torch.func"), (by_forward_ad, "for a forward-mode tangent")):
        with pytest.raises(ValueError, match=f"backend '{backend}' cannot run: {reason} only the definition runs"):
            way(scan_of(case, names, backend=backend), inputs, given.values())
    with pytest.raises(ValueError, match="cannot run: under a transform"):
        vmap(lambda r: minmax_scan(r, case["s"], case["x0"], backend=backend))(case["r"].unsqueeze(0))
    with forward_ad.dual_level():  # no tangent on any of its arguments
        minmax_scan(**case, backend=backend)


def choices(own, low=0.0):
    """Weights, x0 and s of levels that move, and the choice."""
    U, N = 3, 4
    choice = torch.randint(N + own, (2, 7, U, N))
    return choice, [torch.rand(2, 7, U, N, N + own), torch.rand(U, N) + low, torch.rand(U, N)][: 2 + own]


def every_other_op():
    """Each as (function of tensors that have gradients, those tensors)."""
    torch.manual_seed(0)
    take, own, send = choices(False), choices(True), choices(False)
    reset = torch.rand(2, 7) < 0.3
    targets = torch.randint(9, (40,)).where(torch.rand(40) < 0.8, -100)
    weight, scale = torch.randint(-127, 128, (130, 128), dtype=torch.int8), torch.rand(130, 1)
    return {
        "selection_scan": (lambda w, x0: selection_scan(w, take[0], x0, reset=reset), take[1]),
        "selection_scan with s": (lambda w, x0, s: selection_scan(w, own[0], x0, s=s, reset=reset), own[1]),
        "transformation_scan": (lambda w, x0: transformation_scan(w, send[0], x0, reset=reset), send[1]),
        "choose_rows": (lambda a: choose_rows(a, temperature=2.0)[0], [torch.randn(3, 5, 4)]),
        "choose_rows with own": (lambda a, b: choose_rows(a, b)[0], [torch.randn(3, 5, 4), torch.randn(3, 5)]),
        "linear_cross_entropy": (
            lambda h, w: linear_cross_entropy(h, w, targets),
            [torch.randn(40, 8), torch.randn(9, 8)],
        ),
        "linear": (linear, [torch.randn(2, 128), torch.randn(130, 128), torch.randn(130)]),
        "int8_linear": (lambda x, b: int8_linear(x, weight, scale, b), [torch.randn(2, 128), torch.randn(130)]),
        "int8_linear's scale": (lambda c: int8_linear(torch.ones(2, 128), weight, c), [scale]),
    }


@pytest.mark.parametrize("name", every_other_op())
def test_every_other_op_has_the_tangent_that_its_gradient_is_the_transpose_of(name):
    f, inputs = every_other_op()[name]
    leaves = [each.clone().requires_grad_() for each in inputs]
    y = f(*leaves)
    v = torch.randn_like(y)
    found = torch.autograd.grad(y, leaves, v)
    for index, way in itertools.product([*range(len(inputs)), None], (by_forward_ad, by_func)):
        chosen = range(len(inputs)) if index is None else [index]
        tangents = [torch.randn_like(inputs[i]) for i in chosen]

        def of_chosen(*given, chosen=chosen):
            every = list(inputs)
            for i, each in zip(chosen, given, strict=True):
                every[i] = each
            return f(*every)

        forward = (v * way(of_chosen, [inputs[i] for i in chosen], tangents)).sum()
        backward = sum((found[i] * tangent).sum() for i, tangent in zip(chosen, tangents, strict=True))
        torch.testing.assert_close(forward, backward, rtol=1e-4, atol=1e-4)
    every = tuple(range(len(inputs)))
    for one, other in zip(grad(lambda *a: (f(*a) * v).sum(), argnums=every)(*inputs), found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", every_other_op())
def test_vmap_of_every_other_op_is_the_op_of_each(name):
    f, inputs = every_other_op()[name]
    many = [torch.stack([each, each * 0.5]) for each in inputs]
    expected = torch.stack([f(*each) for each in zip(*(a.unbind() for a in many), strict=True)])
    torch.testing.assert_close(vmap(f)(*many), expected, rtol=1e-4, atol=1e-4)


def test_vmap_may_batch_targets_choices_and_resets_which_no_one_can_look_at_then():
    hidden, targets = torch.randn(3, 40, 8), torch.randint(9, (3, 40))
    choice, levels = torch.randint(4, (3, 2, 7, 3, 4)), torch.rand(3, 3, 4)
    case, resets = make_case((2, 6, 5)), torch.rand(3, 2, 6) < 0.4
    for f, many in (
        (lambda h, t: linear_cross_entropy(h, torch.ones(9, 8), t), (hidden, targets)),
        (lambda c, x0: selection_scan(torch.rand(2, 7, 3, 4, 4), c, x0), (choice, levels)),
        (lambda c, x0: transformation_scan(torch.rand(2, 7, 3, 4, 4), c, x0), (choice, levels)),
        (lambda reset: minmax_scan(**{**case, "reset": reset}), (resets,)),
    ):
        each = [f(*given) for given in zip(*(a.unbind() for a in many), strict=True)]
        torch.testing.assert_close(vmap(f, randomness="same")(*many), torch.stack(each))


def ways_to_a_gradient():
    case = make_case((2, 6, 5))
    choice, (weights, x0) = choices(False)
    targets, ones, start = torch.zeros(40).long(), torch.ones(1, 3, 2), torch.ones(1, 2, 2)
    return {
        "minmax_scan": (lambda a: minmax_scan(**{**case, "r": a}), case["r"]),
        "moves": (lambda a: selection_scan(a, choice, x0), weights),
        "choose_rows": (lambda a: choose_rows(a)[0], torch.randn(3, 5, 4)),
        "fused kernels": (lambda a: linear_cross_entropy(a, torch.ones(9, 8), targets), torch.randn(40, 8)),
        "selective_scan": (
            lambda a: selective_scan(a, ones, ones, ones, start[0], torch.ones(2), ones, start)[0],
            torch.rand(1, 3, 2),
        ),
    }


@pytest.mark.parametrize("name", ways_to_a_gradient())
def test_a_tangent_that_comes_with_the_gradient_is_refused_and_not_dropped(name):
    """Forward over reverse: the values have no tangent, what they are multiplied by afterwards has one."""
    f, given = ways_to_a_gradient()[name]
    leaf = given.clone().requires_grad_()
    with forward_ad.dual_level():
        y = f(leaf)
        factor = forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y))
        with pytest.raises(NotImplementedError, match="no second derivative"):
            torch.autograd.grad((y * factor).sum(), leaf)


def test_over_several_ranks_a_transform_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(distributed, "_group", "a group that is not reached")
    case, names, given = draw_case((5,), tied, "never", state=False)
    inputs = [case[name] for name in names]
    for way in (by_func, by_forward_ad):
        with pytest.raises(NotImplementedError, match="in reverse mode alone"):
            way(minmax_scan, inputs, given.values())
    with pytest.raises(ValueError, match="backend 'reference' runs in one process; there are auto, triton, cpu, torch"):
        minmax_scan(*inputs, backend="reference")
