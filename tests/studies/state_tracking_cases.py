"""Records as a job would leave them, made up."""

from state_tracking_jobs import LENGTHS, LONG, Limits


def made_up(job, limits=Limits(), *, learnt=True, steps=None, length=None, wrong=0, result="proof"):  # noqa: B008
    """A record of a job; wrong: errors of the test at 8,192."""
    steps = 100 * (job.seed + 1) if steps is None else steps
    length = job.problem.length if length is None else length
    tests = [{"length": each, "accuracy": 1.0, "errors": 0, "answers": 65536} for each in LENGTHS]
    tests[0] |= {"positions": [[0, 10, 2560, 2560], [10, 40, 7680, 7680]], "constant": 0.25}
    buckets = [[0, 40, 320, 0], [40, 100, 480, 480], [100, 8192, 64736, 64736 - wrong]]
    tests[-1] |= {"accuracy": 1 - wrong / 65536, "errors": wrong, "positions": buckets, "constant": 0.25}
    long = [{"length": LONG, "accuracy": 1.0, "errors": 0, "answers": LONG}]
    record = {
        "problem": job.problem.name,
        "task": job.problem.task,
        "length": job.problem.length,
        "model": job.model,
        "rate": job.rate,
        "seed": job.seed,
        "letters": 6,
        "units": vars(job.problem.units) if job.model == "minmax" else None,
        "parameters": 1234,
        "limits": vars(limits),
        "stuck": [],
        "training": {
            "learnt": learnt,
            "stopped": "learnt" if learnt else "seconds",
            "steps": steps,
            "seconds": steps / 10,
            "length": length,
        },
        "tests": tests if wrong else tests + long,
        "hardware": {"processor": "a processor"},
    }
    if job.model == "minmax" and learnt:
        record["proof"] = {"result": result, "units": 1 + job.seed, "seconds": 1.0, "tests": tests[:-1] + long}
    return record
