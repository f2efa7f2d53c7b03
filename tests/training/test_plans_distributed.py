"""Two processes with gloo run the plans of tasks as one process does, under DDP and FSDP."""

import json

import pytest
import torch
import torch.multiprocessing as mp
from pretraining_cases import free_ports
from two_processes import plans, run, train_all

from latchwork import load_model


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "gradient_norm" in line]


@pytest.mark.slow
def test_two_processes_train_every_plan_as_one_does(tmp_path):
    mp.start_processes(run, args=(str(tmp_path), free_ports(2)), nprocs=2, start_method="forkserver")
    train_all(str(tmp_path / "one"))
    for name in plans():
        one = losses(tmp_path / "one" / name)
        assert len(one) > 3
        for strategy in ("ddp", "fsdp"):
            assert losses(tmp_path / strategy / name) == pytest.approx(one, rel=1e-3)
            models = [load_model(tmp_path / each / name).state_dict() for each in ("one", strategy)]
            for key, value in models[0].items():
                torch.testing.assert_close(models[1][key], value, rtol=1e-2, atol=1e-3)
