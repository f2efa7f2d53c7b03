"""What a layer does before its recurrence, by the kernel: values and gradients of the definition, to rounding."""

import copy
import functools
import itertools

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from latchwork import MinMaxLayer, MinMaxNeuron
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward
from latchwork.modules.conv import shift
from latchwork.ops import drive
from latchwork.ops.cpu import empty

NORMS = ["layernorm", "rmsnorm", "none"]
CONVOLUTIONS = [BasicConv, GatedConv]
NETWORKS = [FeedForward, GatedFeedForward]
ACTIVATIONS = ["relu", "relu^2"]
EPSILON = 0.5  # a norm's own is so small that of a narrow row's gradient float32 has few digits
RESETS = {
    "never": lambda B, T: None,
    "random": lambda B, T: torch.rand(B, T) < 0.3,
    "everywhere": lambda B, T: torch.ones(B, T, dtype=torch.bool),
    "first": lambda B, T: torch.arange(T).expand(B, T) == 0,
}


@pytest.fixture(autouse=True)
def _one_thread(_settings):
    """Threads that wait for one another on a busy machine take longer than these small cases; some tests want more."""
    torch.set_num_threads(1)


def make_layer(d=7, D=5, norm="layernorm", conv=BasicConv, ffn=GatedFeedForward, act_fn="relu", output_gate=True):
    """Weights of a size at which values stay near 1; nothing at zero, so that nothing is forgotten."""
    neuron = MinMaxNeuron(d, D, output_gate=output_gate)
    layer = MinMaxLayer(conv=conv(d), ffn=ffn(d, act_fn=act_fn, dropout=0.0), neuron=neuron, norm_type=norm)
    with torch.no_grad():
        for value in layer.parameters():
            value.copy_(torch.randn(value.shape) / (value.shape[-1] ** 0.5 if value.dim() == 2 else 1))
    for part in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
        part.eps = EPSILON
    return layer


def weights_of(layer):
    norms = [(layer.norm_conv, "weight", "bias"), (layer.norm_ffn, "weight", "bias")]
    parts = [*norms, (layer.norm_neuron, "weight", "bias"), (layer.conv, "weight", "bias")]
    if isinstance(layer.conv, GatedConv):
        parts[3] = (layer.conv, "g", "bias")
    parts += [(each, "weight", "bias") for each in (layer.ffn.up, layer.ffn.down, layer.neuron.projection)]
    return drive.Weights(*(getattr(part, name, None) for part, *names in parts for name in names))


def run(layer, u, first=None, reset=None, dropout=0.0):
    norm = {nn.LayerNorm: "layernorm", nn.RMSNorm: "rmsnorm", nn.Identity: "none"}[type(layer.norm_conv)]
    options = drive.Options(
        norm=norm,
        epsilon=EPSILON,
        gated_ffn=isinstance(layer.ffn, GatedFeedForward),
        squared=layer.ffn.act_fn == "relu^2",
        dropout=dropout,
    )
    return drive.drive(u, first, reset, weights_of(layer), options)


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, u):
        return u * self.factor


def define(layer, u, first=None, reset=None, mask=None):
    """In plain torch. mask: what dropout multiplies with, written out."""
    if mask is not None:
        layer = copy.copy(layer)
        layer._modules = {**layer._modules, "ffn": copy.copy(layer.ffn)}
        layer.ffn._modules = {**layer.ffn._modules, "dropout": Times(mask)}
    v = layer.norm_conv(u)
    return layer.drive(u, v, shift(v, first, reset))


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


def make_case(layer, B, T, carried=False, reset="never"):
    d = layer.neuron.d_model
    made = RESETS[reset](B, T) if isinstance(reset, str) else reset
    while True:
        u, first = torch.randn(B, T, d), torch.randn(B, d) if carried else None
        if not is_near_a_kink(widen(layer), u.double(), None if first is None else first.double(), made):
            return u, first, made


def values_and_gradients(function, layer, u, first, reset, grad, **more):
    u, first = (None if each is None else each.detach().requires_grad_() for each in (u, first))
    z = function(layer, u, first, reset, **more)
    named = {"u": u} | ({} if first is None else {"first": first}) | dict(layer.named_parameters())
    wanted = [name for name in named if not name.startswith("neuron.output")]
    found = torch.autograd.grad(z, [named[name] for name in wanted], grad)
    return {"z": z.detach()} | dict(zip(wanted, found, strict=True))


def assert_close(actual, expected, tolerance=1e-5):
    """Relative to the largest entry, if that is more than 1: the sums are made of such numbers."""
    assert actual.keys() == expected.keys()
    for name in actual:
        one, other = actual[name].double(), expected[name].double()
        allowed = tolerance * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one, other, rtol=0, atol=allowed, msg=lambda text, name=name: f"{name}: {text}")


def assert_equals_definition(layer, u, first, reset, grad=None, dropout=0.0, mask=None, tolerance=1e-5):
    grad = torch.randn(*u.shape[:2], layer.neuron.projection.out_features) if grad is None else grad
    actual = values_and_gradients(run, layer, u, first, reset, grad, dropout=dropout)
    first = None if first is None else first.double()
    expected = values_and_gradients(define, widen(layer), u.double(), first, reset, grad.double(), mask=mask)
    assert_close(actual, expected, tolerance)


each_conv = pytest.mark.parametrize("conv", CONVOLUTIONS)
each_norm = pytest.mark.parametrize("norm", NORMS)


def test_the_memory_that_the_kernel_is_given_holds_nan():
    assert empty(torch.Size((3, 5)), torch.zeros(1)).isnan().all()


@pytest.mark.parametrize(
    ("norm", "conv", "ffn", "act_fn"), list(itertools.product(NORMS, CONVOLUTIONS, NETWORKS, ACTIVATIONS))
)
def test_values_and_gradients_equal_the_definition(norm, conv, ffn, act_fn):
    layer = make_layer(7, 5, norm, conv, ffn, act_fn)
    for carried, reset in itertools.product([False, True], ["never", "random", "first"]):
        assert_equals_definition(layer, *make_case(layer, 3, 13, carried, reset))


@each_norm
@each_conv
@pytest.mark.parametrize("d", [1, 2, 7, 33, 90, 128])
def test_every_width_equals_the_definition(d, conv, norm):
    layer = make_layer(d, 5, norm, conv, output_gate=d % 2 == 0)
    assert_equals_definition(layer, *make_case(layer, 2, 17, True, "random"))


@each_conv
@pytest.mark.parametrize(
    ("B", "T"), [(1, 1), (1, 2), (5, 1), (1, 95), (1, 96), (1, 97), (97, 1), (32, 3), (2, 48), (1, 193), (193, 1)]
)
def test_every_number_of_rows_equals_the_definition(B, T, conv):
    layer = make_layer(7, 3, conv=conv)
    for carried, reset in [(False, "never"), (True, "random"), (True, "everywhere")]:
        assert_equals_definition(layer, *make_case(layer, B, T, carried, reset))


@each_conv
@pytest.mark.parametrize(
    ("B", "T", "resets"),
    [(1, 401, []), (1, 400, [199]), (1, 400, [200]), (1, 400, [201]), (2, 200, []), (2, 200, [0]), (133, 3, [1])],
)
def test_where_two_threads_meet_values_and_gradients_equal_the_definition(B, T, resets, conv):
    torch.set_num_threads(2)
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, resets] = True
    layer = make_layer(9, 2, conv=conv)
    assert_equals_definition(layer, *make_case(layer, B, T, True, reset))


@each_conv
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_number_of_threads_changes_no_value(dropout, conv):
    layer = make_layer(33, 5, conv=conv)
    u, first, reset = make_case(layer, 3, 401, True, "random")
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        results.append(run(layer, u, first, reset, dropout))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@each_conv
@pytest.mark.parametrize(("B", "T"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("carried", [False, True])
def test_of_no_rows_the_result_is_empty_and_every_gradient_zero(carried, B, T, conv):
    layer = make_layer(conv=conv)
    u, first, reset = make_case(layer, B, T, carried, "random")
    found = values_and_gradients(run, layer, u, first, reset, torch.randn(B, T, 15))
    assert found["z"].shape == (B, T, 15)
    assert found["u"].shape == u.shape
    assert not any(each.any() for name, each in found.items() if name not in ("z", "u"))


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    choices = {
        "norm": NORMS,
        "conv": CONVOLUTIONS,
        "ffn": NETWORKS,
        "act_fn": ACTIVATIONS,
        "output_gate": [False, True],
    }
    options = {name: draw(st.sampled_from(each)) for name, each in choices.items()}
    d, D = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    layer = make_layer(d, D, **options)
    torch.set_num_threads(draw(st.integers(1, 3)))
    B, T = draw(st.tuples(st.integers(1, 4), st.integers(1, 60)) | st.tuples(st.integers(1, 3), st.integers(190, 200)))
    return layer, *make_case(layer, B, T, draw(st.booleans()), draw(st.sampled_from(list(RESETS))))


@given(case=cases())
def test_any_case_equals_the_definition(case):
    assert_equals_definition(*case, tolerance=3e-5)


LAYOUTS = {
    "time first": lambda a: a.transpose(0, 1).contiguous().transpose(0, 1),
    "every other": lambda a: a.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda a: a[:1].expand_as(a),
    "shifted": lambda a: torch.cat((a.flatten()[:1], a.flatten()))[1:].view_as(a),  # not aligned to vectors
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_inputs_and_of_the_incoming_gradient_do_not_matter(layout):
    layer = make_layer()
    u, first, reset, grad = (
        LAYOUTS[layout](each) for each in (*make_case(layer, 3, 13, True, "random"), torch.randn(3, 13, 15))
    )
    actual = values_and_gradients(run, layer, u, first, reset, grad)
    expected = values_and_gradients(run, layer, *(each.contiguous() for each in (u, first, reset, grad)))
    for name in actual:
        assert torch.equal(actual[name], expected[name]), name


def test_strides_of_weights_do_not_matter():
    layer = make_layer()
    u, first, reset = make_case(layer, 3, 13, True, "random")
    expected = run(layer, u, first, reset)
    for part in layer.modules():
        for name, value in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(value.detach().repeat_interleave(2, -1)[..., ::2]))
    assert_equals_definition(layer, u, first, reset)
    assert torch.equal(run(layer, u, first, reset), expected)


@pytest.mark.parametrize("wanted", ["u", "first", "conv.weight", "neuron.projection.bias"])
def test_a_gradient_is_the_same_when_no_other_is_wanted(wanted):
    layer = make_layer()
    u, first, reset = make_case(layer, 3, 13, True, "random")
    grad = torch.randn(3, 13, 15)
    expected = values_and_gradients(run, layer, u, first, reset, grad)[wanted]
    layer.requires_grad_(False)
    leaf = {"u": u, "first": first, **dict(layer.named_parameters())}[wanted].requires_grad_()
    (found,) = torch.autograd.grad(run(layer, u, first, reset), leaf, grad)
    assert torch.equal(found, expected)


def test_without_a_gradient_the_values_are_the_same():
    layer = make_layer(33)
    case = make_case(layer, 3, 40, True, "random")
    with torch.no_grad():
        z = run(layer, *case)
    assert not z.requires_grad
    assert torch.equal(z, run(layer, *case))


@each_conv
@each_norm
def test_a_nan_reaches_its_own_step_and_the_next_and_no_other(norm, conv):
    layer = make_layer(norm=norm, conv=conv)
    u, _, reset = make_case(layer, 2, 120, reset=torch.arange(120).expand(2, 120) == 95)
    u[0, 10, 2] = u[1, 94, 3] = torch.nan  # 95 begins anew
    expected = torch.zeros(2, 120, dtype=torch.bool)
    expected[0, 10] = expected[0, 11] = expected[1, 94] = True
    z = run(layer, u, None, reset)
    assert torch.equal(z.isnan().all(-1), expected)
    assert torch.equal(z.isnan().any(-1), expected)
    assert run(layer, u, torch.full((2, 7), torch.nan), reset)[:, 0].isnan().all()


def test_a_nan_in_the_gradient_of_a_step_reaches_the_inputs_that_it_sees_and_no_other():
    layer = make_layer()
    u, first, reset = make_case(layer, 1, 120, True)
    grad = torch.randn(1, 120, 15)
    grad[0, 96, 4] = torch.nan
    found = values_and_gradients(run, layer, u, first, reset, grad)["u"].isnan()
    expected = torch.zeros(1, 120, dtype=torch.bool)
    expected[0, 95:97] = True
    assert torch.equal(found.all(-1), expected)
    assert torch.equal(found.any(-1), expected)


def test_a_second_derivative_is_a_clear_error():
    layer, u = make_layer(), torch.randn(2, 5, 7, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(run(layer, u).sum(), u, create_graph=True)


def test_changing_the_input_in_between_is_found_out():
    layer, u = make_layer(), torch.randn(2, 5, 7, requires_grad=True) * 1
    z = run(layer, u)
    u.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_what_the_kernel_cannot_take_is_said():
    fine = torch.zeros(2), None, torch.zeros(2, dtype=torch.bool), nn.Parameter(torch.zeros(2))
    assert drive.unfit(*fine) is None
    assert "float64 on cpu" in drive.unfit(*fine, torch.zeros(2, dtype=torch.float64))
    assert "float32 on meta" in drive.unfit(*fine, torch.zeros(2, device="meta"))
    assert "a Buffer" in drive.unfit(*fine, torch.zeros(2).as_subclass(type("Buffer", (torch.Tensor,), {})))


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
@pytest.mark.parametrize(("B", "T", "threads"), [(3, 13, 1), (1, 97, 1), (2, 200, 2)])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_and_its_gradient_equal_the_definition_with_the_mask_written_out(p, B, T, threads, conv):
    torch.set_num_threads(threads)
    layer = make_layer(9, 4, conv=conv)
    case, grad = make_case(layer, B, T, True, "random"), torch.randn(B, T, 12)
    mask = draw_mask(seed_to_come(), B * T, 9, p).view(B, T, 9)
    assert_equals_definition(layer, *case, grad, dropout=p, mask=mask, tolerance=3e-5)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_what_is_dropped_is_p(p):
    mask = draw_mask(seed_to_come(), 2000, 128, p)
    assert (mask == 0).double().mean().item() == pytest.approx(p, abs=0.004)
    for one, other in [(mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask[::2], mask[1::2])]:  # independent
        both = ((one == 0) & (other == 0)).double().mean().item()
        assert both == pytest.approx(p**2, abs=0.005)


def test_the_seed_of_dropout_comes_from_torchs_generator():
    layer = make_layer()
    u, first, reset = make_case(layer, 3, 13)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append([run(layer, u, first, reset, 0.5) for _ in range(2)])
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(*results[0])


def test_without_dropout_no_random_number_is_drawn():
    layer = make_layer()
    u, first, reset = make_case(layer, 3, 13)
    before = torch.get_rng_state()
    run(layer, u, first, reset)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropping_everything_leaves_what_is_beside_the_feed_forward():
    layer = make_layer()
    u, first, reset = make_case(layer, 3, 13, True)
    assert_close(
        {"z": run(layer, u, first, reset, dropout=1.0).detach()},
        {"z": define(layer, u, first, reset, mask=torch.zeros(3, 13, 7)).detach()},
    )
