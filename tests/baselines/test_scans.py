"""Each recurrence against a loop over its formula."""

import pytest
import torch
from torch.nn import functional as F

from latchwork.baselines.causal_conv import causal_conv, last_inputs
from latchwork.baselines.mlstm_scan import CHUNK, EPSILON, MLSTMCellState, mlstm_scan
from latchwork.baselines.selective_scan import SEGMENT, by_kernel, plain_selective_scan
from latchwork.baselines.slstm_scan import SLSTMCellState, slstm_scan


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def selective_loop(dt, u, write, read, decay, x0):
    x, y = x0, []
    for t in range(u.shape[1]):
        x = torch.exp(dt[:, t, None] * decay) * x + write[:, t, :, None] * (dt * u)[:, t, None]
        y.append((read[:, t, :, None] * x).sum(1))
    return torch.stack(y, 1), x


def kernel_from_zero(u, delta, A, B, C, *, return_last_state):
    """As mamba_ssm's selective_scan_fn: u, delta (B, D, T), A (D, N), B and C (B, N, T), and no state to start from."""
    assert return_last_state
    zero = u.new_zeros(u.shape[0], A.shape[1], u.shape[1])
    y, x = selective_loop(*(each.transpose(1, 2) for each in (delta, u, B, C)), A.T, zero)
    return y.transpose(1, 2), x.transpose(1, 2)


@pytest.mark.parametrize("T", [1, 7])
def test_a_kernel_that_starts_from_zero_serves_any_state(T):
    B, D, N = 2, 3, 4
    dt, decay = torch.rand(B, T, D).double(), -torch.rand(N, D).double()
    given = [dt, normal(B, T, D), normal(B, T, N), normal(B, T, N), decay, normal(B, N, D)]
    for here, there in zip(by_kernel(kernel_from_zero, *given), selective_loop(*given), strict=True):
        torch.testing.assert_close(here, there)


@pytest.mark.parametrize("T", [1, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 3])
def test_the_selective_scan_equals_its_loop_with_all_gradients(T):
    B, D, N = 2, 3, 4
    inputs = [normal(B, T, D), normal(B, T, D), normal(B, T, N), normal(B, T, N), normal(N, D), normal(B, N, D)]
    given = [inputs[0].detach().abs().requires_grad_(), *inputs[1:4], -inputs[4].detach().exp(), inputs[5]]
    given[4].requires_grad_()
    outputs, expected = plain_selective_scan(*given), selective_loop(*given)
    weights = [torch.randn_like(each) for each in expected]
    for here, there in zip(outputs, expected, strict=True):
        torch.testing.assert_close(here, there)
    for here, there in zip(
        torch.autograd.grad(outputs, given, weights), torch.autograd.grad(expected, given, weights), strict=True
    ):
        torch.testing.assert_close(here, there)


def test_the_selective_scan_leaves_its_arguments_as_they_were():
    given = [torch.rand(1, 5, 2), torch.rand(1, 5, 2), torch.rand(1, 5, 3), torch.rand(1, 5, 3), -torch.rand(3, 2)]
    x0 = torch.rand(1, 3, 2)
    before = [each.clone() for each in [*given, x0]]
    plain_selective_scan(*given, x0)
    assert all(torch.equal(*pair) for pair in zip([*given, x0], before, strict=True))


def mlstm_loop(q, k, v, i, f, c, n):
    y = []
    for t in range(q.shape[2]):
        keep, write = f[:, :, t, None].sigmoid(), i[:, :, t, None].exp()
        c = keep[..., None] * c + write[..., None] * k[:, :, t, :, None] * v[:, :, t, None]
        n = keep * n + write * k[:, :, t]
        total = (q[:, :, t] * n).sum(-1, keepdim=True)
        y.append((q[:, :, t, None] @ c)[:, :, 0] / total.abs().clamp(min=1))
    return torch.stack(y, 2), c, n


@pytest.mark.parametrize("T", [1, CHUNK, 2 * CHUNK + 5])
def test_the_mlstm_scan_equals_its_loop_without_a_stabiliser(T):
    B, H, d = 2, 2, 3
    q, k, v = (normal(B, H, T, d) for _ in range(3))
    i, f = normal(B, H, T), normal(B, H, T)
    c, n, m = normal(B, H, d, d), normal(B, H, d), torch.full((B, H, 1), 0.5, dtype=torch.float64)
    y, state = mlstm_scan(q, k, v, i, f, MLSTMCellState(c, n, m))
    expected, c_last, n_last = mlstm_loop(q, k, v, i, f, c * m.exp()[..., None], n * m.exp())
    close = {"rtol": 0, "atol": 100 * EPSILON}
    torch.testing.assert_close(y, expected, **close)
    torch.testing.assert_close(state.c * state.m.exp()[..., None], c_last)
    torch.testing.assert_close(state.n * state.m.exp(), n_last)
    weight = torch.randn_like(y)
    given = [q, k, v, i, f, c, n]
    for here, there in zip(
        torch.autograd.grad(y, given, weight), torch.autograd.grad(expected, given, weight), strict=True
    ):
        torch.testing.assert_close(here, there, rtol=0, atol=100 * EPSILON * max(1, float(there.abs().max())))


def test_the_mlstm_scan_takes_gates_whose_exponentials_overflow():
    q, k, v = (torch.randn(1, 1, 70, 2) for _ in range(3))
    zero = MLSTMCellState(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2), torch.zeros(1, 1, 1))
    for size in (500.0, -500.0):
        i = torch.full((1, 1, 70), size, requires_grad=True)
        y, _ = mlstm_scan(q, k, v, i, torch.full((1, 1, 70), size), zero)
        y.sum().backward()
        assert y.isfinite().all()
        assert i.grad.isfinite().all()


def slstm_loop(u, recurrent, y, c, n):
    outputs = []
    for drive in u:
        i, f, z, o = (drive + y @ recurrent).chunk(4, -1)
        c = f.sigmoid() * c + i.exp() * z.tanh()
        n = f.sigmoid() * n + i.exp()
        y = o.sigmoid() * c / n
        outputs.append(y)
    return torch.stack(outputs), c, n


@pytest.mark.parametrize("fresh", [True, False])
def test_the_slstm_scan_equals_its_loop_without_a_stabiliser(fresh):
    T, H, B, d = 9, 2, 3, 4
    u, recurrent = normal(T, H, B, 4 * d), normal(H, d, 4 * d)
    y, c, n = (torch.zeros(H, B, d, dtype=torch.float64) if fresh else normal(H, B, d) for _ in range(3))
    n = n.abs()
    m = torch.zeros_like(c) if fresh else torch.full_like(c, -0.7)
    outputs, state = slstm_scan(u, recurrent, SLSTMCellState(y, c, n, m))
    expected, c_last, n_last = slstm_loop(u, recurrent, y, c * m.exp(), n * m.exp())
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(state.c * state.m.exp(), c_last)
    torch.testing.assert_close(state.n * state.m.exp(), n_last)
    assert torch.equal(state.y, outputs[-1])
    weight = torch.randn_like(outputs)
    for here, there in zip(
        torch.autograd.grad(outputs, [u, recurrent], weight),
        torch.autograd.grad(expected, [u, recurrent], weight),
        strict=True,
    ):
        torch.testing.assert_close(here, there)


@pytest.mark.parametrize("T", [1, 2, 3, 8])
@pytest.mark.parametrize("bias", [True, False])
def test_the_convolution_equals_torch_with_the_inputs_before_in_front(T, bias):
    conv = torch.nn.Conv1d(5, 5, 4, groups=5, bias=bias)
    before, u = torch.randn(2, 3, 5), torch.randn(2, T, 5)
    both = torch.cat([before, u], 1)
    y = causal_conv(u, before, conv.weight, conv.bias)
    expected = F.conv1d(both.transpose(1, 2), conv.weight, conv.bias, groups=5).transpose(1, 2)
    torch.testing.assert_close(y, F.silu(expected))
    assert torch.equal(last_inputs(u, before), both[:, -3:])
