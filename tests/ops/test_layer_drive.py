"""What a layer does before its recurrence, by the kernel, is what its parts do, to rounding."""

import copy
import functools
import itertools

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_cases import LAYOUTS, assert_close, assert_same
from torch import nn

from latchwork import MinMaxLayer, MinMaxNeuron
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward, fast_layer
from latchwork.ops import layer as ops
from latchwork.ops.cpu.kernel import empty
from reset_cases import RESETS, make_reset

pytestmark = pytest.mark.usefixtures("one_thread")

EPSILON = 0.5  # with a norm's own, which is small, the gradient of a narrow row has few digits in float32
KINDS = {
    "norm_type": ["layernorm", "rmsnorm", "none"],
    "conv": [BasicConv, GatedConv],
    "ffn": [FeedForward, GatedFeedForward],
    "act_fn": list(ops.ACTIVATIONS),
    "output_gate": [False, True],
}
each_conv = pytest.mark.parametrize("conv", KINDS["conv"])


def make_layer(
    d=7, D=5, *, norm_type="layernorm", conv=BasicConv, ffn=GatedFeedForward, act_fn="relu", output_gate=True
):
    """Weights of a size at which values stay near 1; nothing at zero, so that nothing is forgotten."""
    neuron = MinMaxNeuron(d, D, output_gate=output_gate, train_init=True)
    layer = MinMaxLayer(conv=conv(d), ffn=ffn(d, act_fn=act_fn, dropout=0.0), neuron=neuron, norm_type=norm_type)
    with torch.no_grad():
        for value in layer.parameters():
            value.copy_(torch.randn(value.shape) / (value.shape[-1] ** 0.5 if value.dim() == 2 else 1))
    for part in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
        part.eps = EPSILON
    return layer


def run(layer, u, first=None, reset=None, dropout=0.0):
    layer.ffn.dropout.p = dropout
    return ops.layer_drive(
        u, first, reset, None, fast_layer.Parts.of(layer).weights(), fast_layer.Parts.of(layer).options()
    )[0]


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, u):
        return u * self.factor


def define(layer, u, first=None, reset=None, mask=None):
    """By the layer's parts. mask: what dropout multiplies with, written out."""
    if mask is not None:
        layer = copy.copy(layer)
        layer._modules = {**layer._modules, "ffn": copy.copy(layer.ffn)}
        layer.ffn._modules = {**layer.ffn._modules, "dropout": Times(mask)}
    return layer.drive(u, first, reset)


@functools.lru_cache(maxsize=1)
def widen(layer):
    return copy.deepcopy(layer).double()


def is_near_a_kink(layer, u, first, reset):
    """Whether the input of some relu is so near to 0 that rounding may change the relu's gradient."""
    inputs = []
    handle = layer.ffn.up.register_forward_hook(lambda part, given, output: inputs.append(output))
    with torch.no_grad():
        define(layer, u, first, reset)
    handle.remove()
    return layer.ffn.act_fn == "relu" and inputs[0].numel() > 0 and inputs[0].abs().min() < 3e-6


def make_inputs(layer, B, T, carried=False, reset="never"):
    d = layer.neuron.d_model
    made = make_reset(reset, B, T) if isinstance(reset, str) else reset
    while True:
        u, first = torch.randn(B, T, d), torch.randn(B, d) if carried else None
        if not is_near_a_kink(widen(layer), u.double(), None if first is None else first.double(), made):
            return u, first, made


def drive_and_gradients(function, layer, u, first, reset, grad, **more):
    u, first = (None if each is None else each.detach().requires_grad_() for each in (u, first))
    z = function(layer, u, first, reset, **more)
    named = {"u": u} | ({} if first is None else {"first": first}) | dict(layer.named_parameters())
    wanted = [name for name in named if not name.startswith(("neuron.output", "neuron.x0"))]
    found = torch.autograd.grad(z, [named[name] for name in wanted], grad)
    return {"z": z.detach()} | dict(zip(wanted, found, strict=True))


def assert_drive_is_that_of_the_parts(layer, u, first, reset, grad=None, dropout=0.0, mask=None, tolerance=1e-5):
    grad = torch.randn(*u.shape[:2], layer.neuron.projection.out_features) if grad is None else grad
    actual = drive_and_gradients(run, layer, u, first, reset, grad, dropout=dropout)
    first = None if first is None else first.double()
    expected = drive_and_gradients(define, widen(layer), u.double(), first, reset, grad.double(), mask=mask)
    assert_close(actual, expected, tolerance)


def test_the_memory_that_the_kernel_is_given_holds_nan():
    assert empty(torch.Size((3, 5)), torch.zeros(1)).isnan().all()


@st.composite
def layers(draw):
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    torch.set_num_threads(draw(st.integers(1, 3)))
    widths = st.one_of(st.integers(1, 40), st.sampled_from([90, 128]))
    options = {name: draw(st.sampled_from(each)) for name, each in KINDS.items()}
    layer = make_layer(draw(widths), draw(st.integers(1, 20)), **options)
    rows = st.tuples(st.integers(0, 4), st.integers(0, 60)) | st.tuples(st.integers(1, 3), st.integers(95, 200))
    B, T = draw(rows | st.tuples(st.integers(95, 200), st.integers(1, 3)))
    return layer, *make_inputs(layer, B, T, draw(st.booleans()), draw(st.sampled_from(RESETS)))


@given(case=layers())
def test_any_drive_and_its_gradients_are_those_of_the_parts(case):
    assert_drive_is_that_of_the_parts(*case, tolerance=3e-5)


@pytest.mark.slow
@pytest.mark.parametrize("norm_type", KINDS["norm_type"])
@each_conv
def test_every_kind_of_layer_at_every_number_of_rows_and_width(conv, norm_type):
    sizes = [(1, 1, 1), (2, 1, 95), (7, 1, 96), (7, 96, 1), (8, 1, 97), (33, 2, 48), (90, 1, 193), (128, 3, 9)]
    for (d, B, T), ffn, act_fn in itertools.product(sizes, KINDS["ffn"], KINDS["act_fn"]):
        layer = make_layer(d, 5, norm_type=norm_type, conv=conv, ffn=ffn, act_fn=act_fn)
        for carried, reset in [(False, "never"), (True, "random"), (True, "everywhere")]:
            assert_drive_is_that_of_the_parts(layer, *make_inputs(layer, B, T, carried, reset), tolerance=3e-5)


@each_conv
@pytest.mark.parametrize(("B", "T", "resets"), [(1, 401, []), (1, 400, [199, 200, 201]), (2, 200, [0]), (133, 3, [1])])
def test_where_two_threads_meet_the_drive_is_that_of_the_parts(B, T, resets, conv):
    torch.set_num_threads(2)
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, resets] = True
    layer = make_layer(9, 2, conv=conv)
    assert_drive_is_that_of_the_parts(layer, *make_inputs(layer, B, T, True, reset))


@each_conv
def test_a_drive_is_repeated_bit_for_bit_and_its_values_on_any_number_of_threads(conv):
    layer = make_layer(33, 5, conv=conv)
    inputs, grad = make_inputs(layer, 3, 401, True, "random"), torch.randn(3, 401, 15)
    values = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        twice = []
        for _ in range(2):
            torch.manual_seed(3)
            twice.append(drive_and_gradients(run, layer, *inputs, grad, dropout=0.3))
        assert_same(*twice)
        values.append(twice[0]["z"])
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], values[2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_inputs_of_a_drive_and_of_its_gradient_do_not_matter(layout):
    layer = make_layer()
    given = (LAYOUTS[layout](each) for each in (*make_inputs(layer, 3, 13, True, "random"), torch.randn(3, 13, 15)))
    given = list(given)
    actual = drive_and_gradients(run, layer, *given)
    assert_same(actual, drive_and_gradients(run, layer, *(each.contiguous() for each in given)))


def test_strides_of_weights_do_not_matter():
    layer = make_layer()
    u, first, reset = make_inputs(layer, 3, 13, True, "random")
    expected = run(layer, u, first, reset)
    for part in layer.modules():
        for name, value in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(value.detach().repeat_interleave(2, -1)[..., ::2]))
    assert_drive_is_that_of_the_parts(layer, u, first, reset)
    assert torch.equal(run(layer, u, first, reset), expected)


@pytest.mark.parametrize("wanted", ["u", "first", "conv.weight", "neuron.projection.bias"])
def test_a_gradient_of_a_drive_is_the_same_when_no_other_is_wanted(wanted):
    layer = make_layer()
    u, first, reset = make_inputs(layer, 3, 13, True, "random")
    grad = torch.randn(3, 13, 15)
    expected = drive_and_gradients(run, layer, u, first, reset, grad)[wanted]
    layer.requires_grad_(False)
    leaf = {"u": u, "first": first, **dict(layer.named_parameters())}[wanted].requires_grad_()
    (found,) = torch.autograd.grad(run(layer, u, first, reset), leaf, grad)
    assert torch.equal(found, expected)


def test_without_a_gradient_a_drive_is_the_same():
    layer = make_layer(33)
    inputs = make_inputs(layer, 3, 40, True, "random")
    with torch.no_grad():
        z = run(layer, *inputs)
    assert not z.requires_grad
    assert torch.equal(z, run(layer, *inputs))


@each_conv
@pytest.mark.parametrize("norm_type", KINDS["norm_type"])
def test_a_nan_reaches_its_own_step_and_the_next_and_no_other(norm_type, conv):
    layer = make_layer(norm_type=norm_type, conv=conv)
    u, _, reset = make_inputs(layer, 2, 120, reset=torch.arange(120).expand(2, 120) == 95)
    u[0, 10, 2] = u[1, 94, 3] = torch.nan  # a sequence begins at 95
    expected = torch.zeros(2, 120, dtype=torch.bool)
    expected[0, 10] = expected[0, 11] = expected[1, 94] = True
    z = run(layer, u, None, reset)
    assert torch.equal(z.isnan().all(-1), expected)
    assert torch.equal(z.isnan().any(-1), expected)
    assert run(layer, u, torch.full((2, 7), torch.nan), reset)[:, 0].isnan().all()


def test_a_nan_in_the_gradient_of_a_step_reaches_the_inputs_that_it_sees_and_no_other():
    layer = make_layer()
    u, first, reset = make_inputs(layer, 1, 120, True)
    grad = torch.randn(1, 120, 15)
    grad[0, 96, 4] = torch.nan
    found = drive_and_gradients(run, layer, u, first, reset, grad)["u"].isnan()
    expected = torch.zeros(1, 120, dtype=torch.bool)
    expected[0, 95:97] = True
    assert torch.equal(found.all(-1), expected)
    assert torch.equal(found.any(-1), expected)


@pytest.mark.parametrize("act_fn", KINDS["act_fn"])
@pytest.mark.parametrize("ffn", KINDS["ffn"])
def test_a_nan_in_a_weight_is_not_hidden_by_an_activation(ffn, act_fn):
    for name in ("ffn.up.weight", "ffn.down.weight", "conv.weight", "neuron.projection.weight"):
        layer = make_layer(norm_type="none", ffn=ffn, act_fn=act_fn)
        with torch.no_grad():
            layer.get_parameter(name)[0, 0] = torch.nan
        assert run(layer, torch.randn(2, 20, 7)).isnan().any(-1).all(), name


# ---- Dropout. The mask is a function of a seed, the row and the column, written out here a second time.


def draw_mask(seed, rows, d, p):
    """(rows, d): 0, or 1 / (1 - p)."""
    row = numpy.arange(rows, dtype=numpy.uint64)
    x = numpy.uint64(seed) + row * numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    key = ((x ^ (x >> numpy.uint64(31))) >> numpy.uint64(32)).astype(numpy.uint32)
    y = key[:, None] + numpy.arange(d, dtype=numpy.uint32) * numpy.uint32(0x9E3779B9)
    y = (y ^ (y >> numpy.uint32(16))) * numpy.uint32(0x85EBCA6B)
    y = (y ^ (y >> numpy.uint32(13))) * numpy.uint32(0xC2B2AE35)
    drawn = (y ^ (y >> numpy.uint32(16))) >> numpy.uint32(8)
    return torch.from_numpy(numpy.where(drawn >= int(float(numpy.float32(p)) * 2**24), 1 / (1 - p), 0.0))


def seed_to_come():
    """What the next call will draw from torch's generator."""
    state = torch.get_rng_state()
    seed = int(torch.randint(2**62, ()))
    torch.set_rng_state(state)
    return seed


@each_conv
@pytest.mark.parametrize(("B", "T", "threads", "p"), [(3, 13, 1, 0.1), (1, 97, 1, 0.5), (2, 200, 2, 0.9)])
def test_dropout_and_its_gradient_are_those_of_the_parts_with_the_mask_written_out(B, T, threads, p, conv):
    torch.set_num_threads(threads)
    layer = make_layer(9, 4, conv=conv)
    inputs, grad = make_inputs(layer, B, T, True, "random"), torch.randn(B, T, 12)
    mask = draw_mask(seed_to_come(), B * T, 9, p).view(B, T, 9)
    assert_drive_is_that_of_the_parts(layer, *inputs, grad, dropout=p, mask=mask, tolerance=3e-5)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_a_share_p_is_dropped_and_neighbours_independently(p):
    mask = draw_mask(seed_to_come(), 2000, 128, p)
    assert (mask == 0).double().mean().item() == pytest.approx(p, abs=0.004)
    for one, other in [(mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask[::2], mask[1::2])]:
        both = ((one == 0) & (other == 0)).double().mean().item()
        assert both == pytest.approx(p**2, abs=0.005)


def test_the_seed_of_dropout_comes_from_torchs_generator():
    layer = make_layer()
    inputs, results = make_inputs(layer, 3, 13), []
    for _ in range(2):
        torch.manual_seed(5)
        results.append([run(layer, *inputs, 0.5) for _ in range(2)])
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(*results[0])


def test_without_dropout_no_random_number_is_drawn():
    layer = make_layer()
    inputs = make_inputs(layer, 3, 13)
    before = torch.get_rng_state()
    run(layer, *inputs)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropping_everything_leaves_what_is_beside_the_feed_forward():
    layer = make_layer()
    u, first, reset = make_inputs(layer, 3, 13, True)
    expected = define(layer, u, first, reset, mask=torch.zeros(3, 13, 7)).detach()
    assert_close({"z": run(layer, u, first, reset, dropout=1.0).detach()}, {"z": expected})


# ---- As an operation of torch; test_layer_operation.py has more.


def test_a_second_derivative_of_a_drive_is_a_clear_error():
    layer, u = make_layer(), torch.randn(2, 5, 7, requires_grad=True)
    (first,) = torch.autograd.grad(run(layer, u).sum(), u, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivative.*use_backend"):
        first.sum().backward()


def test_changing_the_input_of_a_drive_in_between_is_found_out():
    layer, u = make_layer(), torch.randn(2, 5, 7, requires_grad=True) * 1
    z = run(layer, u)
    u.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_what_the_kernel_cannot_take_is_said():
    fine = torch.zeros(2), None, torch.zeros(2, dtype=torch.bool), nn.Parameter(torch.zeros(2))
    assert ops.unfit(*fine) is None
    assert "float64 on cpu" in ops.unfit(*fine, torch.zeros(2, dtype=torch.float64))
    assert "float32 on meta" in ops.unfit(*fine, torch.zeros(2, device="meta"))
    assert "a subclass" in ops.unfit(*fine, torch.zeros(2).as_subclass(type("Buffer", (torch.Tensor,), {})))
