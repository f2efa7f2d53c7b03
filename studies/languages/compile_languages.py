"""Compile every machine of MLRegTest into a network, and certify each network against its machine.

FOLDER holds the benchmark's automata, *.att, named alphabet.tier.class.k.j.i. The complements of SL, SP and TSL, which
are languages of the benchmark too, are made from them. Smallest first, every language is compiled by the method that
`compile` chooses; then, again smallest first, by `cascade` within the limits below. What was done is saved on the way
and is not done again.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from latchwork.automata import DecompositionTooLarge, Proof, certify, compile, degree, extract, is_group_free
from latchwork.files import read_json, write_json, write_text
from latchwork.machines import Machine

RECORD = Path(__file__).parents[2] / "results" / "languages" / "compile.json"
COMPLEMENTS = {"SL": "coSL", "SP": "coSP", "TSL": "TcoSL"}
STAR_FREE = (
    "SL", "coSL", "TSL", "TcoSL", "SP", "coSP", "LT", "TLT", "PT", "LTT", "TLTT", "PLT", "TPLT", "SF",
)  # fmt: skip
LIMITS = {
    "max_sets": 1000,  # of a decomposition
    "cascade_weights": 1 << 20,  # a cascade with more is "too large" here
    "max_weights": 1 << 28,  # of the chosen method
    "max_states": 200_000,  # of a proof
}
EVERY = 20  # languages between two saves


def names(folder: Path) -> list[str]:
    """Of all languages: those of the files, each followed by its complement if that is a language too."""
    found = []
    for path in sorted(folder.glob("*.att")):
        found.append(path.stem)
        if (other := COMPLEMENTS.get(class_of(path.stem))) is not None:
            found.append(_with_class(path.stem, other))
    return found


def class_of(name: str) -> str:
    return name.split(".")[2]


def load(folder: Path, name: str) -> Machine:
    """The machine of a language, as it is in its file or in that of its complement; not minimised."""
    given = {other: kind for kind, other in COMPLEMENTS.items()}.get(class_of(name))
    machine = Machine.from_att(folder / f"{name if given is None else _with_class(name, given)}.att")
    return machine if given is None else replace(machine, outputs=1 - machine.outputs)


def _with_class(name: str, kind: str) -> str:
    return ".".join([*name.split(".")[:2], kind, *name.split(".")[3:]])


def attempt(machine: Machine, method: str, max_weights: int) -> dict[str, Any]:
    """Compile the smallest machine that does the same, and certify the network against the machine as it was given."""
    start = time.process_time()
    try:
        model = compile(machine.minimise(), method, max_weights=max_weights)
    except DecompositionTooLarge as error:
        return {"refused": str(error), "compile_seconds": round(time.process_time() - start, 3)}
    compiled = time.process_time()
    found = certify(model, machine, max_states=LIMITS["max_states"])
    shape = model.config.backbone
    record = {
        "weights": model.parameter_count(),
        "layers": shape.n_layers,
        "degree": shape.degree,
        "reset_form": shape.reset_form,
        "result": type(found).__name__,
        "compile_seconds": round(compiled - start, 3),
        "certify_seconds": round(time.process_time() - compiled, 3),
    }
    if not isinstance(found, Proof):
        record["why"] = str(found)
        if method == "smallest":  # beyond what `certify` takes: walked bit for bit, as run here
            walked = extract(model, symbols=machine.n_symbols).equivalent(machine) is None
            record["walked"] = walked
    return record


def describe(name: str, kind: str, machine: Machine) -> dict[str, Any]:
    smallest = machine.minimise()
    record: dict[str, Any] = {"name": name, "class": kind, "letters": machine.n_symbols, "states": machine.n_states}
    try:
        record["group_free"] = is_group_free(smallest, LIMITS["max_sets"])
        record["needs_degree"] = 1 if record["group_free"] else degree(smallest, LIMITS["max_sets"])
    except DecompositionTooLarge:
        record["group_free"] = record["needs_degree"] = None
    return record


def run(folder: Path, minutes: float, only: str | None = None) -> dict[str, Any]:
    """only: "chosen" or "cascade", for that pass alone."""
    record = read_json(RECORD) or {"languages": {}}
    done: dict[str, dict[str, Any]] = record["languages"]
    record.update(config=LIMITS, commit=commit(), torch=torch.__version__, processor=platform.processor())
    given = ((name, class_of(name), load(folder, name)) for name in names(folder))
    everything = sorted(given, key=lambda each: (each[2].n_states * each[2].n_symbols, each[0]))
    end = time.monotonic() + 60 * minutes
    count = 0

    def save() -> None:
        record["given"] = len(everything)
        write_json(RECORD, record)

    for key, method, limit in (("chosen", "smallest", "max_weights"), ("cascade", "cascade", "cascade_weights")):
        if only not in (None, key):
            continue
        for name, kind, machine in everything:
            if key in done.get(name, {}):
                continue
            if time.monotonic() > end:
                save()
                return record
            if name not in done:
                done[name] = describe(name, kind, machine)
            done[name][key] = attempt(machine, method, LIMITS[limit])
            count += 1
            if count % EVERY == 0:
                save()
                print(key, sum(key in each for each in done.values()), "of", len(everything), name, flush=True)
    save()
    return record


def table(record: dict[str, Any]) -> str:
    """The record by class, as Markdown."""
    by_class = defaultdict(list)
    for each in record["languages"].values():
        by_class[each["class"]].append(each)
    header = (
        "class", "languages", "states", "proved", "weights", "degree", "compile, certify (s)",
        "group-free", "cascade tried", "cascade proved", "of degree 1", "weights", "too large",
    )  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    rows = [*sorted(by_class.items()), ("all", list(record["languages"].values()))]
    for kind, found in rows:
        chosen = [each["chosen"] for each in found if "chosen" in each]
        cascades = [each["cascade"] for each in found if "cascade" in each]
        proved = [each for each in cascades if each.get("result") == "Proof"]
        lines.append("| " + " | ".join([
            kind, str(len(found)), span(each["states"] for each in found),
            str(sum(each.get("result") == "Proof" for each in chosen)),
            span(each["weights"] for each in chosen if "weights" in each),
            span(each["degree"] for each in chosen if "degree" in each),
            f"{mid(chosen, 'compile_seconds')}, {mid(chosen, 'certify_seconds')}",
            str(sum(each["group_free"] is True for each in found)), str(len(cascades)), str(len(proved)),
            str(sum(each["degree"] == 1 for each in proved)), span(each["weights"] for each in proved),
            str(sum("refused" in each for each in cascades)),
        ]) + " |")  # fmt: skip
    return "\n".join(lines)


def notes(record: dict[str, Any]) -> str:
    """What the table does not say: how much was done, what was not proved, and what is not of degree one."""
    found = list(record["languages"].values())
    lines = [
        f"{len(found):,} of {record['given']:,} languages; {sum('cascade' in each for each in found):,} by cascade."
    ]
    unproved = [each for each in found if "chosen" in each and each["chosen"].get("result") != "Proof"]
    lines.append(f"By the chosen method {len(unproved)} were not proved:")
    lines += [
        f"- {each['name']}: {each['states']} states, "
        + (each["chosen"].get("refused") or each["chosen"]["why"])
        + ("; walked bit for bit: the same" if each["chosen"].get("walked") else "")
        for each in unproved
    ]
    wrong = [
        each for each in found
        if each["group_free"] and each.get("cascade", {}).get("result") == "Proof" and each["cascade"]["degree"] != 1
    ]  # fmt: skip
    lines.append(f"Group-free languages whose cascade is not of degree one: {len(wrong)}.")
    odd = [each["name"] for each in found if each["class"] in STAR_FREE and each["group_free"] is False]
    lines.append(f"Languages of a star-free class whose machine is not group-free: {len(odd)}. {', '.join(odd[:20])}")
    unknown = [
        each for each in found if "cascade" in each and "refused" not in each["cascade"]
        and each["cascade"]["result"] != "Proof"
    ]  # fmt: skip
    lines.append(f"Cascades that were made and not proved: {len(unknown)}.")
    lines += [f"- {each['name']}: {each['cascade']['why']}" for each in unknown[:20]]
    return "\n".join(lines)


def span(values: Iterable[int]) -> str:
    """Median and largest."""
    each = sorted(values)
    return f"{round(median(each)):,} ({each[-1]:,})" if each else ""


def mid(records: list[dict[str, Any]], key: str) -> str:
    each = [record[key] for record in records if key in record]
    return f"{median(each):.2f}" if each else ""


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="of the automata, *.att; none: report only")
    parser.add_argument("--minutes", type=float, default=600, help="stop and save after so many")
    parser.add_argument("--only", choices=["chosen", "cascade"], help="this pass alone; default: both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.folder is not None and not any(arguments.folder.glob("*.att")):
        parser.error(f"{arguments.folder} holds no *.att")
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    record = read_json(RECORD) if arguments.folder is None else run(arguments.folder, arguments.minutes, arguments.only)
    if record is None:
        parser.error(f"{RECORD} is not there yet: give the folder of automata")
    text = "# MLRegTest, compiled\n\nMedians, and in brackets the largest.\n\n" + table(record) + "\n\n" + notes(record)
    write_text(RECORD.with_suffix(".md"), text + "\n")
    print(text)


if __name__ == "__main__":
    main()
