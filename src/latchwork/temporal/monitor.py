"""Monitors: a formula over a stream, one step at a time or in chunks, in constant memory, for a batch of traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from latchwork.ops.dispatch import asked_for, choose
from latchwork.temporal.ahead import Ahead
from latchwork.temporal.engine import KernelEngine, TorchEngine, unfit
from latchwork.temporal.formula import Formula
from latchwork.temporal.program import compile_program
from latchwork.temporal.step import named_state, unflatten
from latchwork.temporal.traces import number, read
from latchwork.tensor_files import read_tensors, write_tensors

LARGEST = 2**31  # numbers kept: 16 GB in float64


class Monitor:
    """A formula over `batch` traces that come step by step; made by `Formula.online`.

    Formulas of finite horizon: a step returns the robustness at the step `delay` steps ago, which is then known for
    good; before there is such a step it returns NaN. Past formulas have no delay. The delay is the horizon, or a little
    more where a future operator stands over one that looks back. `finish` gives the last `delay` values.
    Formulas of infinite horizon: a step returns the robustness at the first step, of the trace so far; `verdict` says
    for each trace whether that will be above 0 (1) or below 0 (-1) whatever comes, or whether it is open (0). A verdict
    is never wrong; one that could be given earlier may come late, or stay open.

    All values equal those of the formula on whole traces, bit for bit (but for exp and pow, to rounding).

    >>> from latchwork.temporal import parse
    >>> monitor = parse("x since y").online()
    >>> [monitor.step({"x": x, "y": y}).item() for x, y in ((1.0, 3.0), (2.0, 0.0), (-1.0, 0.0))]
    [3.0, 2.0, 0.0]
    """

    def __init__(
        self,
        formula: Formula,
        batch: int = 1,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        engine: Literal["auto", "kernel", "torch"] = "auto",
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1; got {batch}")
        if engine not in ("auto", "kernel", "torch"):
            raise ValueError(f"engine must be auto, kernel or torch; got {engine!r}")
        self.formula, self.batch, self.dtype, self.device = formula, batch, dtype, torch.device(device)
        self._ahead = Ahead(formula, batch, dtype, self.device) if formula.horizon == float("inf") else None
        self._program = compile_program([formula] if self._ahead is None else self._ahead.leaves)
        if self._program.numbers() * batch > LARGEST:
            raise ValueError(
                f"the monitor would keep {self._program.numbers() * batch:,} numbers, more than {LARGEST:,}: "
                "bounds this wide want fewer traces, or the formula on whole traces"
            )
        reason = unfit(self._program, dtype, self.device)
        if engine == "auto" and asked_for() != "auto":  # a backend that is asked for by name
            name = choose("temporal", "auto", torch.empty(0, device=self.device))
            engine = "kernel" if name == "cpu" else "torch"
        if engine == "kernel" and reason is not None:
            raise ValueError(f"engine 'kernel' cannot run: {reason}")
        self._engine = (
            TorchEngine(formula, self._program, batch, dtype, self.device)
            if engine == "torch" or reason is not None
            else KernelEngine(formula, self._program, batch, dtype)
        )
        self._fast = self._engine if self._ahead is None and isinstance(self._engine, KernelEngine) else None
        self.delay = self._program.delay if self._ahead is None else 0
        self.steps = 0  # taken so far
        self._last: int | None = None

    @property
    def signals(self) -> tuple[str, ...]:
        """The names of the signals that a step needs."""
        return tuple(self._program.signals)

    def step(self, values: Mapping[str, Any] | Tensor) -> Tensor:
        """The robustness (B,) after one more step. values: by name, a number for all traces or (B,); or a tensor
        (B, S) whose columns are `signals`."""
        if self._last is not None:
            self._check_open()
        if (engine := self._fast) is not None:
            self._take(engine, values)
            self.steps += 1
            found = engine.once()
            return found if self.steps > self.delay else found.fill_(torch.nan)
        if isinstance(values, Mapping):
            rows = [self._row(name, values) for name in self._program.signals]
            now = torch.stack([row.to(self.device, self.dtype).expand(self.batch) for row in rows]) if rows else None
        else:
            now = self._columns(values)
        now = torch.empty(0, self.batch, dtype=self.dtype) if now is None else now
        return self._advance(now.unsqueeze(0))[:, 0]

    def run(self, signals: Any, names: Sequence[str] | None = None) -> Tensor:
        """The robustness (B, T) after each step of a chunk (B, T), or (T,) for a batch of one; as `step` T times."""
        self._check_open()
        found = read(signals, self._program.signals, names)
        rows = [found[name] for name in self._program.signals] or list(found.values())[:1]
        flat = rows[0].dim() == 1
        rows = [row.unsqueeze(0) if flat else row for row in rows]
        if rows[0].shape[0] != self.batch:
            raise ValueError(f"signals must be of {self.batch} traces, the monitor's batch; got {rows[0].shape[0]}")
        values = torch.stack(rows).permute(2, 0, 1)[:, : len(self._program.signals)]
        robust = self._advance(values.to(self.device, self.dtype))
        return robust[0] if flat else robust

    def finish(self) -> Tensor:
        """The trace ends here: the robustness (B, n) at its last n = min(delay, steps) steps. Then only `reset`."""
        self._check_open()
        self._last = self.steps - 1
        if self._ahead is not None:
            return torch.empty(self.batch, 0, dtype=self.dtype, device=self.device)
        found = self._engine.advance(self._nothing(self.delay), self._last)[:, 0].T
        return found[:, max(0, self.delay - self.steps) :]

    @property
    def verdict(self) -> Tensor:
        """(B,) int8: 1 satisfied whatever comes, -1 violated whatever comes, 0 open; for infinite horizons alone."""
        if self._ahead is None:
            raise ValueError(f"a verdict is for formulas of infinite horizon; this one has {self.formula.horizon}")
        return self._ahead.verdict()

    def reset(self) -> None:
        """Back to before the first step."""
        fresh = Monitor(
            self.formula,
            self.batch,
            dtype=self.dtype,
            device=self.device,
            engine="kernel" if isinstance(self._engine, KernelEngine) else "torch",
        )
        self.__dict__.update(fresh.__dict__)

    def state(self) -> dict[str, Tensor]:
        """What the monitor remembers, as tensors by name: to be kept, saved, or given to `load_state`."""
        self._check_open()
        names = named_state(self._program)
        state = {name: each.clone() for name, each in zip(names, self._engine.read(), strict=True)}
        return state if self._ahead is None else {**state, **self._ahead.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave, of a monitor of the same formula and batch, on any engine."""
        own = dict(state)
        if self._ahead is not None:
            self._ahead.load_state(own)
        flat = unflatten(own, self._program)
        for name, new, old in zip(named_state(self._program), flat, self._engine.read(), strict=True):
            if new.shape != old.shape or new.dtype != old.dtype:
                wanted = f"{tuple(old.shape)} {old.dtype}"
                raise ValueError(f"the state {name} must be {wanted}; got {tuple(new.shape)} {new.dtype}")
        self._engine.write(tuple(each.clone() for each in flat))
        self.steps, self._last = int(flat[0]), None

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file with its SHA-256 in it, whole or not at all."""
        write_tensors(Path(path), self.state(), {"formula": str(self.formula)})

    def load(self, path: str | Path) -> None:
        """Go on from a file that `save` wrote, of the same formula. A file that has changed since is an error."""
        state, metadata = read_tensors(Path(path))
        saved = metadata.get("formula")
        if saved != str(self.formula):
            raise ValueError(f"{path} must be of the formula {self.formula}; it is of {saved!r:.200}")
        try:
            self.load_state(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not the state of this monitor: {error}") from error

    def _advance(self, values: Tensor) -> Tensor:
        """Values (T, S, B) to robustness (B, T)."""
        if self._ahead is not None:
            return self._advance_ahead(values)
        found = self._engine.advance(values)[:, 0].T.clone()
        early = max(0, min(len(values), self.delay - self.steps))
        found[:, :early] = torch.nan
        self.steps += len(values)
        return found

    def _advance_ahead(self, values: Tensor) -> Tensor:
        assert self._ahead is not None
        late, found = self._program.delay, []
        for now in values:
            leaves = self._engine.advance(now.unsqueeze(0))[0]
            self.steps += 1
            if self.steps > late:
                self._ahead.advance(leaves)
            found.append(self._ahead.so_far(self._pending(late)))
        return torch.stack(found, 1) if found else values.new_empty(self.batch, 0)

    def _pending(self, late: int) -> Tensor:
        """The leaves (n, L, B) at the last steps, which are not known for good, as if the trace ended here."""
        if late == 0:
            return self._nothing(0)
        kept = self._engine.read()
        pending = self._engine.advance(self._nothing(late), self.steps - 1)
        self._engine.write(kept)
        return pending[max(0, late - self.steps) :]

    def _nothing(self, steps: int) -> Tensor:
        return torch.zeros(steps, len(self._program.signals), self.batch, dtype=self.dtype, device=self.device)

    def _check_open(self) -> None:
        if self._last is not None:
            raise RuntimeError("the trace was finished: call reset, or load_state, before the next step")

    def _take(self, engine: KernelEngine, values: Mapping[str, Any] | Tensor) -> None:
        """Put the values of one step where the kernel reads them."""
        if values.__class__ is not dict and not isinstance(values, Mapping):
            for k, row in enumerate(self._columns(values)):
                engine.rows[k].copy_(row)
                engine.places[k] = engine.own[k]
            return
        names, shape, dtype, places, one = engine.usual
        for k, name in names:  # what is usual at the least cost
            value = values.get(name)
            if (
                value.__class__ is Tensor
                and value.dtype is dtype
                and value.is_cpu
                and value.shape == shape
                and value.is_contiguous()
                and not (one and value.is_neg())  # a negated view of two numbers or more is not contiguous
            ):
                places[k] = value.data_ptr()  # read where it is; `values` keeps it until the step is done
            elif value.__class__ is float and one:
                engine.cells[k] = value
                places[k] = engine.own[k]
            else:
                engine.rows[k].copy_(self._row(name, values).detach())
                places[k] = engine.own[k]

    def _columns(self, values: Tensor) -> Tensor:
        expected = (self.batch, len(self._program.signals))
        if values.shape != expected:
            raise ValueError(f"values must be (B, S) = {expected}, S for {self.signals}; got {tuple(values.shape)}")
        return number(values.detach(), self.dtype).T.to(self.device)

    def _row(self, name: str, values: Mapping[str, Any]) -> Tensor:
        if name not in values:
            raise ValueError(f"a step needs {', '.join(self.signals)}; got {', '.join(values) or 'nothing'}")
        row = number(torch.as_tensor(values[name]), self.dtype)
        if row.shape not in ((), (self.batch,)):
            raise ValueError(f"{name} must be a number or (B,) = ({self.batch},); got {tuple(row.shape)}")
        return row


def first_violation(formula: Formula, trace: Mapping[str, Tensor]) -> int | None:
    """The first step at which a trace, tensors (T,) by name, violates a formula for good; None if there is none.

    Of a finite horizon: the first step with robustness below 0. Of an infinite one: the first after which the formula
    cannot hold at the first step any more, whatever comes; None also where it only happens not to hold by the end.
    """
    if formula.horizon != float("inf"):
        below = formula(trace) < 0
        return int(below.long().argmax()) if bool(below.any()) else None
    watch = formula.online()
    for step, row in enumerate(zip(*(trace[name].tolist() for name in watch.signals), strict=True)):
        watch.step(dict(zip(watch.signals, row, strict=True)))
        if int(watch.verdict) == -1:
            return step
    return None
