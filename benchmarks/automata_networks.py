"""Automata: how fast a network runs as a machine, and how long it takes to compile, extract and certify.

    python benchmarks/automata_networks.py [--repeats N] [--json PATH]

`lazy`: LazyMachine against the network itself, on one thread, one after the other in turn; medians, and the median of
the ratios. Warm: one sequence of 2^20 tokens whose states are all in the tables. No repeats: a network without levels,
whose states hardly repeat, on sequences that the tables have not seen. `compile`, `extract`, `certify`: seconds, once.
Seconds are of the processor's time: nothing waits here, except for other programs on the same machine.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy
import torch
import typer
from rich.console import Console
from rich.table import Table

from latchwork import zoo
from latchwork.automata import LazyMachine, Machine, Proof, certify, compile, degree, extract
from latchwork.automata.lazy import CHUNK
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import make_task
from machine import describe
from measure import threads_set_to
from scan import RESULTS, write

LENGTH, FRESH = 1 << 20, 1 << 16
MACHINES = {
    "a(b|c)*d": lambda: Machine.from_regex("a(b|c)*d", "abcd"),
    "(a|b)*abb": lambda: Machine.from_regex("(a|b)*abb", "ab"),
    "parity": lambda: Machine.from_task(make_task("parity")),
    "latching(4)": lambda: Machine.from_task(make_task("latching(4)")),
    "sequences(3)": lambda: Machine.from_task(make_task("sequences(3)")),
    "word_problem(S3)": lambda: Machine.from_task(make_task("word_problem(S3)")),
    "word_problem(S5)": lambda: Machine.from_task(make_task("word_problem(S5)")),
}
EXTRACTED = {"fflm": 5, "latching-4": 20, "induction_heads-4": 6}  # and the symbols that come


def main(
    repeats: Annotated[int, typer.Option(help="of the measurements that are in turn")] = 9,
    path: Annotated[Path, typer.Option("--json", help="file to write")] = RESULTS / "automata.json",
) -> None:
    """Measure, print the table and write the record."""
    with threads_set_to(1):
        lazy = {"warm": warm(repeats), "no repeats": no_repeats(repeats)}
        seconds = [*compiled(), *extracted(), *certified()]
    console = Console(width=None if sys.stdout.isatty() else 120)
    for name, row in lazy.items():
        console.print(
            f"{name}: {row['tokens']:,} tokens, lazy {1e3 * row['lazy']:.1f} ms, "
            f"network {1e3 * row['network']:.1f} ms, lazy / network {row['ratio']:.3f}"
        )
    table = Table("what", "of", "seconds", "result")
    for row in seconds:
        table.add_row(row["what"], row["of"], f"{row['seconds']:.2f}", row["result"])
    console.print(table)
    write(path, machine=describe(1), repeats=repeats, lazy=lazy, seconds=seconds)


def warm(repeats: int) -> dict[str, Any]:
    """The zoo's Latching(4) on one long sequence; the network goes through it in chunks."""
    model = zoo.load("latching-4")
    tokens = make_task("latching(4)").sample("evaluation", 0, 1, LENGTH).tokens
    lazy, known = LazyMachine(model), 0
    while lazy.n_states > known:
        known, answers = lazy.n_states, lazy.run(tokens[0].numpy())
    assert (answers == network_answers(model, tokens)[0]).all()
    return in_turn(
        repeats, LENGTH, lambda _: lazy.run(tokens[0].numpy()), lambda _: network_answers(model, tokens), network_runs=3
    )


def no_repeats(repeats: int) -> dict[str, Any]:
    """A random network without levels, another sequence each time, tables empty each time."""
    torch.manual_seed(0)
    model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small(d_model=90, d_state=40, n_layers=2)).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.2)
    words = torch.from_numpy(numpy.random.default_rng(0).integers(20, size=(repeats, 1, FRESH)))
    LazyMachine(model).run(words[0].numpy())  # neither of the two is to pay for what comes first in a process
    machines = [LazyMachine(model) for _ in range(repeats)]
    return in_turn(
        repeats, FRESH, lambda k: machines[k].run(words[k].numpy()), lambda k: network_answers(model, words[k])
    )


@torch.no_grad()
def network_answers(model: MinMaxRNC_LM, tokens: torch.Tensor) -> numpy.ndarray:
    return model(tokens, chunk_size=CHUNK)[0].argmax(-1).numpy()


def in_turn(
    repeats: int,
    tokens: int,
    lazy: Callable[[int], object],
    network: Callable[[int], object],
    network_runs: int | None = None,
) -> dict[str, Any]:
    """Seconds of both, now one first and now the other; network_runs: how often the network is run, if far slower."""
    pairs, slow = [], 0.0
    for k in range(repeats):
        measured = network_runs is None or k < network_runs
        if measured and k % 2 == 0:
            slow = clock(lambda k=k: network(k))
        fast = clock(lambda k=k: lazy(k))
        if measured and k % 2:
            slow = clock(lambda k=k: network(k))
        pairs.append((fast, slow))
    return {
        "tokens": tokens,
        "lazy": statistics.median(one for one, _ in pairs),
        "network": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(one / other for one, other in pairs),
    }


def clock(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def compiled() -> list[dict[str, Any]]:
    rows = []
    for name, make in MACHINES.items():
        machine = make().minimise()
        start = time.process_time()
        shape = compile(machine, "cascade").config.backbone
        seconds = time.process_time() - start
        result = (
            f"{machine.n_states} states, degree {degree(machine)}; {shape.n_layers} layers, d_state {shape.d_state}, "
            f"state degree {shape.degree}"
        )
        rows.append({"what": "compile", "of": name, "seconds": seconds, "result": result})
    return rows


def extracted() -> list[dict[str, Any]]:
    rows = []
    for name, symbols in EXTRACTED.items():
        model, start = zoo.load(name), time.process_time()
        machine = extract(model, symbols=symbols)
        seconds = time.process_time() - start
        result = f"{machine.n_states} states, {machine.minimise().n_states} after minimisation"
        rows.append({"what": "extract", "of": name, "seconds": seconds, "result": result})
    return rows


def certified() -> list[dict[str, Any]]:
    rows = []
    for name in zoo.names():
        task = make_task(zoo.proof(name)["task"])
        model, start = zoo.load(name), time.process_time()
        proof = certify(model, Machine.from_task(task), no_answer=task.vocabulary)
        seconds = time.process_time() - start
        assert isinstance(proof, Proof)
        result = f"proved in {proof.precision}: {proof.states:,} states, margin {proof.margin:.2f}"
        rows.append({"what": "certify", "of": name, "seconds": seconds, "result": result})
    return rows


if __name__ == "__main__":
    typer.run(main)
