"""Inputs of the recurrence in every awkward form, and what it means for two results to be the same."""

import math
from contextlib import contextmanager

import torch
from hypothesis import strategies as st

from latchwork import minmax_scan
from reset_cases import RESETS, make_reset

BACKENDS = ["torch", "cpu"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WIDTHS = [0, 1, 2, 7, 8, 9, 16, 17, 33, 40, 63, 64, 65, 72, 73, 90, 100, 130]
LENGTHS = [0, 1, 2, 63, 64, 65, 100, 1030]  # from 1024 on the torch backend works in chunks
DEGREES = [1, 2, 3, 4, 5, 7, 8, 9]
UNITS = [0, 1, 4, 5, 7, 8, 9, 13, 20]
LAYOUTS = ["contiguous", "fused", "time first", "transposed", "every other", "expanded"]


def continuous(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def tied(*shape, dtype=torch.float32):
    return torch.randint(-2, 3, shape).to(dtype)


def extreme(*shape, dtype=torch.float32):
    limits = torch.finfo(dtype)
    denormal = limits.tiny * limits.eps
    values = [torch.inf, -torch.inf, 0.0, -0.0, denormal, -denormal, limits.tiny, limits.max, limits.min, 1.0]
    return torch.tensor(values, dtype=dtype)[torch.randint(len(values), shape)]


def with_nan(*shape, dtype=torch.float32):
    return extreme(*shape, dtype=dtype).masked_fill_(torch.rand(shape) < 0.03, torch.nan)


def held(*shape, dtype=torch.float32):
    """Values in (-1, 1), which `make_case` moves apart so that no step changes the state."""
    return (torch.rand(shape) * 1.9 - 0.95).to(dtype)


DRAWS = [continuous, tied, extreme, with_nan]


def lay_out(r, s, layout):
    """r and s with the strides that `layout` names; "expanded" repeats the first batch row and lane or unit."""
    match layout:
        case "contiguous":
            return r, s
        case "fused":
            sizes = [math.prod(a.shape[2:]) for a in (r, s)]
            both = torch.cat([a.reshape(*a.shape[:2], size) for a, size in zip((r, s), sizes, strict=True)], -1)
            return tuple(part.unflatten(2, a.shape[2:]) for part, a in zip(both.split(sizes, -1), (r, s), strict=True))
        case "time first":
            return tuple(a.transpose(0, 1).contiguous().transpose(0, 1) for a in (r, s))
        case "transposed":
            return tuple(a.transpose(1, -1).contiguous().transpose(1, -1) for a in (r, s))
        case "every other":
            return tuple(a.repeat_interleave(2, -1)[..., ::2] for a in (r, s))
        case "expanded":
            return tuple(a[:1, :, :1].expand_as(a) for a in (r, s))
        case _:
            raise ValueError(layout)


def make_case(
    shape, draw=continuous, dtype=torch.float32, *, reset="never", row=False, state=False, layout="contiguous"
):
    """Keyword arguments of minmax_scan. shape: of s. row: x0 is one row for the whole batch. state: start elsewhere."""
    B, T, *unit = shape
    r, s = draw(*shape, *unit[1:], dtype=dtype), draw(*shape, dtype=dtype)
    if draw is held:
        keep = torch.eye(unit[1], dtype=torch.bool) if len(unit) == 2 else torch.ones((), dtype=torch.bool)
        r, s = torch.where(keep, r + 3, r - 3), s - 3
    r, s = lay_out(r, s, layout)
    start = unit if row else (B, *unit)
    return {
        "r": r,
        "s": s,
        "x0": draw(*start, dtype=dtype),
        "reset": make_reset(reset, B, T),
        "state": draw(*start, dtype=dtype) if state else None,
    }


@st.composite
def cases(draw, draws=tuple(DRAWS), dtypes=tuple(DTYPES), lengths=(0, 1, 2, 5, 17, 64, 65)):
    """A case of any degree, size, type, kind of data, resets, start and layout."""
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    pick = {name: st.sampled_from(values) for name, values in {"D": WIDTHS, "U": UNITS, "N": DEGREES}.items()}
    unit = draw(st.tuples(pick["D"]) | st.tuples(pick["U"], pick["N"]))
    return make_case(
        (draw(st.integers(0, 3)), draw(st.sampled_from(lengths)), *unit),
        draw(st.sampled_from(draws)),
        draw(st.sampled_from(dtypes)),
        reset=draw(st.sampled_from(RESETS)),
        row=draw(st.booleans()),
        state=draw(st.booleans()),
        layout=draw(st.sampled_from(LAYOUTS)),
    )


def inner(case):
    """The arguments r, s, state, reset, x0 of a backend's own functions."""
    s = case["s"]
    x0 = case["x0"].expand(s.shape[:1] + s.shape[2:])
    state = x0 if case["state"] is None else case["state"].expand_as(x0)
    return case["r"], s, state, case["reset"], None if case["reset"] is None else x0


def run(case, backend, grad=None):
    """The states, and where grad is given the gradients of r, s, x0 and state by name."""
    if grad is None:
        return minmax_scan(**case, backend=backend)
    names = [name for name in ("r", "s", "x0", "state") if case[name] is not None]
    leaves = {name: case[name].detach().requires_grad_() for name in names}
    x = minmax_scan(**{**case, **leaves}, backend=backend)
    found = torch.autograd.grad(x, list(leaves.values()), grad, allow_unused=True, materialize_grads=True)
    return x.detach(), dict(zip(names, found, strict=True))


def assert_same(actual, expected):
    """Equal in every bit, the sign of a zero included; only which NaN it is does not matter."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    differ = (actual != expected) | (actual.signbit() != expected.signbit())
    differ &= ~(actual.isnan() & expected.isnan())
    where = differ.nonzero()[:5].tolist()
    assert not where, f"differ at {where}, ...: {actual[differ][:5].tolist()} and {expected[differ][:5].tolist()}"


def assert_same_states(actual, expected):
    assert not (actual.signbit() & (actual == 0)).any(), "a state is -0"
    assert_same(actual, expected)


def assert_same_gradients(actual, expected):
    assert actual.keys() == expected.keys()
    for name in actual:
        with naming(f"gradient of {name}"):
            assert_same(actual[name], expected[name])


def assert_close_gradients(actual, expected):
    """For degree n, whose sums may be taken in any order."""
    assert actual.keys() == expected.keys()
    for name in actual:
        tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}.get(actual[name].dtype, 2e-2)
        with naming(f"gradient of {name}"):
            torch.testing.assert_close(actual[name], expected[name], rtol=tolerance, atol=tolerance, equal_nan=True)


def assert_backends_equal_the_definition(case, grad=None, check=assert_same_gradients):
    """The states bit for bit and, where grad is given, the gradients as `check` compares them."""
    expected = run(case, "reference", grad)
    for backend in BACKENDS:
        with naming(f"backend {backend}"):
            actual = run(case, backend, grad)
            if grad is None:
                assert_same_states(actual, expected)
            else:
                assert_same_states(actual[0], expected[0])
                check(actual[1], expected[1])


@contextmanager
def naming(what):
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
