"""The C++ kernels of the baselines against their definitions in torch."""

import pytest
import torch

from latchwork.baselines import make_baseline
from latchwork.baselines.kernel import LinearMap
from latchwork.baselines.kernel import run as run_kernel
from latchwork.baselines.kernel_cases import KERNELS, normal, slstm
from latchwork.baselines.linear import Norm, given, linear
from latchwork.baselines.mamba_mixer import KERNEL_SEGMENT
from latchwork.baselines.mlstm_scan import KERNEL_CHUNK
from latchwork.ops.cpu import kernel
from latchwork.ops.dispatch import use_backend

pytestmark = [
    pytest.mark.skipif(kernel.MISSING is not None, reason="there is no C++ kernel"),
    # Raised by torch itself, where mlstm_kernels compiles what is for GPUs only.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]
SIZES = [(1, 1, 1), (2, 7, 5), (3, KERNEL_SEGMENT, 16), (2, KERNEL_CHUNK + 5, 17), (17, 9, 33)]  # B, T, D


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_equals_its_definition_in_float64_with_all_gradients(kind, sizes, threads):
    torch.manual_seed(0)
    run, given = KERNELS[kind](*sizes)
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        for dtype in (torch.float32, torch.float64):
            inputs = [each.to(dtype).requires_grad_() for each in given]
            outputs = run(*inputs)
            generator = torch.Generator().manual_seed(1)
            weights = [torch.randn(each.shape, generator=generator).to(dtype) for each in outputs]
            found.append([*outputs, *torch.autograd.grad(outputs, inputs, weights)])
    finally:
        torch.set_num_threads(before)
    for here, there in zip(*found, strict=True):
        scale = max(1.0, float(there.detach().abs().max()))
        torch.testing.assert_close(here.double(), there, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("kind", ["mamba-s", "slstm-s", "mlstm-s", "xlstm-l-s", "gru-s", "transformer-s"])
def test_a_model_streams_with_the_kernels_as_in_one_call_and_as_without_them(kind):
    if kind not in ("gru-s", "transformer-s"):
        pytest.importorskip("transformers" if kind == "mamba-s" else "xlstm")
    torch.manual_seed(0)
    model, tokens = make_baseline(kind, 20).eval(), torch.randint(20, (2, 150))
    with torch.no_grad():
        whole = model(tokens)[0]
        pieces = torch.cat([logits for logits, _ in model.stream(tokens, chunk_size=37)], 1)
        with use_backend("torch"):
            plain = model(tokens)[0]
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-4)
    torch.testing.assert_close(plain, whole, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_is_a_sound_operation_of_torch(kind):
    _, given = KERNELS[kind](2, 9, 5)
    if kind == "blocks":
        given[0] = given[0][..., 2:]
    if kind in ("linear", "blocks"):
        given += [None] * 6 + [0.0, 1, False, "silu", False, 0.0, False]
    if kind == "gated":
        given[3:] = [*[None] * 4, given[3], torch.tensor(5), 0.0, 1, False, "gelu", True, 0.2, False]
    if kind == "dressed":
        u, *rest, weight = given
        given = [u, weight, None, *rest, torch.tensor(5), 1e-3, 3, True, "sigmoid", False, 0.2, True]
    if kind == "feedforward":
        u, norm, up, down, *biases = given
        given = [u, norm, up, biases[0], down, biases[1], torch.tensor(5), 1e-3, True, "gelu", 0.2]
    if kind.startswith("attention"):
        given = [*given[:2], given[2][..., 1:], 3, 20]
    if kind == "slstm":
        given.append(torch.zeros(2, 2, 5))
    if kind == "mlstm":
        given += [torch.zeros(2, 3), 0.4, 1e-6]
    if kind == "mlstm_mixer":
        given[7] = normal(4, 80)  # of both sources of q, k and v
        given += [torch.zeros(2, 2), 1e-2]
    given += (
        []
        if kind in ("linear", "blocks", "gated", "dressed", "feedforward") or kind.startswith("attention")
        else [True]
    )
    names = {
        "mamba": "mamba_mixer",
        **dict.fromkeys(["blocks", "gated", "dressed"], "linear"),
        "attention_window": "attention",
    }
    name = getattr(torch.ops.latchwork, names.get(kind, kind))
    given = [
        each.requires_grad_() if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in given
    ]
    torch.library.opcheck(
        name.default, tuple(given), test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
    )


def test_a_strided_input_is_read_where_it_stands():
    run, (mapped, *given) = slstm(2, 9, 5)
    wide = torch.cat([normal(2, 9, 3), mapped], -1)
    for here, there in zip(run(wide[..., 3:], *given), run(mapped, *given), strict=True):
        assert torch.equal(here, there)


def test_a_convolution_needs_no_bias():
    run, given = slstm(2, 9, 5)
    inputs = [None if i == 3 else each.requires_grad_() for i, each in enumerate(given)]
    grads = torch.autograd.grad(run(*inputs)[0].sum(), [each for each in inputs if each is not None])
    inputs[3] = torch.zeros(10, requires_grad=True)
    expected = torch.autograd.grad(run(*inputs)[0].sum(), inputs)
    for here, there in zip(grads, [*expected[:3], *expected[4:]], strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize("outputs", [2, 4, 8, 15])
@pytest.mark.parametrize("rows", [97, 98, 193, 14500])
def test_a_linear_map_writes_nothing_behind_its_last_row(rows, outputs):
    x, weight = normal(rows, 30), normal(outputs, 30)
    memory = torch.full((rows * outputs + 64,), 7.0)
    values = given((x, weight, *[None] * 7), (0.0, 1, False, "silu", False, 0.0, False))
    run_kernel("linear", LinearMap, **values, y=memory[: rows * outputs].view(rows, outputs))
    torch.testing.assert_close(memory[: rows * outputs].view(rows, outputs), x @ weight.T)
    assert (memory[rows * outputs :] == 7).all()


def test_a_second_derivative_is_an_error_that_says_so():
    u = torch.randn(1, 3, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(linear(u, torch.randn(4, 4, requires_grad=True)).sum(), u, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        grad.sum().backward()


def test_a_kernel_lets_a_nan_through():
    for kind in KERNELS:
        run, given = KERNELS[kind](2, 9, 5)
        given[0].view(-1)[1] = float("nan")
        assert run(*given)[0].isnan().any(), kind


@pytest.mark.parametrize("before", [True, False])
def test_dropout_multiplies_by_one_mask_forth_and_back(before):
    D, p, rows = 100, 0.25, 200
    u, weight, norm = (normal(*each).requires_grad_() for each in [(rows, D), (D, D), (D,)])

    def run(*given, **options):
        torch.manual_seed(3)
        return linear(*given, dropout=p, drops_before=before, **options)

    mask = run(torch.ones(rows, D), torch.eye(D))
    assert set(mask.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - p)))}
    assert abs(float((mask == 0).float().mean()) - p) < 0.02
    here = run(u, weight, norm=Norm(norm, 1e-5, heads=2))
    there = linear(u * mask if before else u, weight, norm=Norm(norm, 1e-5, heads=2))
    there = there if before else there * mask
    torch.testing.assert_close(here, there)
    grad = normal(rows, D)
    for each in zip(*(torch.autograd.grad(y, [u, weight, norm], grad) for y in (here, there)), strict=True):
        torch.testing.assert_close(*each, rtol=0, atol=1e-4)
