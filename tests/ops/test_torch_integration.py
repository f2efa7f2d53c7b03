"""The recurrence inside torch: custom ops, compiled graphs, autocast."""

import shutil

import pytest
import torch
from scan_cases import (
    BACKENDS,
    assert_same,
    assert_same_gradients,
    assert_same_states,
    inner,
    make_case,
    run,
    tied,
)
from torch._dynamo.testing import CompileCounterWithBackend

from latchwork import minmax_scan, minmax_step

pytestmark = pytest.mark.usefixtures("fresh_compiler")

both_degrees = pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 3, 2)], ids=["degree one", "degree n"])
each_backend = pytest.mark.parametrize("backend", BACKENDS)
resets = pytest.mark.parametrize("reset", ["never", "random"])


@each_backend
@both_degrees
@resets
@pytest.mark.parametrize("state", [False, True])
def test_the_op_passes_the_checks_of_torch(state, reset, shape, backend):
    r, s, start, when, x0 = inner(make_case(shape, reset=reset, state=state))
    leaves = [None if a is None else a.clone().requires_grad_() for a in (r, s, start, x0)]
    torch.library.opcheck(torch.ops.latchwork.minmax_scan.default, (*leaves[:3], when, leaves[3], backend))


@each_backend
@both_degrees
@resets
def test_the_op_of_the_gradient_passes_the_checks_of_torch(reset, shape, backend):
    r, s, state, when, x0 = inner(make_case(shape, reset=reset))
    x = torch.ops.latchwork.minmax_scan(r, s, state, when, x0, backend)
    arguments = (torch.randn_like(x), r, s, x, state, when, x0, backend)
    torch.library.opcheck(torch.ops.latchwork.minmax_scan_backward.default, arguments)


@each_backend
@both_degrees
def test_the_op_of_the_gradient_has_the_strides_that_a_compiler_was_promised(shape, backend):
    r, s, state, when, x0 = inner(make_case(shape, reset="random", layout="transposed"))
    x = torch.ops.latchwork.minmax_scan(r, s, state, when, x0, backend)
    grad = torch.randn_like(x).transpose(0, 1).contiguous().transpose(0, 1)
    arguments = (grad, r, s, x, state, when, x0, backend)
    torch.library.opcheck(torch.ops.latchwork.minmax_scan_backward.default, arguments, test_utils="test_faketensor")


def gradients(scan, case, grad):
    leaves = {name: case[name].clone().requires_grad_() for name in ("r", "s", "x0")}
    x = scan(**{**case, **leaves})
    return x.detach(), dict(zip(leaves, torch.autograd.grad(x, list(leaves.values()), grad), strict=True))


def assert_compiled_equals_eager(compiled, case, backend):
    grad = torch.randn_like(case["s"])
    x, found = gradients(lambda **a: compiled(**a, backend=backend), case, grad)
    x_eager, found_eager = gradients(lambda **a: minmax_scan(**a, backend=backend), case, grad)
    assert_same_states(x, x_eager)
    assert_same_gradients(found, found_eager)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@both_degrees
@resets
def test_a_compiled_graph_is_whole_and_equals_eager(reset, shape, backend):
    compiled = torch.compile(minmax_scan, fullgraph=True, backend="aot_eager")
    assert_compiled_equals_eager(compiled, make_case(shape, tied, reset=reset), backend)


@both_degrees
def test_a_compiled_graph_equals_eager_where_the_inputs_are_slices(shape):
    compiled = torch.compile(minmax_scan, fullgraph=True, backend="aot_eager")
    case = make_case(shape, tied, layout="fused", row=True)
    assert_compiled_equals_eager(compiled, case, "auto")


def test_one_graph_serves_every_length_and_batch():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(minmax_scan, fullgraph=True, backend=counter, dynamic=True)
    for B, T in [(2, 6), (3, 17), (5, 2)]:
        assert_compiled_equals_eager(compiled, make_case((B, T, 5), tied, reset="random"), "auto")
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of torch to itself, when inductor is first imported
def test_inductor_fuses_around_the_op_and_changes_nothing():
    def layer(u, x0):
        r, s = (u * 2 + 1).chunk(2, -1)
        return minmax_scan(r, s, x0) * 3

    leaves = [torch.randn(2, 6, 10, requires_grad=True), torch.randn(5, requires_grad=True)]
    compiled = torch.compile(layer, fullgraph=True)
    for one, other in zip(*(torch.autograd.grad(f(*leaves).sum(), leaves) for f in (compiled, layer)), strict=True):
        assert_same(one, other)
    assert_same(compiled(*leaves).detach(), layer(*leaves).detach())


@both_degrees
def test_a_compiled_step_equals_eager(shape):
    case = make_case(shape, tied)
    compiled = torch.compile(minmax_step, fullgraph=True, backend="aot_eager")
    arguments = case["r"][:, 0], case["s"][:, 0], case["x0"]
    assert_same_states(compiled(*arguments), minmax_step(*arguments))


@pytest.mark.parametrize("backend", ["auto", "reference", *BACKENDS])
@both_degrees
def test_under_autocast_x0_follows_the_type_of_r_and_s(shape, backend):
    case = make_case(shape, dtype=torch.bfloat16, state=True)
    wide = {name: case[name].float() + 1e-4 for name in ("x0", "state")}  # more digits than bfloat16 keeps
    x0 = wide["x0"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = minmax_scan(case["r"], case["s"], x0, state=wide["state"], backend=backend)
        x_from_x0 = minmax_scan(case["r"], case["s"], x0, backend=backend)
    narrow = {name: a.detach().bfloat16() for name, a in wide.items()}
    assert_same_states(x.detach(), run({**case, **narrow}, "reference"))
    x_from_x0.sum().backward()
    assert x0.grad.dtype == torch.float32
    expected = run({**case, **narrow, "state": None}, "reference", torch.ones_like(x))[1]["x0"].float()
    torch.testing.assert_close(x0.grad, expected)


def test_under_autocast_the_wider_of_r_and_s_is_kept():
    case = make_case((2, 6, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = minmax_scan(case["r"].bfloat16(), case["s"], case["x0"].bfloat16())
    narrow = {**case, "r": case["r"].bfloat16().float(), "x0": case["x0"].bfloat16().float()}
    assert_same_states(x, run(narrow, "reference"))


@both_degrees
def test_on_the_meta_device_only_the_shape_is_computed(shape):
    case = make_case(shape, dtype=torch.float16, reset="random")
    x = minmax_scan(**{name: None if a is None else a.to("meta") for name, a in case.items()})
    assert (x.shape, x.dtype, x.device.type) == (shape, torch.float16, "meta")


@each_backend
def test_inputs_that_were_saved_and_then_changed_are_found_out(backend):
    case = make_case((2, 6, 5))
    leaf = case["r"].clone().requires_grad_()
    r = leaf * 1
    x = minmax_scan(**{**case, "r": r}, backend=backend)
    with torch.no_grad():
        r.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()
