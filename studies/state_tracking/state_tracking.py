"""Learn to keep track of a state, in the standard layer and from a shared embedding; is it then exact, for ever?

python studies/state_tracking/state_tracking.py "word_problem(S5)" --seeds 5   five seeds of ours, a record each
python studies/state_tracking/state_tracking.py parity --models lstm mamba   other models, about as many parameters
python studies/state_tracking/state_tracking.py --list   the problems, and how far each is
python studies/state_tracking/state_tracking.py --report   the tables and the plot of README.md

Records are in results/state_tracking. A finished job is never run again; two processes may share the work.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from difflib import get_close_matches
from pathlib import Path

import state_tracking_report
from state_tracking_jobs import Limits, make_threads_one, read_all, run_all
from state_tracking_tasks import MODELS, OURS, PROBLEMS

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "state_tracking"
PAGE = Path(__file__).with_name("README.md")


def main(arguments: list[str] | None = None) -> int:
    """Read the options and do it; 0 done, 1 some jobs failed, 2 bad usage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help='as --list prints them, as "word_problem(S5)"; none: all')
    parser.add_argument("--models", nargs="+", default=[OURS], choices=MODELS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=Limits.steps, help="of one training, at most")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="of one training, at most")
    parser.add_argument("--long", type=int, default=Limits.long, help="steps of the longest test")
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args(arguments)
    if options.list:
        done = Counter((each["problem"], each["model"]) for each in read_all(options.out))
        for name, problem in PROBLEMS.items():
            records = ", ".join(f"{model} {done[name, model]}" for model in MODELS if done[name, model])
            units = problem.units
            print(f"{name}: {units.units} units of degree {units.degree}, {units.form}; records: {records or 'none'}")
        return 0
    if options.report:
        state_tracking_report.write(read_all(options.out), PAGE)
        return 0
    for name in options.problems:
        if name not in PROBLEMS:
            near = ", ".join(repr(each) for each in get_close_matches(name, PROBLEMS, cutoff=0.3))
            parser.error(f"no problem {name!r}; did you mean {near or 'one of --list'}?")
    if options.seeds < 1 or options.steps < 1 or options.long < 1 or not options.seconds > 0:
        parser.error("--seeds, --steps and --long must be at least 1, --seconds positive")
    make_threads_one()
    problems = [PROBLEMS[name] for name in options.problems or PROBLEMS]
    limits = Limits(options.steps, options.seconds, options.long)
    failed = run_all(problems, options.models, options.seeds, options.out, limits, lambda line: print(line, flush=True))
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
