"""Bad input is refused at the door, by an error that names the argument."""

import pytest
import torch
from scan_cases import BACKENDS, make_case

from latchwork import minmax_scan, minmax_step
from latchwork.ops import dispatch
from latchwork.ops.cpu import kernel

ONE, N = (2, 4, 5), (2, 4, 3, 2)  # shapes of s
zeros = torch.zeros


def meta(*shape, **given):
    return torch.zeros(shape, device="meta", **given)


BAD = [  # degree, argument, its value, the error
    *[(ONE, "r", zeros(shape), ValueError) for shape in [(), (5,), (4, 5), (2, 4, 3, 5), (2, 4, 1, 1, 1, 1)]],
    *[(N, "r", zeros(shape), ValueError) for shape in [(2, 4, 3, 2, 3), (2, 4, 3, 0, 0), (2, 4, 3, 2)]],
    *[(ONE, "s", zeros(shape), ValueError) for shape in [(2, 4, 6), (2, 3, 5), (1, 4, 5), (2, 4), (2, 4, 5, 1)]],
    *[(N, "s", zeros(shape), ValueError) for shape in [(2, 4, 3, 3), (2, 4, 2, 2), (2, 4, 3), (2, 4, 3, 2, 2)]],
    *[(ONE, "x0", zeros(shape), ValueError) for shape in [(), (1,), (4,), (2,), (1, 5), (3, 5), (2, 4, 5)]],
    *[(N, "x0", zeros(shape), ValueError) for shape in [(2,), (3, 3), (2, 2), (1, 3, 2), (2, 4, 3, 2)]],
    *[(ONE, "state", zeros(shape), ValueError) for shape in [(4,), (1, 5), (2, 4, 5)]],
    *[(N, "state", zeros(shape), ValueError) for shape in [(3,), (1, 3, 2)]],
    *[(ONE, "r", zeros(ONE).to(dtype), TypeError) for dtype in [torch.int64, torch.bool, torch.complex64]],
    *[(ONE, "s", zeros(ONE).to(dtype), TypeError) for dtype in [torch.float64, torch.bfloat16, torch.int32]],
    (N, "s", zeros(N).double(), TypeError),
    (ONE, "x0", zeros(5).double(), TypeError),
    (ONE, "state", zeros(5).half(), TypeError),
    (ONE, "s", meta(*ONE), ValueError),
    (ONE, "x0", meta(5), ValueError),
    (ONE, "state", meta(5), ValueError),
    (ONE, "reset", meta(2, 4, dtype=torch.bool), ValueError),
    *[(ONE, "reset", zeros(2, 4).to(dtype), TypeError) for dtype in [torch.float32, torch.uint8, torch.int64]],
    *[(ONE, "reset", zeros(shape).bool(), ValueError) for shape in [(2,), (4,), (4, 2), (1, 4), (2, 5), (2, 4, 5)]],
    (N, "reset", zeros(2, 4, 3).bool(), ValueError),
]


def describe(value):
    return f"{tuple(value.shape)} {value.dtype} {value.device}" if isinstance(value, torch.Tensor) else str(value)


@pytest.mark.parametrize(("shape", "name", "value", "error"), BAD, ids=describe)
def test_the_error_names_the_argument_and_what_it_was(shape, name, value, error):
    case = make_case(shape)
    with pytest.raises(error, match=rf"^{name} must ") as raised:
        minmax_scan(**{**case, name: value})
    was = {"dtype": str(value.dtype), "device": str(value.device), "shape": str(tuple(value.shape))}
    assert any(each in str(raised.value).split("got")[-1] for each in was.values())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", ["r", "s", "x0", "state", "reset"])
def test_what_is_no_dense_tensor_is_refused_by_name(name):
    case = make_case(ONE, reset="random", state=True)
    for value, was in (
        (case[name].to_sparse(), "dense; got torch.sparse_coo"),
        (torch.nested.nested_tensor([case[name][0]]), "dense; got nested"),
        (case[name].tolist(), "a tensor; got list"),
    ):
        with pytest.raises(TypeError, match=rf"^{name} must be {was}"):
            minmax_scan(**{**case, name: value})


def test_an_unknown_backend_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match="backend 'cuda' is unknown; there are auto, reference, torch, cpu, triton"):
        minmax_scan(**make_case(ONE), backend="cuda")


def test_a_backend_that_cannot_run_is_never_replaced(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="backend 'triton' cannot run: r is on cpu"):
        minmax_scan(**make_case(ONE), backend="triton")
    with pytest.raises(ValueError, match="backend 'cpu' cannot run: r is on meta"):
        dispatch.choose("scan", "cpu", meta(*ONE))


def test_where_there_is_no_kernel_auto_takes_torch_and_cpu_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    case = make_case(ONE)
    assert dispatch.choose("scan", "auto", case["r"]) == "cpu"
    for name in ("MISSING", "_loaded"):
        monkeypatch.setattr(kernel, name, "there is no kernel")
    assert dispatch.choose("scan", "auto", case["r"]) == "torch"
    assert torch.equal(minmax_scan(**case), minmax_scan(**case, backend="reference"))
    with pytest.raises(ValueError, match="backend 'cpu' cannot run: there is no kernel"):
        minmax_scan(**case, backend="cpu")
    with pytest.raises(RuntimeError, match="there is no kernel"):
        kernel.isa()


BAD_STEPS = [  # shapes of r, s and x
    ("r and s", (5,), (5,), (5,)),
    ("r and s", (2, 4, 5), (2, 4, 5), (4, 5)),
    ("r and s", (2, 5), (2, 6), (2, 6)),
    ("r and s", (1, 5), (2, 5), (2, 5)),
    ("r and s", (2, 5, 5), (2, 5), (2, 5)),
    ("r and s", (2, 3, 2, 3), (2, 3, 2), (2, 3, 2)),
    ("r and s", (2, 3, 2), (2, 3, 2), (2, 3, 2)),
    ("x", (2, 5), (2, 5), (1, 5)),
    ("x", (2, 5), (2, 5), (2,)),
    ("x", (2, 5), (2, 5), (2, 4, 5)),
    ("x", (2, 3, 2, 2), (2, 3, 2), (2, 3)),
    ("x", (2, 3, 2, 2), (2, 3, 2), (3,)),
]


@pytest.mark.parametrize(("name", "r", "s", "x"), BAD_STEPS, ids=str)
def test_the_error_of_a_step_names_the_argument(name, r, s, x):
    with pytest.raises(ValueError, match=rf"^{name} must be .* got .*{'.*' if name == 'x' else ''}"):
        minmax_step(zeros(r), zeros(s), zeros(x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [ONE, N], ids=["degree one", "degree n"])
def test_a_second_gradient_is_refused_in_words(shape, backend):
    case = make_case(shape)
    case["r"].requires_grad_()
    (first,) = torch.autograd.grad(minmax_scan(**case, backend=backend).sum(), case["r"], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first.square().sum().backward()


@pytest.mark.parametrize("shape", [ONE, N], ids=["degree one", "degree n"])
def test_the_definition_has_the_second_gradient_that_the_error_promises(shape):
    case = make_case(shape)
    case["r"].requires_grad_()
    x = minmax_scan(**case, backend="reference")
    (first,) = torch.autograd.grad(x.square().sum(), case["r"], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), case["r"])
    assert second.shape == case["r"].shape
    assert second.any()


@pytest.mark.parametrize("name", ["s", "x"])
def test_a_step_of_mixed_or_wrong_dtypes_names_the_argument(name):
    step = {"r": torch.zeros(2, 3), "s": torch.zeros(2, 3), "x": torch.zeros(2, 3)}
    with pytest.raises(TypeError, match=f"{name} must have the dtype of r"):
        minmax_step(**{**step, name: step[name].double()})
    with pytest.raises(TypeError, match="r must be float32"):
        minmax_step(*(value.long() for value in step.values()))


def test_a_step_under_autocast_takes_the_wider_type():
    r, s, x = torch.randn(2, 3).bfloat16(), torch.randn(2, 3).bfloat16(), torch.randn(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(minmax_step(r, s, x), minmax_step(r, s, x.bfloat16()))
