"""Training of several models in turns, call by call: the rows of one comparison, and their table."""

from collections.abc import Callable, Mapping

import torch
from rich.table import Table
from torch import Tensor

from measure import Row, progress
from model_contenders import PEER, Contender, parameters
from model_products import Products
from model_timing import take_turns

Makers = Mapping[str, Callable[[], Contender]]


def random_batch(vocab_size: int, B: int, T: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(vocab_size, (2, B, T), generator=generator)
    return tokens, targets


def training_step(contender: Contender, tokens: Tensor, targets: Tensor, optimise: bool) -> Callable[[], None]:
    """Forward, mean cross-entropy, backward; and Adam with weight decay, if so asked."""
    contender.model.train()
    optimiser = torch.optim.Adam(contender.model.parameters(), weight_decay=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        contender.loss(tokens, targets).backward()
        if optimise:
            optimiser.step()

    return step


def compare(
    label: str, makers: Makers, bounds: Mapping[str, Products], batch: tuple[Tensor, Tensor], optimise: bool
) -> Callable[[int, float], list[Row]]:
    """Set everything up once; the result measures it with the current number of threads, one row a contender."""
    tokens, targets = batch
    rows: dict[str, Row] = {}
    calls: dict[str, Callable[[], object]] = {}
    for name, make in makers.items():
        progress(f"{label}: {name} is set up")
        torch.manual_seed(0)
        rows[name] = Row(case=label, contender=name)
        try:
            contender = make()
        except ImportError as reason:
            rows[name]["note"] = f"not installed: {reason}"
            continue
        B = tokens.shape[0] // contender.fewer
        rows[name]["parameters"] = parameters(contender.model)
        if contender.fewer > 1:
            rows[name].update(fewer=contender.fewer, note=f"B = {B}, its time times {contender.fewer}")
        training_step(contender, tokens[:2, :16], targets[:2, :16], optimise)()  # loads what is needed once
        calls[name] = training_step(contender, tokens[:B], targets[:B], optimise)
    for name, products in bounds.items():
        rows[name] = Row(case=label, contender=name)
        calls[name] = products

    def measure(threads: int, seconds: float) -> list[Row]:
        progress(f"{label}: {threads} thread(s)")
        measured = {name: {"threads": threads, **row} for name, row in rows.items()}
        for name, timing in take_turns(calls, seconds).items():
            measured[name].update(seconds=timing.seconds * rows[name].get("fewer", 1), calls=timing.calls)
            if name in bounds:
                measured[name]["GFLOP/s"] = bounds[name].flops / timing.seconds / 1e9
        rate(list(measured.values()))
        return list(measured.values())

    return measure


def rate(rows: list[Row]) -> None:
    """Give each row its `faster`: how many times as fast as minmaxrnc."""
    base = next((row["seconds"] for row in rows if row["contender"] == PEER and "seconds" in row), None)
    for row in rows:
        if base and "seconds" in row:
            row["faster"] = base / row["seconds"]


def table(rows: list[Row], title: str) -> Table:
    result = Table(title=f"{title} x: times as fast as minmaxrnc. (n): fewer than 5 calls.")
    for heading in ("", "threads", "contender"):
        result.add_column(heading)
    for heading in ("parameters", "ms", "x", "GFLOP/s"):
        result.add_column(heading, justify="right")
    result.add_column("notes")
    previous = None
    for row in rows:
        group = row["case"], row["threads"]
        if previous not in (None, group):
            result.add_section()
        previous = group
        few = f" ({row['calls']})" if row.get("calls", 5) < 5 else ""
        result.add_row(
            row["case"],
            str(row["threads"]),
            row["contender"],
            f"{row['parameters']:,}" if "parameters" in row else "",
            f"{row['seconds'] * 1e3:,.0f}{few}" if "seconds" in row else "-",
            f"{row['faster']:.2f}" if "faster" in row else "-",
            f"{row['GFLOP/s']:.1f}" if "GFLOP/s" in row else "",
            row.get("note", ""),
        )
    return result
