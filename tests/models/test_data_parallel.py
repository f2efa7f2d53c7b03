"""Data parallel training with gloo on 2 processes follows one process: DDP, and FSDP2 of any part."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from model_cases import make_model, make_tokens, pairs_were_used, watched_pairs
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from seen_operations import seen_operations

WORLD = 2
OPTIMIZERS = {"SGD": lambda p: torch.optim.SGD(p, 0.1), "Adam": lambda p: torch.optim.Adam(p, 1e-2)}
# vocabulary, length, options, optimizer, type: with 3 tokens the pairs of them are used, with 50 they are not.
CASES = [
    (3, 40, {"train_init": True}, "SGD", torch.float32),
    (50, 10, {"conv_type": "gated", "tie_weights": False}, "SGD", torch.float32),
    (3, 40, {"degree": 2}, "Adam", torch.float64),
    (50, 6, {"levels": 5}, "Adam", torch.float64),
]


# What is sharded by itself, inside a model that is sharded as a whole.
PARTS = ["embedding", "head", "backbone"] + [
    f"backbone.layers.0{part}"
    for part in ("", ".norm_conv", ".conv", ".ffn", ".ffn.up", ".neuron", ".neuron.projection", ".neuron.output")
]


def shard(model: torch.nn.Module, *parts: str) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (WORLD,))
    for part in (*parts, ""):
        fully_shard(model.get_submodule(part), mesh=mesh)
    return model


DISTRIBUTE = {
    "DDP": DistributedDataParallel,
    "FSDP": lambda model: shard(model, *(f"backbone.layers.{number}" for number in range(len(model.backbone.layers)))),
    "FSDP of the whole": shard,
}


def train(model, optimizer, batches, rank=None) -> list[float]:
    """The loss of each step over the whole batch; each rank has its half of the rows."""
    losses = []
    for tokens in batches:
        mine = tokens if rank is None else tokens.chunk(WORLD)[rank]
        logits, _ = model(mine[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), mine[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if rank is not None:
            dist.all_reduce(mean)
            mean /= WORLD
        losses.append(mean.item())
    return losses


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = (model.module if isinstance(model, DistributedDataParallel) else model).named_parameters()
    return {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in named}


def run_cases(rank: int, init: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=WORLD)
    for seed, (vocab_size, T, options, optimizer, dtype) in enumerate(CASES):
        torch.manual_seed(seed)
        model = make_model(vocab_size, **options, dtype=dtype).train()
        batches = [make_tokens(8, T + 1, vocab_size) for _ in range(3)]
        start = copy.deepcopy(model)
        expected = train(model, OPTIMIZERS[optimizer](model.parameters()), batches)
        ways = dict(DISTRIBUTE)
        if not options.get("tie_weights", True):  # else embedding and head have one weight, and are sharded together
            ways |= {f"FSDP of {part}": lambda model, part=part: shard(model, part) for part in PARTS}
        for kind, distribute in ways.items():
            parallel = distribute(copy.deepcopy(start))
            with watched_pairs() as pairs, seen_operations() as operations:
                losses = train(parallel, OPTIMIZERS[optimizer](parallel.parameters()), batches, rank)
            name = f"{kind}, {vocab_size} tokens, {options}, {dtype}"
            assert pairs_were_used(pairs) == (vocab_size == 3 and kind != "FSDP"), name
            assert ("layer" in operations) == (dtype == torch.float32), name
            tolerance = 1e-9 if dtype == torch.float64 else 1e-4
            torch.testing.assert_close(losses, expected, rtol=tolerance, atol=tolerance, msg=f"{name}: {losses}")
            found = weights(parallel)
            for parameter, value in model.named_parameters():
                torch.testing.assert_close(
                    found[parameter], value, rtol=tolerance, atol=tolerance, msg=f"{name}: {parameter}"
                )
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    mp.spawn(run_cases, args=(f"file://{tmp_path / 'store'}",), nprocs=WORLD)
