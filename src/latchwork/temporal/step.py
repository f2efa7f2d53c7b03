"""One step of a monitor as a torch module: state in, state out, plain tensor operations, ready for ONNX.

A register of n steps is a tensor (n, B), oldest first. A step over a window of n costs n; the C++ engine of a monitor
(temporal/engine.py) costs the same for every window and keeps the same registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from latchwork.extras import need
from latchwork.temporal.formula import Formula
from latchwork.temporal.parameters import named_parameters
from latchwork.temporal.program import Instruction, Program, compile_program, start_values, state_rows

ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "reversed": lambda a, b: b - a,
    "multiply": torch.mul,
    "divide": torch.div,
    "negate": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "distance": lambda a, b: (a - b).abs(),
    "near": lambda a, b: -(a - b).abs(),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "implies": lambda a, b: torch.maximum(-a, b),
    "exp": torch.exp,
    "pow": torch.pow,
}


class Step(nn.Module):
    """Robustness of one step: forward(values (B, S), *state) gives (robustness (B,), *state).

    The S columns of values are `signals`, in order. The robustness is that of `delay` steps ago; before there is one,
    it has no meaning. Thresholds are the formula's own parameters.

    >>> from latchwork.temporal import parse
    >>> step = Step(parse("x since y"))
    >>> value, *state = step(torch.tensor([[1.0, 3.0]]), *step.start(batch=1))
    >>> value, *state = step(torch.tensor([[2.0, 0.0]]), *state)
    >>> value
    tensor([2.])
    """

    def __init__(self, formula: Formula, program: Program | None = None) -> None:
        super().__init__()
        self.program = compile_program([formula]) if program is None else program
        self.thresholds = nn.ParameterDict(named_parameters(formula))
        self.signals, self.delay = tuple(self.program.signals), self.program.delay

    def start(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, ...]:
        """The state before the first step: the time, then the registers in the order of the instructions."""
        state = [torch.zeros((), dtype=torch.int64, device=device)]
        for each in self.program.instructions:
            values = start_values(each)
            state += [
                torch.full((state_rows(each) // len(values), batch), v, dtype=dtype, device=device) for v in values
            ]
        return tuple(state)

    def forward(self, values: Tensor, *state: Tensor, last: int | None = None) -> tuple[Tensor, ...]:
        """One step. last: the last step of the trace, if it has ended; what is behind it is absent."""
        found, state = self.roots(values, state, last)
        return found[0], *state

    def roots(self, values: Tensor, state: tuple[Tensor, ...], last: int | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The values (roots, B) that the program is asked for, and the state."""
        time, old = state[0], list(state[1:])
        after: list[Tensor] = []
        known: list[Tensor] = []
        columns = values.unbind(1)
        for each in self.program.instructions:
            operands = [known[k] for k in each.inputs]
            if each.operation == "signal":
                known.append(columns[each.size])
            elif each.operation == "constant":
                value = self.thresholds[each.value] if isinstance(each.value, str) else torch.as_tensor(each.value)
                known.append(value.to(values).expand(values.shape[0]))
            elif each.operation == "fill":
                known.append(_fill(each, operands[0], time, last))
            elif each.operation in ELEMENTWISE:
                known.append(ELEMENTWISE[each.operation](*operands))
            else:
                registers = [old.pop(0) for _ in start_values(each)]
                value, registers = _keep(each, operands, registers)
                after += registers
                known.append(value)
        return torch.stack([known[k] for k in self.program.roots]), (time + 1, *after)


def _fill(each: Instruction, value: Tensor, time: Tensor, last: int | None) -> Tensor:
    if each.size == 0 and last is None:
        return value
    position = time - each.size
    absent = position < 0 if last is None else (position < 0) | (position > last)
    return torch.where(absent, float(each.value), value)


def _keep(each: Instruction, operands: list[Tensor], registers: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    if each.operation == "lag":
        return registers[0][0], [_push(registers[0], operands[0])]
    if each.operation == "latch":
        r, s = operands
        value = torch.maximum(torch.minimum(r, registers[0][0]), s)
        return value, [value.unsqueeze(0)]
    pushed = [_push(register, operand) for register, operand in zip(registers, operands, strict=True)]
    if each.operation in ("largest", "smallest"):
        return pushed[0].amax(0) if each.operation == "largest" else pushed[0].amin(0), pushed
    r, s = pushed
    if each.operation == "since":  # what r is from the step after each on
        caps = torch.cat([_least_from_here(r[1:]), torch.full_like(r[:1], torch.inf)])
    else:  # what r is up to the step before each
        caps = torch.cat([torch.full_like(r[:1], torch.inf), _least_from_here(r[:-1].flip(0)).flip(0)])
    return torch.minimum(s, caps).amax(0), pushed


def _push(register: Tensor, value: Tensor) -> Tensor:
    return torch.cat([register[1:], value.unsqueeze(0)])


def _least_from_here(r: Tensor) -> Tensor:
    """The minimum of each row and those after it, in log2 n rounds: ONNX knows no running minimum."""
    reach = 1
    while reach < r.shape[0]:
        r = torch.cat([torch.minimum(r[:-reach], r[reach:]), r[-reach:]])
        reach *= 2
    return r


def export(formula: Formula, path: str | Path) -> tuple[list[str], list[str]]:
    """Write one step in float32 as an ONNX file, for any batch; returns the names of its inputs and outputs.

    The inputs are values (B, S) and the state, the outputs robustness (B,) and the state after. A state starts as
    `Step.start` gives it. The thresholds are those of now.
    """
    need("onnx", "onnx", "onnxscript")
    step = Step(formula).eval()
    sizes = {1, *(each.size for each in step.program.instructions)}
    example = next(size for size in range(2, len(sizes) + 3) if size not in sizes)  # torch would fix those
    state = step.start(example)
    names = named_state(step.program)
    inputs, outputs = ["values", *names], ["robustness", *(f"{name}.after" for name in names)]
    of_state = ({}, *({1: torch.export.Dim.DYNAMIC} for _ in state[1:]))
    program = torch.onnx.export(
        step,
        (torch.zeros(example, len(step.signals)), *state),
        dynamo=True,
        dynamic_shapes=({0: "batch"}, of_state),
        input_names=inputs,
        output_names=outputs,
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces, with paths of this machine
    program.save(str(path), external_data=False)
    return inputs, outputs


def named_state(program: Program) -> list[str]:
    """Names for the tensors of a state, in order."""
    names = ["time"]
    for number, each in enumerate(program.instructions):
        names += [f"{number}.{each.operation}.{part}" for part in range(len(start_values(each)))]
    return names


def unflatten(state: Mapping[str, Tensor], program: Program) -> tuple[Tensor, ...]:
    """A state from its names; an error if it is of another formula."""
    names = named_state(program)
    if set(state) != set(names):
        raise ValueError(f"the state must hold {', '.join(names)}; got {', '.join(sorted(state))}")
    return tuple(state[name] for name in names)
