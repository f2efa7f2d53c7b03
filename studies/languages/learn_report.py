"""Write the table and the picture of what was learnt into README.md from the records: python learn_report.py"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from learn_languages import NETWORKS, PROVABLE, RESULTS, is_right

from latchwork.files import read_json, write_text
from latchwork.reports.markdown import between, table

PAGE = Path(__file__).with_name("README.md")
MARKS = "<!-- learnt: written by learn_report.py -->", "<!-- end of learnt -->"
Record = dict[str, Any]


def accuracy(record: Record) -> float:
    """The mean over the four test sets."""
    return mean(each["right"] / each["words"] for each in record["tests"].values() if each["words"])


def is_learnt(record: Record) -> bool:
    """Whether no answer was wrong in any of the four test sets."""
    return all(map(is_right, record["tests"].values()))


def report(records: list[Record]) -> str:
    """By class and alphabet: mean accuracy of each network, and how many runs were proved."""
    groups = defaultdict(list)
    for each in records:
        groups[each["config"]["class"], each["config"]["letters"]].append(each)
    rows = []
    for (kind, letters), found in [*sorted(groups.items()), (("all", ""), records)]:
        cells = []
        for network in NETWORKS:
            own = [each for each in found if each["config"]["network"] == network]
            learnt = sum(map(is_learnt, own))
            cells.append(f"{100 * mean(map(accuracy, own)):.1f} ({learnt} of {len(own)})" if own else "–")
        asked = [each["proof"] for each in found if "proof" in each]
        proved = sum(each["result"] == "Proof" for each in asked)
        rows.append([kind, str(letters), *cells, f"{proved} of {len(asked)}" if asked else "–"])
    proofs = f"proved, of {PROVABLE} never wrong"
    missed = sorted(
        {each["config"]["language"] for each in records}
        - {each["config"]["language"] for each in records if is_learnt(each)}
    )
    return (
        f"{len(records)} runs. Mean accuracy in percent of the four test sets; in brackets runs without a mistake.\n\n"
        + table(["class", "letters", *NETWORKS, proofs], rows)
        + f"\n\nLearnt without a mistake by no network: {len(missed)} languages: {', '.join(missed) or 'none'}."
    )


def main() -> None:
    """The page from all records there are."""
    found = [read_json(path) for path in sorted((RESULTS / "drawn").glob("*/*.json"))]
    records = [each for each in found if each is not None]
    text = report(records) if records else "No run is recorded yet."
    write_text(PAGE, between(MARKS, PAGE.read_text(), text))


if __name__ == "__main__":
    main()
