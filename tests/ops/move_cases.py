"""Arguments of the backends that move whole levels."""

import torch

FORMS = ["taking", "taking or own", "sending"]
SPECIAL = [torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.0, -1.0]


def make_problem(B, T, U, N, *, form, reset, dtype=torch.float32, special=False):
    """The arguments of a backend's forward, choice first; reset is how many of the steps have one, or None."""
    choice = torch.randint(N + (form == "taking or own"), (B, T, U, N))
    state, s, x0 = (torch.randn(B, U, N) for _ in range(3))
    if special:
        state, s, x0 = (torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), a.shape)] for a in (state, s, x0))
    state, s, x0 = (a.abs().to(dtype) if form == "sending" else a.to(dtype) for a in (state, s, x0))
    own = s if form == "taking or own" else None
    when = None if reset is None else torch.rand(B, T) < reset
    return choice, state, own, when, None if when is None else x0[:1].expand_as(x0), form == "sending"
