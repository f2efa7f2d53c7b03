"""What the tests of a layer's response share, with banks and without."""

import torch
from hypothesis import strategies as st
from scan_cases import RESETS, continuous, tied


def values_and_gradients(function, case, grads, names):
    """Results, and the gradients of all that may have one, by name; grads: of y and of the states, or None."""
    leaves = {name: case[name].detach().requires_grad_() for name in names if case[name] is not None}
    y, x = function(**{**case, **leaves})
    loss = sum((one * grad).sum() for one, grad in zip((y, x), grads, strict=True) if grad is not None)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"y": y.detach(), "states": x.detach(), **dict(zip(leaves, found, strict=True))}


def make_grads(case, of_y=True, of_states=True):
    (B, T, d), D = case["u"].shape, len(case["x0"])
    return torch.randn(B, T, d) if of_y else None, torch.randn(B, T, D) if of_states else None


@st.composite
def random_cases(draw, make_case, most):
    """What make_case makes, with sizes from 1 to `most` each."""
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    return make_case(
        *(draw(st.integers(1, size)) for size in most),
        gated=draw(st.booleans()),
        reset=draw(st.sampled_from(RESETS)),
        carried=draw(st.booleans()),
        draw=draw(st.sampled_from([continuous, tied])),
        blur=draw(st.sampled_from([0.0, 0.3, 2.0])),
    )
