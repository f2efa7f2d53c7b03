"""A robot's log, checked against a rule: from numbers to a verdict, a picture, a learnt limit and a file for the robot.

    python examples/monitor_robot.py [folder]

The rule: whenever somebody was nearer than 2 metres in the last 3 steps, the robot moves at 0.5 m/s or less.
"""

import csv
import sys
from pathlib import Path

import torch

from latchwork.learning.thresholds import fit
from latchwork.temporal import parse
from latchwork.temporal.plot import page
from latchwork.temporal.step import export
from latchwork.temporal.tables import read_trace

RULE = "always (once[0:3] distance < 2 implies speed <= 0.5)"


def drive(brake: float, seed: int, steps: int = 200) -> dict[str, torch.Tensor]:
    """A made-up drive past people. brake: the speed to which the robot slows down near them."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(steps, dtype=torch.float64)
    start = float(torch.rand((), generator=generator)) * 20
    distance = (
        4 + 3 * torch.cos((time + start) / 12) + torch.rand(steps, generator=generator, dtype=torch.float64) * 0.3
    )
    near = parse("once[0:3] distance < 2").satisfied({"distance": distance})
    speed = torch.where(near, brake, 1.4) - torch.rand(steps, generator=generator, dtype=torch.float64) * 0.05
    return {"distance": distance, "speed": speed}


def main(folder: Path) -> None:
    """Log, verdict, picture, limit, file; what is written goes to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "drive.csv"
    found = drive(brake=0.6, seed=0)
    with log.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(found)
        rows.writerows(zip(*(value.tolist() for value in found.values()), strict=True))

    # 1. A whole log: how far from breaking the rule was the robot, at its worst? Above 0 is good.
    rule = parse(RULE)
    trace = read_trace(log, rule.names)
    print(f"robustness of the whole drive: {rule(trace)[0]:.3f}")
    (folder / "drive.html").write_text(page(rule, trace, "drive.csv"), encoding="utf-8")

    # 2. The same while it happens, in constant memory.
    monitor = rule.online()
    for step in range(len(trace["speed"])):
        monitor.step({name: float(value[step]) for name, value in trace.items()})
        if int(monitor.verdict) == -1:
            print(f"the rule is broken at step {step}, and stays so")
            break

    # 3. Which limit do people use, who said of each drive whether it felt safe? They said yes up to 0.45.
    brakes = torch.linspace(0.1, 1.0, 60, dtype=torch.float64)
    drives = [drive(float(brake), seed) for seed, brake in enumerate(brakes)]
    signals = {name: torch.stack([each[name] for each in drives]) for name in ("distance", "speed")}
    template = parse("always (once[0:3] distance < 2 implies speed <= $limit)")
    learnt = fit(template, signals, brakes <= 0.45)
    print(f"learnt limit {learnt.thresholds['limit']:.2f}, right on {learnt.accuracy:.0%} of the drives")

    # 4. One step of the past rule as an ONNX file, for where there is no Python.
    past = parse("historically (once[0:3] distance < 2 implies speed <= $limit)")
    past.parameters()[0].data.fill_(learnt.thresholds["limit"])
    try:
        inputs, _ = export(past, folder / "step.onnx")
        print(f"step.onnx takes {', '.join(inputs)}")
    except ImportError as missing:
        print(missing)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/robot"))
