"""Turns for calls that take seconds: as measure.interleave, but call by call, and a slow call is repeated too."""

import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from measure import Timing, no_garbage_collection, time_once

FEWEST_CALLS, FEWEST_SLOW_CALLS = 3, 2
SLOW_SECONDS, ONCE_SECONDS = 4.0, 60.0  # a first call longer than these counts; is the only one


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run measures, and for how long."""

    seconds: float  # for each contender in each comparison
    threads: tuple[int, ...]  # one, and all of them
    quick: bool = False
    text: Path | None = None  # to train on


def take_turns(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Timing]:
    """Time all calls in turns, one at a time, and return the median of each.

    Each round begins with another call: the garbage collector runs before it and leaves cold caches. A first call
    warms up and is dropped, unless it takes more than SLOW_SECONDS: then it counts, and its caller has warmed up on
    something shorter. A contender sits out when it has used up `seconds` and made its fewest calls.
    """
    times: dict[str, list[float]] = {}
    fewest: dict[str, int] = {}
    with no_garbage_collection():
        for name, call in calls.items():
            first = time_once(call)
            slow = first > SLOW_SECONDS
            times[name] = [first] if slow else []
            fewest[name] = 1 if first > ONCE_SECONDS else FEWEST_SLOW_CALLS if slow else FEWEST_CALLS
        turn = 0
        while running := [name for name in times if len(times[name]) < fewest[name] or sum(times[name]) < seconds]:
            gc.collect()
            turn += 1
            for name in running[turn % len(running) :] + running[: turn % len(running)]:
                times[name].append(time_once(calls[name]))
    return {name: Timing(statistics.median(each), len(each)) for name, each in times.items()}
