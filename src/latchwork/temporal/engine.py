"""What runs a monitor's program: C++ or torch. Both keep the same registers and give the same bits."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor

from latchwork.ops.cpu import abi, kernel
from latchwork.temporal.formula import Formula
from latchwork.temporal.parameters import named_parameters
from latchwork.temporal.program import OPERATIONS, Program, start_values, state_rows
from latchwork.temporal.step import Step

NEVER = 2**62  # the last step of a trace that has not ended
State = tuple[Tensor, ...]


def unfit(program: Program, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the C++ engine cannot run a program, or None."""
    if kernel.MISSING is not None:
        return kernel.MISSING
    if not hasattr(kernel.library(), "latchwork_monitor"):
        return "the C++ kernel is of another version of latchwork; install the package again"
    if device.type != "cpu" or dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64 on the CPU; got {dtype} on {device}"
    if any(each.operation in ("exp", "pow") for each in program.instructions):
        return "exp and pow round otherwise in C++ than in torch"
    return None


class TorchEngine:
    """Steps of `Step`, any device, any dtype."""

    def __init__(
        self, formula: Formula, program: Program, batch: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.step = Step(formula, program)
        self.batch, self.dtype, self.device = batch, dtype, device
        self.state: State = self.step.start(batch, dtype, device)

    def advance(self, values: Tensor, last: int | None = None) -> Tensor:
        """The roots (T, R, B) for values (T, S, B)."""
        found = []
        with torch.no_grad():
            for now in values:
                roots, self.state = self.step.roots(now.T, self.state, last)
                found.append(roots)
        return torch.stack(found) if found else values.new_empty(0, len(self.step.program.roots), self.batch)

    def read(self) -> State:
        """The state."""
        return self.state

    def write(self, state: State) -> None:
        """Go on from a state."""
        self.state = tuple(each.to(self.device) for each in state)


class KernelEngine:
    """The C++ loop of csrc/monitor.cpp. A window costs the same at every width."""

    def __init__(self, formula: Formula, program: Program, batch: int, dtype: torch.dtype) -> None:
        self.program, self.batch = program, batch
        self._dtype, self.dtype = dtype, numpy.dtype(str(dtype).removeprefix("torch."))
        thresholds = named_parameters(formula)
        table, constants, rows = [], [], 0
        self.offsets: list[int] = []
        for number, each in enumerate(program.instructions):
            a, b = (*each.inputs, -1, -1)[:2]
            table.append((OPERATIONS.index(each.operation), a, b, each.size, rows, number + 1))
            self.offsets.append(rows)
            rows += _rows(each)
            name = each.value if isinstance(each.value, str) else None
            constants.append(thresholds[name].item() if name is not None else float(each.value))
        self.table = numpy.array(table, numpy.int64).reshape(-1, 6)
        self.constants = numpy.array(constants, self.dtype)
        self.numbers = numpy.empty((rows, batch), self.dtype)
        self.counters = numpy.zeros(len(table) + 1, numpy.int64)
        self.values = numpy.empty((len(table), batch), self.dtype)
        self.values[:] = self.constants[:, None]  # the kernel does not write the rows of constants
        self.known = numpy.empty(len(table), numpy.intp)
        self.roots = numpy.array(program.roots, numpy.int64)
        self.input = numpy.zeros((1, len(program.signals), batch), self.dtype)  # one step, to be filled by the caller
        self.write(Step(formula, program).start(batch, dtype))
        self.rows = [torch.from_numpy(row) for row in self.input[0]]
        kind = ctypes.c_float if self.dtype == numpy.float32 else ctypes.c_double
        self.cells = (kind * self.input.size).from_address(self.input.ctypes.data)  # of a batch of one: a number each
        self._run = kernel.library().latchwork_monitor
        self._run.argtypes, self._run.restype = [ctypes.c_void_p], None
        self._next = self._call(1, self.input, self.numbers, NEVER)  # its output is set at each step
        self._once = partial(self._run, ctypes.addressof(self._next))
        self.own = [self.input.ctypes.data + row * self.input.strides[1] for row in range(len(program.signals))]
        self.places = (ctypes.c_void_p * len(self.own))(*self.own)  # where the next step's signals are read from
        self._next.rows = ctypes.addressof(self.places)
        self.usual = (tuple(enumerate(program.signals)), torch.Size([batch]), dtype, self.places, batch == 1)
        self._fresh: list[Tensor] = []  # rows for answers, made many at a time: a new tensor costs more than a step
        self._place, self._size = 0, batch * self.dtype.itemsize

    def once(self) -> Tensor:
        """The root (B,), of a program with one, after a step from `places`."""
        if not (fresh := self._fresh):
            block = torch.empty(max(1, 32768 // self.batch), self.batch, dtype=self._dtype)
            self._fresh = fresh = list(block.unbind())
            self._place = block.data_ptr()
        row = fresh.pop()
        self._next.output = self._place + self._size * len(fresh)
        self._once()
        return row

    def _call(self, steps: int, values: Any, output: Any, last: int) -> abi.Monitor:
        return abi.Monitor(
            0 if self.dtype == numpy.float32 else 1,
            self.table.ctypes.data,
            *(len(self.table), self.batch, len(self.program.signals), steps),
            *(each.ctypes.data for each in (self.values, self.numbers, self.constants, self.counters)),
            values.ctypes.data,
            self.roots.ctypes.data,
            len(self.roots),
            output.ctypes.data,
            last,
            None,
            self.known.ctypes.data,
        )

    def advance(self, values: Tensor, last: int | None = None) -> Tensor:
        """The roots (T, R, B) for values (T, S, B)."""
        given = values.contiguous().numpy()
        output = numpy.empty((len(given), len(self.roots), self.batch), self.dtype)
        if len(given):
            call = self._call(len(given), given, output, NEVER if last is None else last)
            self._run(ctypes.addressof(call))
        return torch.from_numpy(output)

    def read(self) -> State:
        """The state as `Step` has it."""
        state = [torch.tensor(int(self.counters[0]))]
        for number, each in enumerate(self.program.instructions):
            for part in range(len(start_values(each))):
                first = self.offsets[number] + part * each.size
                ring = self.numbers[first : first + each.size]
                place = int(self.counters[number + 1])
                state.append(torch.from_numpy(numpy.concatenate([ring[place:], ring[:place]])))
        return tuple(state)

    def write(self, state: State) -> None:
        """Go on from a state: the registers are taken for the block before, and a new block begins."""
        registers = list(state[1:])
        self.counters[:] = 0
        self.counters[0] = int(state[0])
        for number, each in enumerate(self.program.instructions):
            own = self.numbers[self.offsets[number] : self.offsets[number] + _rows(each)]
            parts = [registers.pop(0).numpy() for _ in start_values(each)]
            for part, register in enumerate(parts):
                own[part * each.size : (part + 1) * each.size] = register
            n = each.size
            if each.operation in ("largest", "smallest"):
                best = numpy.maximum if each.operation == "largest" else numpy.minimum
                own[n : 2 * n] = best.accumulate(parts[0][::-1], axis=0)[::-1]
            elif each.operation in ("since", "until"):
                _compose(each.operation == "until", parts[0], parts[1], own[2 * n : 3 * n], own[3 * n : 4 * n])


def _rows(each: Any) -> int:
    """The rows of numbers that an instruction has in C++: registers, and what its block needs."""
    if each.operation in ("largest", "smallest"):
        return 2 * int(each.size) + 1
    if each.operation in ("since", "until"):
        return 4 * int(each.size) + 2
    return state_rows(each)


def _compose(backwards: bool, r: Any, s: Any, end_r: Any, end_s: Any) -> None:
    """The composition of the steps x -> max(min(r, x), s) from each to the last."""
    end_r[-1], end_s[-1] = r[-1], s[-1]
    for k in range(len(r) - 2, -1, -1):
        if backwards:
            end_s[k] = numpy.maximum(s[k], numpy.minimum(r[k], end_s[k + 1]))
        else:
            end_s[k] = numpy.maximum(numpy.minimum(end_r[k + 1], s[k]), end_s[k + 1])
        end_r[k] = numpy.minimum(r[k], end_r[k + 1])
