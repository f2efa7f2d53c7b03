"""torch.func and forward-mode derivatives of a whole float32 model, whose layers have kernels of their own."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig

# Of torch to itself, when it first takes a forward-mode derivative.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
TOKENS = (3, 40)  # enough for the fused layer; long enough for distinct pairs
UNITS = {
    "scalars": {},
    "matrices": {"degree": 2},
    "levels": {"levels": 5},
    "selection": {"degree": 2, "reset_form": "selection"},
    "transformation": {"degree": 2, "reset_form": "transformation"},
}
each_kind = pytest.mark.parametrize("kind", UNITS)


def make(kind):
    """A model, its parameters by name, and the loss as a function of these and of tokens (B, T)."""
    backbone = MinMaxRNCConfig(d_model=12, n_layers=2, d_state=8, train_init=True, ffn_act_fn="relu", **UNITS[kind])
    model = MinMaxRNC_LM(5, MinMaxRNCLMConfig(backbone=backbone)).eval()  # no dropout
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(given, tokens):
        logits, _ = functional_call(model, given, (tokens,))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return model, parameters, loss


def by_autograd(parameters, loss, tokens):
    leaves = {name: each.clone().requires_grad_() for name, each in parameters.items()}
    found = torch.autograd.grad(loss(leaves, tokens), list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def assert_close(found, expected):
    for name, each in expected.items():
        torch.testing.assert_close(
            found[name], each, rtol=1e-3, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@each_kind
def test_gradients_of_each_sequence_by_vmap_are_those_of_autograd(kind):
    _, parameters, loss = make(kind)
    tokens = torch.randint(5, TOKENS)
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, tokens.unsqueeze(1))
    for index, each in enumerate(tokens):
        expected = by_autograd(parameters, loss, each.unsqueeze(0))
        assert_close({name: a[index] for name, a in found.items()}, expected)


@each_kind
def test_vmap_over_inputs_is_a_loop_over_them(kind):
    model, _, _ = make(kind)
    tokens, u = torch.randint(5, (4, 2, 9)), torch.randn(4, 2, 9, 12)
    with torch.no_grad():
        for run, given in ((lambda each: model(each)[0], tokens), (lambda each: model.backbone(each)[0], u)):
            expected = torch.stack([run(each) for each in given])
            torch.testing.assert_close(vmap(run)(given), expected, rtol=1e-4, atol=1e-5)


@each_kind
@pytest.mark.parametrize("gradients", [True, False], ids=["grad", "no_grad"])
def test_the_tangent_of_the_loss_is_the_gradient_along_the_direction(gradients, kind):
    _, parameters, loss = make(kind)
    tokens = torch.randint(5, TOKENS)
    direction = {name: torch.randn_like(each) for name, each in parameters.items()}
    gradient = by_autograd(parameters, loss, tokens)
    expected = sum((gradient[name] * direction[name]).sum() for name in parameters)
    with torch.set_grad_enabled(gradients):
        by_func = jvp(lambda given: loss(given, tokens), (parameters,), (direction,))[1]
        with forward_ad.dual_level():
            dual = {name: forward_ad.make_dual(each, direction[name]) for name, each in parameters.items()}
            by_forward_ad = forward_ad.unpack_dual(loss(dual, tokens)).tangent
    torch.testing.assert_close(by_func, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(by_forward_ad, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("way", ["loss", "in pieces"])
def test_every_way_through_a_model_keeps_the_tangent(way):
    model, parameters, loss = make("scalars")
    tokens = torch.randint(5, TOKENS)
    weight = model.embedding.weight
    direction = torch.randn_like(weight)
    expected = (by_autograd(parameters, loss, tokens)["embedding.weight"] * direction).sum()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(weight.detach(), direction)
        del model.embedding.weight, model.head.weight  # forward_ad takes tensors, and no parameters
        model.embedding.weight = model.head.weight = dual
        if way == "loss":
            value, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
        else:
            with torch.no_grad():  # the pieces are then written into one tensor
                logits, _ = model(tokens, chunk_size=7)
            value = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        torch.testing.assert_close(forward_ad.unpack_dual(value).tangent, expected, rtol=1e-3, atol=1e-5)
