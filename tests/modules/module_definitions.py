"""The modules as their formulas say, with loops over time and plain products. Weights are read by name."""

import torch


def randomise_(module):
    """Every parameter and x0 anything but its initial value, so that no bias and no scale is forgotten."""
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            value.copy_(torch.randn(value.shape, dtype=torch.float64) / 2)
    return module


def nearest_level(values, levels):
    """The definition of rounding: of all levels, the one at the least distance."""
    grid = torch.arange(levels, dtype=torch.float64) / (levels - 1) * 2 - 1
    return grid[(values.double().unsqueeze(-1) - grid).abs().argmin(-1)]


def sigmoid(z):
    return 1 / (1 + torch.exp(-z))


def gauss(z):
    return z * (1 + torch.erf(z / 2**0.5)) / 2


SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772  # of selu
ACTIVATIONS = {
    "relu": lambda z: z.clamp(min=0),
    "relu^2": lambda z: z.clamp(min=0) ** 2,
    "gelu": gauss,
    "swish": lambda z: z * sigmoid(z),
    "sigmoid": sigmoid,
    "selu": lambda z: SCALE * torch.where(z > 0, z, ALPHA * (torch.exp(z) - 1)),
}


def norm(kind, module, u):
    match kind:
        case "none":
            return u
        case "rmsnorm":
            epsilon = torch.finfo(u.dtype).eps if module.eps is None else module.eps
            return u / (u.square().mean(-1, keepdim=True) + epsilon).sqrt() * module.weight
        case "layernorm":
            centred = u - u.mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * module.weight + module.bias
        case _:
            raise ValueError(kind)


def feed_forward(ffn, act_fn, gated, u):
    z = u @ ffn.up.weight.T + ffn.up.bias
    if gated:
        hidden = z.shape[-1] // 2
        z = ACTIVATIONS[act_fn](z[..., :hidden]) * z[..., hidden:]
    else:
        z = ACTIVATIONS[act_fn](z)
    return z @ ffn.down.weight.T + ffn.down.bias


def convolution(conv, u, state=None, reset=None):
    """y and the last input, for either kind of convolution."""
    B, T, d = u.shape
    before = torch.zeros(B, d, dtype=u.dtype) if state is None else state
    y = []
    for t in range(T):
        if reset is not None:
            before = before.clone()
            before[reset[:, t]] = 0
        if hasattr(conv, "g"):
            y.append(sigmoid(conv.g) * before + (1 - sigmoid(conv.g)) * u[:, t])
        else:
            y.append(torch.cat((before, u[:, t]), -1) @ conv.weight.T + conv.bias)
        before = u[:, t]
    return torch.stack(y, 1) if y else torch.zeros_like(u), before


def states(neuron, u, state=None, reset=None):
    """x_t[i] = max(s_t[i], max_k min(R_t[i, k], x_{t-1}[k])) in each unit: (B, T, d_state), and the last.

    neuron: of one ScalarCell or MatrixCell.
    """
    (cell,) = neuron.cells
    (B, T, _), D, n = u.shape, neuron.d_state, getattr(cell, "degree", 1)
    z = u @ neuron.projection.weight.T + neuron.projection.bias
    r, s, x0 = z[..., : D * n], z[..., D * n : D * (n + 1)], neuron.x0
    if cell.levels is not None:
        r, s, x0 = (nearest_level(each, cell.levels) for each in (r, s, x0))
    r, s = r.reshape(B, T, D // n, n, n), s.reshape(B, T, D // n, n)
    x = (x0.expand(B, D) if state is None else state).reshape(B, D // n, n)
    out = []
    for t in range(T):
        if reset is not None:
            x = torch.where(reset[:, t, None, None], x0.reshape(D // n, n), x)
        x = torch.maximum(s[:, t], torch.minimum(r[:, t], x.unsqueeze(-2)).amax(-1))
        out.append(x.reshape(B, D))
    return torch.stack(out, 1) if out else u.new_zeros(B, 0, D), x.reshape(B, D)


def neuron(module, u, state=None, reset=None):
    """y and the last state."""
    x, last = states(module, u, state, reset)
    D = module.d_state
    if module.output_gate:
        x = x * sigmoid(u @ module.projection.weight[-D:].T + module.projection.bias[-D:])
    return x @ module.output.weight.T + module.output.bias, last


LENGTHS = [0, 1, 2, 7]
LAYOUTS = {
    "contiguous": lambda u: u,
    "time first": lambda u: u.transpose(0, 1).contiguous().transpose(0, 1),
    "transposed": lambda u: u.transpose(1, 2).contiguous().transpose(1, 2),
    "every other": lambda u: u.repeat_interleave(2, 1)[:, ::2],
}


def assert_close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
