"""Write the table and the picture of what was learnt into README.md from the records: python learn_report.py"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from learn_languages import LONGER, NETWORKS, PROVABLE, RESULTS, is_right

from latchwork.files import read_json, write_text
from latchwork.reports.figures import SETTINGS, render
from latchwork.reports.markdown import between, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = Path(__file__).with_name("README.md")
MARKS = "<!-- learnt: written by learn_report.py -->", "<!-- end of learnt -->"
COLOURS = dict(zip(NETWORKS, ("#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7"), strict=True))
SHAPES = dict(zip(NETWORKS, "oDs^vP", strict=True))
Record = dict[str, Any]


def accuracy(record: Record) -> float:
    """The mean over the four test sets."""
    return mean(each["right"] / each["words"] for each in record["tests"].values() if each["words"])


def is_learnt(record: Record) -> bool:
    """Whether no answer was wrong in any of the four test sets."""
    return all(map(is_right, record["tests"].values()))


def by_class(records: list[Record]) -> dict[str, list[Record]]:
    """Class -> its records, in alphabetical order."""
    found = defaultdict(list)
    for each in records:
        found[each["config"]["class"]].append(each)
    return dict(sorted(found.items()))


def of(network: str, records: list[Record]) -> list[Record]:
    """The records of a network."""
    return [each for each in records if each["config"]["network"] == network]


def report(records: list[Record]) -> str:
    """By class the mean accuracy of each network; then what was learnt, on longer words too, what proved, what not."""
    rows = []
    for kind, found in [*by_class(records).items(), ("all", records)]:
        cells = [
            f"{100 * mean(map(accuracy, own)):.1f} ({sum(map(is_learnt, own))} of {len(own)})" if own else "–"
            for own in (of(network, found) for network in NETWORKS)
        ]
        proofs = [each["proof"]["result"] == "Proof" for each in found if "proof" in each]
        rows.append([kind, *cells, f"{sum(proofs)} of {len(proofs)}" if proofs else "–"])
    languages = {each["config"]["language"] for each in records}
    seeds = {each["config"]["seed"] for each in records}
    seconds = {f"{each['config']['seconds']:g}" for each in records}
    counts = f"{len(records)} runs, {len(languages)} languages, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    said = (
        f"{counts}, {', '.join(seconds)} seconds of training each. Mean accuracy in percent of the four test sets; in "
        f'brackets the runs without a mistake in any of them. Last column: of "{PROVABLE}", the networks never wrong, '
        "on longer words too, and those of them that are proved."
    )
    lists = [longer(records), *proved(records), *learnt(records)]
    return "\n\n".join([said, table(["class", *NETWORKS, "proved"], rows), *lists])


def longer(records: list[Record]) -> str:
    """How many of the runs without a mistake stay right on longer words."""
    parts = []
    for network in NETWORKS:
        own = [each for each in of(network, records) if is_learnt(each)]
        right = []
        for length in LONGER:
            tried = [each["longer"][str(length)] for each in own if str(length) in each["longer"]]
            right += [f"{sum(map(is_right, tried))} at {length:,}"] if tried else []
        parts.append(f"{network} {len(own)}" + (f" ({', '.join(right)})" if right else ""))
    return f"Runs without a mistake, and how many of them stay right on words of so many letters: {'; '.join(parts)}."


def proved(records: list[Record]) -> list[str]:
    """What is proved, and why the rest is not."""
    tried = [each for each in records if "proof" in each]
    names = [
        f"{each['config']['language']} ({each['proof']['of']}, {each['proof']['precision']}, "
        f"{each['proof']['states']:,} states)"
        for each in tried
        if each["proof"]["result"] == "Proof"
    ]
    reasons = Counter(
        each["proof"].get("reason") or f"wrong on a word of {each['proof']['word']} letters"
        for each in tried
        if each["proof"]["result"] != "Proof"
    )
    others = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return [f"Proved: {', '.join(names) or 'none'}.", f"Never wrong and not proved: {others or 'none'}."]


def learnt(records: list[Record]) -> list[str]:
    """Languages by who learnt them without a mistake."""
    who = defaultdict(set)
    for each in records:
        if is_learnt(each):
            who[each["config"]["language"]].add(each["config"]["network"])
    everything = {each["config"]["language"] for each in records}
    ours = {name for name in NETWORKS if name.startswith("minmax")}
    groups = {
        "Learnt without a mistake by MinMax and by no other network": [n for n in who if who[n] <= ours],
        "By other networks and not by MinMax": [n for n in who if not who[n] & ours],
        "By both": [n for n in who if who[n] & ours and who[n] - ours],
        "By none": sorted(everything - set(who)),
    }
    return [f"{title}: {len(found)}{': ' * bool(found)}{', '.join(sorted(found))}." for title, found in groups.items()]


def plot(records: list[Record]) -> Figure:
    """The mean accuracy of each network by class."""
    import matplotlib
    import matplotlib.figure

    groups = by_class(records)
    with matplotlib.rc_context(SETTINGS):
        figure: Figure = matplotlib.figure.Figure(figsize=(7, 4.6), layout="constrained")
        axes = figure.subplots()
        for number, network in enumerate(NETWORKS):
            points = [
                (100 * mean(map(accuracy, own)), row + 0.1 * (number - 2.5))
                for row, found in enumerate(groups.values())
                if (own := of(network, found))
            ]
            if points:
                x, y = zip(*points, strict=True)
                axes.scatter(x, y, s=22, color=COLOURS[network], marker=SHAPES[network], label=network)
        axes.set(xlabel="accuracy in percent, mean of the four test sets", xlim=(45, 101))
        axes.set_yticks(range(len(groups)), list(groups))
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3, linewidth=0.5)
        axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure


def main() -> None:
    """The page from all records there are."""
    found = [read_json(path) for path in sorted((RESULTS / "drawn").glob("*/*.json"))]
    records = [each for each in found if each is not None]
    text = "No run is recorded yet."
    if records:
        write_text(PAGE.with_suffix(".svg"), render(plot(records), "languages"))
        text = f"![Accuracy by class and network](README.svg)\n\n{report(records)}"
    write_text(PAGE, between(MARKS, PAGE.read_text(), text))


if __name__ == "__main__":
    main()
