"""Networks written by hand: bits in the residual stream, rules that set, reset and permute them. Integers throughout.

A network made here is an ordinary MinMaxRNC_LM without norms. Its stream holds bits, each 0 or 1: one for each token,
and one for each state scalar of each layer. A layer's convolution brings in the bits of one step before, its
feed-forward network has one hidden unit for each rule, which is 1 where all bits of the rule's condition are, and its
neuron does what the rule says, or nothing. All weights are small integers and all sums are exact, in bfloat16 too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.models import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules.conv import BasicConv
from latchwork.modules.layer import MinMaxLayer

Array = numpy.ndarray
MAX_RULES = 50_000
MAX_WEIGHTS = 1 << 28  # 1 GiB
LEVELS = 3  # -1, 0 and 1: bits are on this grid, so that `certify` can follow the network
ADVICE = "minimise the machine, allow more by max_rules, or take method='transformation', which needs none"
ADVICE_WEIGHTS = "minimise the machine, allow more by max_weights, or compile it by another method"


@dataclass(frozen=True)
class Size:
    """What a network costs: its weights, its layers, and the degree of its units."""

    weights: int
    layers: int
    degree: int

    def __str__(self) -> str:
        """In words."""
        layers = "one layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{self.weights:,} weights, {layers}, degree {self.degree}"

    @staticmethod
    def of(vocabulary: int, config: MinMaxRNCLMConfig) -> Size:
        """That of a model, without its memory."""
        with torch.device("meta"), _WithoutDraws():
            model = MinMaxRNC_LM(vocabulary, config)
        shape = config.backbone
        return Size(model.parameter_count(), shape.n_layers, shape.degree)


def check_weights(weights: int, max_weights: int) -> int:
    """The number of weights; DecompositionTooLarge if there are too many."""
    if weights > max_weights:
        raise DecompositionTooLarge("weights", weights, ADVICE_WEIGHTS)
    return weights


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
class UnitAction:
    """x becomes max(r (x) x, s), with (x) the max-min product: r (n, n) and s (n,), or (parts * n,), each 0 or 1."""

    r: Array
    s: Array

    @staticmethod
    def only(n: int, place: int) -> UnitAction:
        """Of n bits that do not depend on each other, to the one at `place` alone."""
        return UnitAction(numpy.zeros((1, 1), numpy.int8), numpy.eye(1, n, place, dtype=numpy.int8)[0])

    @staticmethod
    def reset(n: int, *places: int) -> UnitAction:
        """In each part of n bits, to the one at its place alone."""
        s = numpy.zeros(n * len(places), numpy.int8)
        s[[n * part + place for part, place in enumerate(places)]] = 1
        return UnitAction(numpy.zeros((n, n), numpy.int8), s)

    @staticmethod
    def move(targets: Sequence[int], parts: int = 1) -> UnitAction:
        """The bit at each place k to targets[k]: a permutation, or any map. (The push form: the paper prints pull.)"""
        n = len(targets)
        r = numpy.zeros((n, n), numpy.int8)
        r[list(targets), numpy.arange(n)] = 1
        return UnitAction(r, numpy.zeros(n * parts, numpy.int8))


@dataclass(eq=False)
class Unit:
    """Bits of state with a start, actions, and rules that choose one of them.

    Where no rule holds, the bits are held; with held=False they are cleared. An action whose r is smaller than the unit
    does the same to each of its parts of that size, while s is for all bits.
    """

    start: Sequence[int]
    actions: Sequence[UnitAction]
    rules: Sequence[Rule]
    held: bool = True
    bits: list[Bit] = field(default_factory=list)  # where they are in the stream, once the unit is in a network

    @property
    def size(self) -> int:
        """Of each part."""
        return len(self.actions[0].r) if self.actions else len(self.start)

    @cached_property
    def scalar(self) -> bool:
        """Whether no bit depends on another: then each can be a unit of degree one."""
        return all(len(each.r) == 1 or (each.r == numpy.diag(numpy.diag(each.r))).all() for each in self.actions)


Conditions = list[tuple[Bit, ...]]  # alternatives: one of them holds where all its bits are 1


def one_of(conditions: Mapping[int, Conditions], each: Iterable[int] | None = None) -> Unit:
    """A unit without memory, with a bit for each of the keys, in their order: which of their conditions hold now."""
    keys = list(conditions) if each is None else list(each)
    return Unit(
        start=[0] * len(keys),
        actions=[UnitAction.only(len(keys), place) for place in range(len(keys))],
        rules=[Rule(bits, place) for place, key in enumerate(keys) for bits in conditions.get(key, [])],
        held=False,
    )


def before_step(conditions: Conditions, at_first: bool) -> Conditions:
    """The same one step before; before the first step, that it is the first. Without bits, it always holds."""
    if () in conditions:
        return [()]
    before: Conditions = [tuple(Bit(bit.number, before=True) for bit in bits) for bits in conditions]
    return [*before, (FIRST,)] if at_first else before


class Network:
    """Layers of units, added one after another; `build` makes the model.

    It has at most max_rules rules and max_weights weights; what will have more is refused as soon as that is sure.
    outputs: for each output the bits whose number is its logit.
    """

    def __init__(self, tokens: int, max_rules: int | None = None, max_weights: int = MAX_WEIGHTS) -> None:
        self.tokens = [Bit(number) for number in range(tokens)]
        self.width = tokens
        self.layers: list[list[Unit]] = []
        self.max_rules, self.rules = max_rules, 0
        self.max_weights, self._most_rules = max_weights, 0
        self.outputs: list[list[Bit]] = []

    def check_room(self, rules: int) -> None:
        """Raise DecompositionTooLarge if this many more rules, all in one layer, are too many."""
        if self.max_rules is not None and self.rules + rules > self.max_rules:
            raise DecompositionTooLarge("rules", self.rules + rules, ADVICE)
        hidden = max(rules, self._most_rules)  # all layers have the width and the hidden units of the largest
        check_weights(2 * (len(self.layers) + 1) * self.width * (self.width + hidden), self.max_weights)

    def add(self, units: Iterable[Unit]) -> None:
        """One more layer. Its rules may read the bits of the layers before it, now and one step before."""
        layer = list(units)
        self.check_room(rules := sum(len(unit.rules) for unit in layer))
        self.rules, self._most_rules = self.rules + rules, max(self._most_rules, rules)
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
        return max((unit.size for layer in self.layers for unit in layer if not unit.scalar), default=1)

    @cached_property
    def _plans(self) -> list[_Plan]:
        return [_Plan(layer, self.width, self.degree) for layer in self.layers]

    @property
    def vocabulary(self) -> int:
        """Tokens and outputs share the model's tokens."""
        return max(len(self.tokens), len(self.outputs))

    @cached_property
    def config(self) -> MinMaxRNCLMConfig:
        """The shape of the model."""
        degree, plans = self.degree, self._plans
        d_model = max(plan.width for plan in plans)
        d_state = max(plan.d_state for plan in plans)
        hidden = max(2, *(len(plan.rules) for plan in plans))
        config = MinMaxRNCConfig(
            d_model=d_model,
            n_layers=len(plans),
            d_state=d_state,
            degree=degree,
            levels=LEVELS,
            norm="none",
            postlayers_norm="none",
            ffn_type="basic",
            ffn_proj_factor=hidden / d_model,
            ffn_dropout=0.0,
            output_gate=False,
        )
        return MinMaxRNCLMConfig(backbone=config, tie_weights=False)

    @property
    def size(self) -> Size:
        """What the model costs, without making it."""
        return Size.of(self.vocabulary, self.config)

    def build(self) -> MinMaxRNC_LM:
        """The model whose logit for output o is the number of bits of outputs[o] that are 1."""
        check_weights(self.size.weights, self.max_weights)
        model = empty_model(self.vocabulary, self.config)
        for number, bit in enumerate(self.tokens):
            as_array(model.embedding.weight)[number, bit.number] = 1
        for output, bits in enumerate(self.outputs):
            as_array(model.head.weight)[output, [bit.number for bit in bits]] = 1
        for plan, layer in zip(self._plans, model.backbone.layers, strict=True):
            assert isinstance(layer, MinMaxLayer)
            plan.write(layer, self.tokens)
        return model.eval()


class _WithoutDraws(TorchFunctionMode):
    """Weights that are set afterwards need no random numbers, which for a large model take most of the time."""

    DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self.DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def empty_model(vocabulary: int, config: MinMaxRNCLMConfig) -> MinMaxRNC_LM:
    """The model with all weights 0."""
    with _WithoutDraws():
        model = MinMaxRNC_LM(vocabulary, config)
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            tensor.zero_()
    return model


class _Plan:
    """Where everything of one layer goes: scratch dimensions of the stream, rows of the neuron."""

    def __init__(self, units: list[Unit], width: int, degree: int) -> None:
        self.units, self.degree = units, degree
        self.rules = [(number, rule) for number, unit in enumerate(units) for rule in unit.rules]
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
            unit = units[number]
            for _ in range(0, len(unit.start), unit.size):
                self.rows[number] += range(row, row + unit.size)
                row += unit.size if unit.scalar else degree
        self.d_state = max(degree, -(-row // degree) * degree)

    def write(self, layer: MinMaxLayer, tokens: Sequence[Bit]) -> None:
        """Set the weights, which are all 0."""
        conv, ffn, neuron, n = layer.conv, layer.ffn, layer.neuron, self.degree
        assert isinstance(conv, BasicConv)
        weight, bias = as_array(conv.weight), as_array(conv.bias)
        for number, place in self.before.items():  # the first half of the convolution reads the step before
            if number == FIRST.number:
                weight[place, [token.number for token in tokens]] = -1
                bias[place] = 1
            else:
                weight[place, number] = 1
        up, up_bias, down = as_array(ffn.up.weight), as_array(ffn.up.bias), as_array(ffn.down.weight)
        for hidden, (number, rule) in enumerate(self.rules):
            for bit in rule.when:
                up[hidden, self.before[bit.number] if bit.before else bit.number] += 1
            up_bias[hidden] = 1 - len(rule.when)
            down[self.doing[number, rule.action], hidden] = 1
        d_state, r_rows = neuron.d_state, neuron.d_state * n
        weight, bias = as_array(neuron.projection.weight), as_array(neuron.projection.bias)
        weight_r, bias_r = weight[:r_rows].reshape(d_state, n, -1), bias[:r_rows].reshape(d_state, n)  # views
        x0, output = as_array(neuron.x0), as_array(neuron.output.weight)
        for number, unit in enumerate(self.units):
            rows = numpy.array(self.rows[number], int)
            x0[rows] = unit.start
            output[[bit.number for bit in unit.bits], rows] = 1
            bias_r[rows, rows % n] = unit.held
            for which, action in enumerate(unit.actions):
                dimension = self.doing[number, which]
                i, j = numpy.nonzero(change := action.r - unit.held * numpy.eye(unit.size, dtype=numpy.int8))
                parts = numpy.arange(0, len(rows), unit.size)[:, None]
                weight_r[rows[parts + i], rows[parts + j] % n, dimension] = change[i, j]
                weight[r_rows + rows[numpy.flatnonzero(action.s)], dimension] = 1


def as_array(tensor: Tensor) -> Array:
    """The same memory, in which single numbers are set much faster."""
    return tensor.detach().numpy()
