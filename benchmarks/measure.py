"""Interleaved timing: all contenders take turns in each round, so that a noisy neighbour hits all alike."""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

Shape = tuple[int, int, int]  # B, T, D
Row = dict[str, Any]  # one line of a table, as it is written to JSON
Clock = Callable[[], float]

ROUNDS = 5
FEWEST_CALLS = 3
SLOW_SECONDS = 4.0  # a first call slower than this is not repeated


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run measures, and for how long."""

    seconds: float  # for each contender in each comparison
    longest_call: float  # seconds; a contender is skipped that would take longer, judged by a trial on T / 16
    shapes: tuple[Shape, ...]
    threads: tuple[int, ...]  # one, and all of them
    compiled: bool  # whether torch.compile takes part


@dataclass(frozen=True)
class Timing:
    """The median time of one call, and how many calls it was taken from."""

    seconds: float
    calls: int


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def threads_set_to(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fair_clock() -> Clock:
    """Processor time with one thread, which other programs on the machine change least; with more, time of the wall."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def time_once(call: Callable[[], object], clock: Clock | None = None) -> float:
    """Seconds of one call, by `fair_clock` unless told; its result is freed after the clock has stopped."""
    clock = clock or fair_clock()
    start = clock()
    result = call()
    elapsed = clock() - start
    del result
    return elapsed


def interleave(
    calls: Mapping[str, Callable[[], object]], seconds: float, clock: Clock | None = None
) -> dict[str, Timing]:
    """Time all calls in turns and return the median of each.

    The first call of each warms up and is dropped, unless it takes more than SLOW_SECONDS: then it is the
    only one. In each of ROUNDS rounds each contender repeats its call for its share of `seconds`, caches warm
    with its own data; one that has used up its time, with at least FEWEST_CALLS calls, sits out.
    """
    times: dict[str, list[float]] = {}
    clock = clock or fair_clock()
    with no_garbage_collection():
        for name, call in calls.items():
            first = time_once(call, clock)
            times[name] = [first] if first > SLOW_SECONDS else []
        running = [name for name in calls if not times[name]]
        for _ in range(ROUNDS):
            for name in running:
                if sum(times[name]) >= seconds and len(times[name]) >= FEWEST_CALLS:
                    continue
                end = clock() + seconds / ROUNDS
                times[name].append(time_once(calls[name], clock))
                while clock() < end:
                    times[name].append(time_once(calls[name], clock))
    return {name: Timing(statistics.median(each), len(each)) for name, each in times.items()}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
