"""What the tests of a layer's two operations share."""

import torch

LAYOUTS = {
    "time first": lambda a: a.transpose(0, 1).contiguous().transpose(0, 1) if a.dim() > 1 else a,
    "every other": lambda a: a.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda a: a[:1].expand_as(a),
    "shifted": lambda a: torch.cat((a.flatten()[:1], a.flatten()))[1:].view_as(a),  # not aligned to vectors
}


def assert_close(actual, expected, tolerance=1e-5):
    """Relative to the largest entry, if that is more than 1: the sums are made of such numbers."""
    assert actual.keys() == expected.keys()
    for name in actual:
        one, other = actual[name].double(), expected[name].double()
        allowed = tolerance * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one, other, rtol=0, atol=allowed, msg=lambda text, name=name: f"{name}: {text}")


def assert_same(actual, expected):
    for name in actual:
        assert torch.equal(actual[name], expected[name]), name
