"""The Triton kernels of moves equal torch's: on a GPU, or in Triton's interpreter where there is none."""

import pytest
import torch
from ahead_of_time import run
from move_cases import FORMS, make_problem
from scan_cases import DTYPES

from latchwork.ops.torch import moves as moves_torch
from latchwork.ops.triton import moves as moves_gpu

pytest.importorskip("triton", reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":  # as in test_gpu.py
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        import latchwork.ops.triton.moves_kernels  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of inf - inf
SHAPES = [(2, 0, 2, 3), (2, 1, 1, 1), (2, 7, 3, 2), (1, 3, 9, 5), (0, 3, 2, 2), (1, 3, 0, 2), (2, 4, 2, 9)]


def on_device(shape, form, resets, dtype=torch.float32, special=False):
    """The arguments of a backend's forward, and a gradient of small whole numbers: their sums have no order."""
    arguments = make_problem(*shape, form=form, reset=resets, dtype=dtype, special=special)
    grad = torch.randint(-4, 5, shape).to(dtype).to(DEVICE)
    return [each.to(DEVICE) if isinstance(each, torch.Tensor) else each for each in arguments], grad


def compare(arguments, grad, exactly=True):
    choice, state, s, reset, x0, sends = arguments
    x, expected = moves_gpu.forward(*arguments), moves_torch.forward(*arguments)
    torch.testing.assert_close(x, expected, rtol=0, atol=0, equal_nan=True)
    assert not (x.signbit() & (x == 0)).any()
    rest = (grad, choice, x, state, s, reset, x0, sends)
    for one, other in zip(moves_gpu.backward(*rest), moves_torch.backward(*rest), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.is_contiguous()
            torch.testing.assert_close(one, other, equal_nan=True, **({"rtol": 0, "atol": 0} if exactly else {}))


@pytest.mark.slow
@pytest.mark.parametrize("resets", [None, 0.3, 1.0])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states_and_gradients_are_those_of_torch(shape, form, resets):
    torch.manual_seed(0)
    compare(*on_device(shape, form, resets))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_value_goes_as_in_torch(dtype, form, special):
    torch.manual_seed(0)
    # The interpreter truncates to bfloat16 where it should round.
    compare(*on_device((2, 6, 2, 3), form, 0.2, dtype, special), exactly=dtype != torch.bfloat16)


@pytest.mark.parametrize("form", FORMS)
def test_other_layouts_are_read_where_they_are(form):
    torch.manual_seed(0)
    arguments, grad = on_device((2, 5, 3, 3), form, 0.3)
    arguments[0] = arguments[0].transpose(0, 1).contiguous().transpose(0, 1)
    arguments[1] = arguments[1][:1].expand_as(arguments[1])
    compare(arguments, grad.transpose(0, 1).contiguous().transpose(0, 1))
    compare(arguments, torch.ones((), device=DEVICE).expand(2, 5, 3, 3))


def test_unfit_names_weights(monkeypatch):
    weights = torch.zeros(1, 1, 1, 3, 4)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert moves_gpu.unfit(weights) is None
    assert "weights has degree 257" in moves_gpu.unfit(torch.zeros(1, 1, 1, 257, 258))
    monkeypatch.delenv("TRITON_INTERPRET")
    assert moves_gpu.unfit(weights).startswith("weights is on cpu")


COMPILE = r"""
import sys, torch
from ahead_of_time import replace
from latchwork.ops.triton import moves as moves_gpu, moves_kernels as moves_gpu_kernels

replace(moves_gpu_kernels, ["move_kernel", "move_back_kernel"])
for dtype in [getattr(torch, name) for name in sys.argv[2:]]:
    for sends, own in [(False, False), (False, True), (True, False)]:
        choice, state = torch.zeros(2, 8, 3, 5, dtype=torch.int64), torch.zeros(2, 3, 5, dtype=dtype)
        reset = torch.zeros(2, 8, dtype=torch.bool)
        s = state if own else None
        x = moves_gpu.forward(choice, state, s, reset, state, sends)
        moves_gpu.backward(x, choice, x, state, s, reset, state, sends)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtypes"), [("80", ["float32"]), ("90", ["bfloat16"])])
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(capability, dtypes, tmp_path):
    printed = run(COMPILE, capability, *dtypes, TRITON_CACHE_DIR=str(tmp_path))
    assert set(printed.split()) == {"move_kernel", "move_back_kernel"}
