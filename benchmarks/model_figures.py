"""The tables of benchmarks/results/model.json as they stand in the README."""

from collections.abc import Callable
from typing import Any

Record = dict[str, Any]
Rows = list[dict[str, Any]]
Lines = tuple[list[str], list[list[str]]]  # a head, and rows as long


def number(row: dict[str, Any], field: str, form: str) -> str:
    return format(row[field], form) if field in row else "-"


def provenance(record: Record) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    moments = "; ".join(
        f"{name} {each['date'][:10]} at {each['commit'][:12]}, load {each['load before']}"
        + (", quick" if each.get("quick") else "")
        for name, each in record["measured"].items()
    )
    return f"Measured on: {machine}. Sections: {moments}."


def training(rows: Rows, title: str) -> Lines:
    """A row a contender; for each case the parameters and, for each number of threads, ms and times as fast."""
    groups = list(dict.fromkeys((row["case"], row["threads"]) for row in rows))
    cases = list(dict.fromkeys(case for case, _ in groups))
    found = {(row["contender"], row["case"], row["threads"]): row for row in rows}
    notes = {row["contender"]: row["note"] for row in rows if "note" in row}
    head = [title]
    for case in cases:
        head += [f"{case}: parameters", *(f"{threads} thread(s)" for each, threads in groups if each == case)]
    lines = []
    for name in dict.fromkeys(row["contender"] for row in rows):
        line = [f"{name} ({notes[name]})" if name in notes else name]
        for case in cases:
            here = [found.get((name, case, threads), {}) for each, threads in groups if each == case]
            line.append(number(here[0], "parameters", ","))
            line += [training_cell(row) for row in here]
        lines.append(line)
    return head, lines


def training_cell(row: dict[str, Any]) -> str:
    if "seconds" not in row:
        return "-"
    speed = f", {row['GFLOP/s']:.0f} GFLOP/s" if "GFLOP/s" in row else ""
    return f"{row['seconds'] * 1e3:,.0f} ({number(row, 'faster', '.2f')} x{speed})"


def step(rows: Rows) -> Lines:
    return training(rows, "training step, ms (times as fast as minmaxrnc)")


def presets(rows: Rows) -> Lines:
    return training(rows, "forward+backward, ms (times as fast as minmaxrnc)")


def characters(rows: Rows) -> Lines:
    head = ["layers of the character models, forward+backward at 12 x 64", "parameters", "ms", "our time / its time"]
    lines = []
    for row in rows:
        time = f"{row['seconds'] * 1e3:.1f}"
        lines.append([row["contender"], number(row, "parameters", ","), time, number(row, "of ours", ".2f")])
    return head, lines


def evaluation(rows: Rows) -> Lines:
    head = [
        "accuracy on 2^20 tokens, 1 thread",
        "tokens a piece",
        "s",
        "times as fast as minmaxrnc at best",
        "extra MB",
    ]
    fields = {"chunk": "", "seconds": ".2f", "faster": ".2f", "extra MB": ".0f"}
    return head, [[row["contender"], *(number(row, *field) for field in fields.items())] for row in rows]


def decode(rows: Rows) -> Lines:
    head = ["decoding", "threads", "tokens/s", "times as fast as minmaxrnc", "weights MB", "% of the bound"]
    fields = {"tokens/s": ".1f", "faster": ".2f", "weights MB": ".0f", "percent": ".0f"}
    lines = []
    for row in rows:
        read = f"{row['contender']}, {row['GB/s']:.1f} GB/s" if "GB/s" in row else row["contender"]
        lines.append([read, str(row["threads"]), *(number(row, *field) for field in fields.items())])
    return head, lines


def memory(rows: Rows) -> Lines:
    return ["peak memory of the training step", "MB"], [[r["contender"], number(r, "extra MB", ".0f")] for r in rows]


def int8(rows: Rows) -> Lines:
    return ["int8 weights", ""], [[r["figure"], number(r, "value", ".6g")] for r in rows]


SECTIONS: dict[str, Callable[[Rows], Lines]] = {
    "step": step,
    "presets": presets,
    "characters": characters,
    "evaluation": evaluation,
    "decode": decode,
    "memory": memory,
    "int8": int8,
}


def sections(record: Record) -> list[Lines]:
    """A table for each section that was measured."""
    return [make(record[name]) for name, make in SECTIONS.items() if name in record]
