"""Networks written by hand: bits in the residual stream, rules that set, reset and permute them. Integers throughout.

A network made here is an ordinary MinMaxRNC_LM without norms. Its stream holds bits, each 0 or 1: one for each token,
and one for each state scalar of each layer. A layer's convolution brings in the bits of one step before, its
feed-forward network has one hidden unit for each rule, which is 1 where all bits of the rule's condition are, and its
neuron does what the rule says, or nothing. All weights are small integers and all sums are exact, in bfloat16 too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy
import torch

from latchwork.models import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules.conv import BasicConv
from latchwork.modules.layer import MinMaxLayer

Array = numpy.ndarray


@dataclass(frozen=True)
class Bit:
    """A bit of the stream: its number, now or one step before. Number -1, before: whether this is the first step."""

    number: int
    before: bool = False


FIRST = Bit(-1, before=True)


@dataclass(frozen=True)
class Rule:
    """Where all bits of `when` are 1, the unit takes action number `action`. No two rules of a unit hold at once."""

    when: tuple[Bit, ...]
    action: int


@dataclass(frozen=True)
class Action:
    """x becomes max(r (x) x, s), with (x) the max-min product: r (n, n) and s (n,), each 0 or 1."""

    r: Array
    s: Array

    @staticmethod
    def reset(n: int, place: int | None) -> Action:
        """To the bit at `place` alone, or to none."""
        s = numpy.zeros(n, int)
        if place is not None:
            s[place] = 1
        return Action(numpy.zeros((n, n), int), s)

    @staticmethod
    def move(targets: Sequence[int]) -> Action:
        """The bit at each place k to targets[k]: a permutation, or any map. (The push form: the paper prints pull.)"""
        n = len(targets)
        r = numpy.zeros((n, n), int)
        r[list(targets), numpy.arange(n)] = 1
        return Action(r, numpy.zeros(n, int))


@dataclass
class Unit:
    """n bits of state with a start, actions, and rules that choose one of them; where no rule holds, bits are held."""

    start: Sequence[int]
    actions: Sequence[Action]
    rules: Sequence[Rule]
    bits: list[Bit] = field(default_factory=list)  # where they are in the stream, once the unit is in a network

    @property
    def scalar(self) -> bool:
        """Whether no bit depends on another: then each can be a unit of degree one."""
        return all((action.r == numpy.diag(numpy.diag(action.r))).all() for action in self.actions)


class Network:
    """Layers of units, added one after another; `build` makes the model."""

    def __init__(self, tokens: int) -> None:
        self.tokens = [Bit(number) for number in range(tokens)]
        self.width = tokens
        self.layers: list[list[Unit]] = []

    def add(self, units: Iterable[Unit]) -> None:
        """One more layer. Its rules may read the bits of the layers before it, now and one step before."""
        layer = list(units)
        for unit in layer:
            for rule in unit.rules:
                for bit in rule.when:
                    if bit.number >= self.width:
                        raise ValueError(f"a rule reads bit {bit.number}, which no earlier layer writes")
        for unit in layer:
            unit.bits = [Bit(self.width + place) for place in range(len(unit.start))]
            self.width += len(unit.start)
        self.layers.append(layer)

    @property
    def degree(self) -> int:
        """The smallest state degree that holds every unit."""
        return max((len(unit.start) for layer in self.layers for unit in layer if not unit.scalar), default=1)

    def build(self, outputs: Sequence[Iterable[Bit]]) -> MinMaxRNC_LM:
        """The model whose logit for output o is the number of bits of outputs[o] that are 1."""
        degree = self.degree
        plans = [_Plan(layer, self.width, degree) for layer in self.layers]
        d_model = max(plan.width for plan in plans)
        d_state = max(plan.d_state for plan in plans)
        hidden = max(2, *(len(plan.rules) for plan in plans))
        config = MinMaxRNCConfig(
            d_model=d_model,
            n_layers=len(plans),
            d_state=d_state,
            degree=degree,
            norm="none",
            postlayers_norm="none",
            ffn_type="basic",
            ffn_proj_factor=hidden / d_model,
            ffn_dropout=0.0,
            output_gate=False,
        )
        vocabulary = max(len(self.tokens), len(outputs))
        model = MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig(backbone=config, tie_weights=False))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            for number, bit in enumerate(self.tokens):
                model.embedding.weight[number, bit.number] = 1
            for output, bits in enumerate(outputs):
                for bit in bits:
                    model.head.weight[output, bit.number] = 1
            for plan, layer in zip(plans, model.backbone.layers, strict=True):
                assert isinstance(layer, MinMaxLayer)
                plan.write(layer, self.tokens)
        return model.eval()


class _Plan:
    """Where everything of one layer goes: scratch dimensions of the stream, rows of the neuron."""

    def __init__(self, units: list[Unit], width: int, degree: int) -> None:
        self.units, self.degree = units, degree
        self.rules = [(unit, rule) for unit in units for rule in unit.rules]
        before = sorted({bit.number for _, rule in self.rules for bit in rule.when if bit.before})
        self.before = {number: width + place for place, number in enumerate(before)}
        width += len(before)
        self.doing: dict[tuple[int, int], int] = {}  # (unit, action) -> the dimension that says so
        for number, unit in enumerate(units):
            for action in range(len(unit.actions)):
                self.doing[number, action] = width
                width += 1
        self.width = width
        self.rows: list[list[int]] = [[] for _ in units]  # of each unit's bits in the neuron
        row = 0
        for number in sorted(range(len(units)), key=lambda each: units[each].scalar):  # matrices first, each aligned
            if not units[number].scalar:
                row = -(-row // degree) * degree
            self.rows[number] = [row + place for place in range(len(units[number].start))]
            row += len(units[number].start)
            if not units[number].scalar:
                row = -(-row // degree) * degree
        self.d_state = max(degree, -(-row // degree) * degree)

    def write(self, layer: MinMaxLayer, tokens: Sequence[Bit]) -> None:
        """Set the weights, which are all 0."""
        conv, ffn, neuron, n = layer.conv, layer.ffn, layer.neuron, self.degree
        assert isinstance(conv, BasicConv)
        for number, place in self.before.items():  # the first half of the convolution reads the step before
            if number == FIRST.number:
                for token in tokens:
                    conv.weight[place, token.number] = -1
                conv.bias[place] = 1
            else:
                conv.weight[place, number] = 1
        for hidden, (unit, rule) in enumerate(self.rules):
            for bit in rule.when:
                ffn.up.weight[hidden, self.before[bit.number] if bit.before else bit.number] += 1
            ffn.up.bias[hidden] = 1 - len(rule.when)
            ffn.down.weight[self.doing[self.units.index(unit), rule.action], hidden] = 1
        d_state, r_rows = neuron.d_state, neuron.d_state * n
        weight, bias = neuron.projection.weight, neuron.projection.bias
        weight_r, bias_r = weight[:r_rows].view(d_state, n, -1), bias[:r_rows].view(d_state, n)
        for row in range(d_state):
            bias_r[row, row % n] = 1  # held
        for number, unit in enumerate(self.units):
            rows = self.rows[number]
            for place, value in zip(rows, unit.start, strict=True):
                neuron.x0[place] = value
            for bit, row in zip(unit.bits, rows, strict=True):
                neuron.output.weight[bit.number, row] = 1
            for which, action in enumerate(unit.actions):
                dimension = self.doing[number, which]
                change = action.r - numpy.eye(len(rows), dtype=int)
                for i, j in zip(*numpy.nonzero(change), strict=True):
                    weight_r[rows[i], rows[j] % n, dimension] = int(change[i, j])
                for i in numpy.flatnonzero(action.s):
                    weight[r_rows + rows[i], dimension] = 1
