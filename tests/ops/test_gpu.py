"""The Triton backend equals the definition: on a GPU, or in Triton's interpreter where there is none."""

import pytest
import torch
from ahead_of_time import run
from scan_cases import DTYPES, assert_same, continuous, tied

from latchwork.ops.algebra import apply, collapse
from latchwork.ops.reference import reference_scan
from latchwork.ops.triton import scan as gpu

pytest.importorskip("triton", reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    # The decorators of the kernels read TRITON_INTERPRET when gpu_kernels is imported. It is set for that import only:
    # left on, it would make backend="auto" choose this backend in every other test of the process.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        import latchwork.ops.triton.scan_kernels  # noqa: F401

# The interpreter computes in numpy, which warns of inf - inf and of a half that overflows.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SHAPES = [  # of s: (B, T, D), or (B, T, U, N)
    (2, 0, 5), (2, 1, 1), (2, 2, 5), (1, 7, 40), (1, 33, 5), (2, 7, 0), (0, 7, 5), (1, 2, 130),
    (2, 0, 2, 3), (2, 1, 1, 1), (2, 2, 3, 2), (2, 7, 2, 3), (1, 33, 1, 2), (1, 7, 0, 2), (0, 7, 2, 2), (1, 2, 9, 5),
]  # fmt: skip


def special(*shape):
    values = torch.tensor([torch.inf, -torch.inf, 0.0, -0.0, 1.0] * 3 + [torch.nan])
    return values[torch.randint(len(values), shape)]


def problem(shape, draw=tied, resets=None, dtype=torch.float32):
    """r, s, state, reset, x0 as the backend takes them; resets: the share of steps that reset, or None."""
    B, T, *unit = shape
    drawn = draw(*shape, *unit[1:]) + 1, draw(*shape) - 1, draw(B, *unit), draw(B, *unit)
    r, s, state, x0 = (a.to(DEVICE, dtype) for a in drawn)
    return (r, s, state, None, None) if resets is None else (r, s, state, torch.rand(B, T, device=DEVICE) < resets, x0)


def gradient_like(x, draw):
    values = torch.randint(-4, 5, x.shape) if draw is tied else torch.randn(x.shape)
    return values.to(x)


def definition(grad, r, s, state, reset, x0, scan=reference_scan):
    """The gradients of r, s, state and x0, by autograd of the loop."""
    leaves = [None if a is None else a.detach().clone().requires_grad_() for a in (r, s, state, x0)]
    x = scan(*leaves[:3], reset, leaves[3])
    inputs = [a for a in leaves if a is not None]
    found = torch.autograd.grad(x, inputs, grad, allow_unused=True, materialize_grads=True)
    return *found, *[None] * (4 - len(found))


class SharedMaximum(torch.autograd.Function):
    """amax(-1). Its gradient differs from torch's where it is NaN: only those that attain the maximum get it."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a, a.amax(-1, keepdim=True))
        return a.amax(-1)

    @staticmethod
    def backward(ctx, grad):
        a, x = ctx.saved_tensors
        count = (a == x).sum(-1, keepdim=True)
        return torch.where(a == x, grad.unsqueeze(-1) / count, torch.where(count == 0, torch.nan, 0.0).to(grad))


def scan_with_nan(r, s, x, reset, x0):
    """`reference_scan` with a gradient that says what becomes of a NaN in degree n."""
    if r.dim() == 3:
        return reference_scan(r, s, x, reset, x0)
    wide = torch.promote_types(r.dtype, torch.float32)
    r, x, states = r.to(wide), x.to(wide), []
    for t in range(r.shape[1]):
        x = torch.where(reset[:, t, None, None], x0.to(wide), x)
        candidates = torch.cat([torch.minimum(r[:, t], x.unsqueeze(-2)), s[:, t].to(wide).unsqueeze(-1)], -1)
        states.append(x := SharedMaximum.apply(candidates))
    return torch.stack(states, 1).to(s.dtype)


def assert_same_gradients(actual, expected, exactly=(True, True, True, True)):
    for one, other, exact in zip(actual, expected, exactly, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            assert one.is_contiguous()
            torch.testing.assert_close(one, other, equal_nan=True, **({"rtol": 0, "atol": 0} if exact else {}))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("resets", [None, 0.3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_states_are_those_of_the_loop_bit_for_bit(shape, resets, chunk):
    inputs = problem(shape, resets=resets)
    assert_same(gpu.forward(*inputs, chunk=chunk), reference_scan(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("resets", [None, 0.3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gradients_are_those_of_the_loop_with_ties_shared(shape, resets, chunk):
    inputs = problem(shape, resets=resets)
    x = reference_scan(*inputs)
    grad = gradient_like(x, tied)
    found = gpu.backward(grad, *inputs[:2], x, *inputs[2:], chunk=chunk)
    assert_same_gradients(found, definition(grad, *inputs), exactly=[len(shape) == 3] * 4)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("draw", [continuous, tied, special])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 7, 5), (1, 7, 1, 3)], ids=str)
def test_every_type_and_value_goes_as_in_the_loop(shape, dtype, draw, chunk):
    inputs = problem(shape, draw, 0.2, dtype)
    x = gpu.forward(*inputs, chunk=chunk)
    assert_same(x, reference_scan(*inputs))
    assert not (x.signbit() & (x == 0)).any()
    grad = gradient_like(x, draw)
    found = gpu.backward(grad, *inputs[:2], x, *inputs[2:], chunk=chunk)
    # Degree n sums in an order of its own, chunks sum the gradient of x0, the interpreter truncates to bfloat16.
    exact = len(shape) == 3 and not (dtype == torch.bfloat16 and DEVICE == "cpu")
    expected = definition(grad, *inputs, scan=scan_with_nan)
    assert_same_gradients(found, expected, exactly=[exact] * 3 + [exact and chunk == 0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_zero_is_always_positive(dtype):
    zeros = -torch.zeros(1, 2, 3, dtype=dtype, device=DEVICE)
    assert not gpu.forward(zeros, zeros, zeros[:, 0], None, None).signbit().any()
    r, s = gpu.compose(zeros, zeros, None, None)
    assert not r.signbit().any()
    assert not s.signbit().any()


@pytest.mark.parametrize("shape", [(2, 10, 5), (2, 10, 2, 2)], ids=str)
@pytest.mark.parametrize("held", ["everywhere", "in some units", "nowhere"])
def test_a_gradient_crosses_every_chunk_that_a_latch_was_held_through(shape, held):
    r, s, state, _, _ = problem(shape, continuous)
    latched = {"everywhere": state == state, "in some units": state > 0, "nowhere": state != state}[held].unsqueeze(1)
    s = torch.where(latched, -10.0, s + 10)
    r = torch.where(latched if r.dim() == 3 else latched.unsqueeze(-1), 10.0, r)
    x = gpu.forward(r, s, state, None, None, chunk=0)
    assert_same(gpu.forward(r, s, state, None, None, chunk=3), x)
    grad = torch.randn_like(x)
    alone = gpu.backward(grad, r, s, x, state, None, None, chunk=0)
    assert_same_gradients(gpu.backward(grad, r, s, x, state, None, None, chunk=3), alone)
    assert_same_gradients(alone, definition(grad, r, s, state, None, None), exactly=[len(shape) == 3] * 4)
    assert (alone[2] != 0).any().item() == (held != "nowhere")


@pytest.mark.parametrize("shape", [(1, 12, 3), (1, 12, 2, 2)], ids=str)
def test_a_nan_goes_through_every_chunk_and_stops_at_a_reset(shape):
    r, s, state, _, x0 = problem(shape, continuous, 0.0)
    r[:, 1] = torch.nan
    reset = torch.zeros(1, 12, dtype=torch.bool, device=DEVICE)
    reset[:, 8] = True
    inputs = (r, s, state, reset, x0)
    x = gpu.forward(*inputs, chunk=3)
    assert_same(x, reference_scan(*inputs))
    assert x[:, 1:8].isnan().all()
    assert not x[:, 8:].isnan().any()
    grad = torch.randn_like(x)
    found = gpu.backward(grad, r, s, x, state, reset, x0, chunk=3)
    assert_same_gradients(found, gpu.backward(grad, r, s, x, state, reset, x0, chunk=0))
    assert_same_gradients(found, definition(grad, *inputs, scan=scan_with_nan), exactly=[len(shape) == 3] * 4)


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("shape", [(2, 7, 5), (1, 7, 1, 2)], ids=str)
def test_where_every_step_resets_each_starts_from_x0(shape, chunk):
    r, s, state, reset, x0 = inputs = problem(shape, tied, 1.0)
    x = gpu.forward(*inputs, chunk=chunk)
    for t in range(shape[1]):
        assert_same(x[:, t], apply(r[:, t], s[:, t], x0) + 0.0)
    grad = gradient_like(x, tied)
    found = gpu.backward(grad, r, s, x, state, reset, x0, chunk=chunk)
    assert_same_gradients(found, definition(grad, *inputs), exactly=[len(shape) == 3] * 4)
    assert not found[2].any()


@pytest.mark.parametrize("N", [1, 3])
def test_padding_takes_no_part_in_a_tie_at_minus_infinity(N):
    r, s = (torch.full((1, 2, 1, *sides), -torch.inf, device=DEVICE) for sides in [(N, N), (N,)])
    inputs = (r, s, torch.zeros_like(s[:, 0]), None, None)
    x = gpu.forward(*inputs)
    assert_same(x, reference_scan(*inputs))
    found = gpu.backward(torch.ones_like(x), r, s, x, *inputs[2:])
    assert_same_gradients(found, definition(torch.ones_like(x), *inputs), exactly=[False] * 4)


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_goes_as_in_the_loop(value, chunk):
    inputs = problem((2, 7, 5))
    x = reference_scan(*inputs)
    grad = torch.randn_like(x)
    grad[0, 2], grad[1, 6] = value, -value
    found = gpu.backward(grad, *inputs[:2], x, *inputs[2:], chunk=chunk)
    assert_same_gradients(found, definition(grad, *inputs))


@pytest.mark.parametrize("chunk", [0, 3])
def test_slices_and_expansions_are_read_where_they_are(chunk):
    fused, x0 = torch.randn(2, 7, 10, device=DEVICE), torch.randn(5, device=DEVICE).expand(2, 5)
    reset = (torch.rand(7, 2, device=DEVICE) < 0.3).T
    r, s = fused[..., :5], fused[..., 5:]
    for name, tensor in {"r": r, "s": s, "reset": reset}.items():
        assert gpu.strided("bt", **{name: tensor})[name] is tensor
    assert gpu.strided("b", x0=x0)["x0"] is x0
    check = torch.ones((), device=DEVICE).expand(2, 7, 5)  # as sum().backward() gives it
    for inputs in [(r, s, x0, reset, x0), (r.mT.contiguous().mT, s.flip(1), x0, reset, x0)]:
        x = gpu.forward(*inputs, chunk=chunk)
        assert_same(x, reference_scan(*inputs))
        found = gpu.backward(check, *inputs[:2], x, *inputs[2:], chunk=chunk)
        assert_same_gradients(found, definition(check, *inputs))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_composed_steps_do_not_depend_on_the_bracketing(shape, chunk):
    r, s, _, _, _ = problem(shape)
    for actual, expected in zip(gpu.compose(r, s, None, None, chunk), collapse(r, s), strict=True):
        assert_same(actual, expected + 0.0)


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("shape", [(2, 7, 5), (1, 7, 1, 3)], ids=str)
def test_the_composed_step_takes_every_value_where_the_loop_takes_it(shape, chunk):
    r, s, state, _, _ = problem(shape, special)
    composed = gpu.compose(r, s, None, None, chunk)
    assert_same(apply(*composed, state) + 0.0, reference_scan(r, s, state)[:, -1])


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 7, 2, 3)], ids=str)
def test_a_reset_makes_the_composed_step_constant(shape, chunk):
    r, s, state, reset, x0 = problem(shape, continuous, 0.0)
    reset[0, 5] = True
    R, S = gpu.compose(r, s, reset, x0, chunk=chunk)
    assert (R[0] == -torch.inf).all()
    assert (R[1] > -torch.inf).any()
    assert_same(apply(R, S, state), reference_scan(r, s, state, reset, x0)[:, -1])


def test_unfit_says_why(monkeypatch):
    r = torch.zeros(1, 1, 1)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert gpu.unfit(r) is None
    assert "degree 257" in gpu.unfit(torch.zeros(1, 1, 1, 257, 257))
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert gpu.unfit(r) == "triton is not installed; pip install triton"
    monkeypatch.delenv("TRITON_INTERPRET")
    assert gpu.unfit(r).startswith("r is on cpu")


@pytest.mark.parametrize(
    ("rows", "T", "chunks"), [(4096, 4096, 1), (1, 100, 1), (1, 1 << 20, 800), (64, 2048, 12), (1, 4096, 64)]
)
def test_time_is_cut_when_the_rows_alone_would_leave_the_gpu_idle(monkeypatch, rows, T, chunks):
    processors = type("Properties", (), {"multi_processor_count": 100})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: processors)
    length = gpu._chunk_length(rows, T, torch.device("cuda"))
    assert -(-T // length) == pytest.approx(chunks, rel=0.05)


def test_triton_is_not_imported_before_it_is_used():
    run("import sys, latchwork.ops.triton.scan; assert 'latchwork.ops.triton.scan_kernels' not in sys.modules")


COMPILE = r"""
import sys, torch
from ahead_of_time import replace
from latchwork.ops.triton import scan as gpu, scan_kernels as gpu_kernels

replace(gpu_kernels, ["scan_kernel", "compose_kernel", "backward_kernel", "carry_kernel"])
dtypes = [getattr(torch, name) for name in sys.argv[2:]]
for dtype in dtypes:
    for s in [torch.zeros(2, 8, 40, dtype=dtype), torch.zeros(2, 8, 3, 5, dtype=dtype)]:
        r = s if s.dim() == 3 else s.unsqueeze(-1).repeat(1, 1, 1, 1, s.shape[-1])
        reset = torch.zeros(2, 8, dtype=torch.bool)
        x = gpu.forward(r, s, s[:, 0], reset, s[:, 0], chunk=4)
        gpu.backward(x, r, s, x, s[:, 0], reset, s[:, 0], chunk=4)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "dtypes"), [("80", ["float32", "float64", "float16"]), ("90", ["float32", "bfloat16"])]
)
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(capability, dtypes, tmp_path):
    printed = run(COMPILE, capability, *dtypes, TRITON_CACHE_DIR=str(tmp_path))
    assert set(printed.split()) == {"scan_kernel", "compose_kernel", "backward_kernel", "carry_kernel"}
