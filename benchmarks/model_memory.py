"""Peak memory of a first training step, beyond what is resident after imports and construction of the model."""

import sys

import torch
from rich.table import Table

from latchwork import MinMaxRNCLMConfig
from measure import Row, progress
from model_contenders import OURS, PEER, ours, peer
from model_peak import extra_memory, in_fresh_process
from model_timing import Settings
from model_training import random_batch, training_step

VOCABULARY, B, T = 20, 64, 512
MAKERS = {OURS: ours, PEER: peer}


def run(settings: Settings) -> list[Row]:
    rows = []
    for name in MAKERS:
        progress(f"memory: {name}")
        rows.append(Row(contender=name, **in_fresh_process(__file__, name)))
    peer_row = next(row for row in rows if row["contender"] == PEER)
    for row in rows:
        if "extra MB" in row and "extra MB" in peer_row:
            row["part"] = row["extra MB"] / peer_row["extra MB"]
    return rows


def peak(name: str) -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    contender = MAKERS[name](VOCABULARY, MinMaxRNCLMConfig.small())
    step = training_step(contender, *random_batch(VOCABULARY, B, T), optimise=True)
    return extra_memory(step)


def table(rows: list[Row]) -> Table:
    result = Table(
        title=f"Peak memory of the training step, small preset, V = {VOCABULARY}, B = {B}, T = {T}, 1 thread."
    )
    result.add_column("contender")
    for heading in ("MB", "of minmaxrnc's"):
        result.add_column(heading, justify="right")
    result.add_column("notes")
    for row in rows:
        size = f"{row['extra MB']:,.0f}" if "extra MB" in row else "-"
        result.add_row(row["contender"], size, f"{row['part']:.3f}" if "part" in row else "-", row.get("note", ""))
    return result


if __name__ == "__main__":
    print(peak(sys.argv[1]))
