"""A Latch by its definition: one sequence at a time, one step after the other, in plain torch."""

import math

import torch
from torch.nn import functional as F


def tick(clock, step):
    """Sine and cosine of one step's number."""
    waves = [(math.sin, math.cos)] * len(clock.periods)
    angles = [2 * math.pi * (step % period) / period for period in clock.periods.tolist()]
    numbers = [wave(angle) for pair, angle in zip(waves, angles, strict=True) for wave in pair]
    return torch.tensor(numbers, dtype=torch.float64)


def run_direction(module, u, ticks, conv, x):
    """One layer in one direction over u (T, F), from the state conv (hidden,), x (state,)."""
    layer, outputs = module.layer, []
    neuron = layer.neuron
    for t in range(len(u)):
        now = u[t] if module.input is None else F.linear(u[t], module.input.weight, module.input.bias)
        if module.clock is not None:
            now = now + module.clock.weight @ ticks[t].to(u.dtype)
        normed = layer.norm_conv(now)
        mixed = now + F.linear(torch.cat((conv, normed)), layer.conv.weight, layer.conv.bias)
        conv = normed
        up = F.linear(layer.norm_ffn(mixed), layer.ffn.up.weight, layer.ffn.up.bias)
        left, right = up.chunk(2)
        inside = layer.norm_neuron(mixed + F.linear(left.relu() * right, layer.ffn.down.weight, layer.ffn.down.bias))
        r, s = F.linear(inside, neuron.projection.weight, neuron.projection.bias).chunk(2)
        x = torch.maximum(torch.minimum(r, x), s)
        outputs.append(now + F.linear(x, neuron.output.weight, neuron.output.bias))
    return torch.stack(outputs), conv, x


def run_sequence(latch, u, state=None):
    """u (T, F), T at least 1, from an unbatched state or the start. Returns y (T, D * hidden), conv, x."""
    directions = 2 if latch.bidirectional else 1
    conv, x = [], []
    for number in range(latch.num_layers):
        outputs = []
        for d in range(directions):
            which = number * directions + d
            module = latch.layers[which]
            start = torch.zeros(latch.hidden_size, dtype=u.dtype) if state is None else state.conv[which]
            held = module.layer.neuron.x0 if state is None else state.x[which]
            first = 0 if state is None else int(state.step[d])
            ticks = [] if latch.clock is None else [tick(latch.clock, first + t) for t in range(len(u))]
            y, start, held = run_direction(module, u.flip(0) if d else u, ticks, start, held)
            outputs.append(y.flip(0) if d else y)
            conv.append(start)
            x.append(held)
        u = torch.cat(outputs, -1)
    return latch.norm(u), torch.stack(conv), torch.stack(x)
