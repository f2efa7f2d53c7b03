"""The recurrence of the sLSTM, in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class SLSTMCellState(NamedTuple):
    """Output y, cell c, normaliser n, and stabiliser m, the logarithm by which c and n are scaled; (H, B, d) each."""

    y: Tensor
    c: Tensor
    n: Tensor
    m: Tensor


def slstm_scan(u: Tensor, recurrent: Tensor, state: SLSTMCellState) -> tuple[Tensor, SLSTMCellState]:
    """Run an sLSTM with exponential input gates over u and return y of every step, (T, H, B, d), and the last state.

    u: (T, H, B, 4 d), what drives the gates i, f, z, o, with their bias. recurrent: (H, d, 4 d). H is the number of
    heads. The output does not depend on m, so that no gradient goes through it.
    """
    y, c, n, m = state
    outputs = []
    for drive in u.unbind():
        i, f, z, o = torch.baddbmm(drive, y, recurrent).chunk(4, -1)
        log_f = F.logsigmoid(f)
        with torch.no_grad():
            m_next = torch.where(n == 0, i, torch.maximum(i, log_f + m))
        write, keep = (i - m_next).exp(), (log_f + (m - m_next)).exp()
        c = torch.addcmul(keep * c, write, z.tanh())
        n = torch.addcmul(write, keep, n)
        y, m = o.sigmoid() * c / n, m_next
        outputs.append(y)
    return torch.stack(outputs), SLSTMCellState(y, c, n, m)
