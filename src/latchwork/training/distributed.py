"""One process or many: who they are, and how they share a model. All of it is torch.distributed's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from latchwork.baselines.registry import own_tensors

Strategy = Literal["ddp", "fsdp"]


@dataclass(frozen=True)
class Processes:
    """This process among all."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def mean(self, value: Tensor) -> float:
        """The mean of a number over all processes."""
        total = value.detach().double().clone()
        if self.world > 1:
            dist.all_reduce(total)
        return float(total) / self.world

    def sums(self, *values: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def gather(self, value: Tensor) -> list[Tensor]:
        """The tensors of all processes, of one shape, in the order of their ranks."""
        if self.world == 1:
            return [value]
        out = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(out, value.contiguous())
        return out

    def agree(self, value: Any) -> Any:
        """What the first process says."""
        if self.world == 1:
            return value
        said = [value]
        dist.broadcast_object_list(said, src=0)
        return said[0]

    def any(self, asked: bool) -> bool:
        """Whether it is so in any process."""
        return asked if self.world == 1 else self.mean(torch.tensor(float(asked), device=self.device)) > 0

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the others that torchrun started, if it did; device: "cpu" or "cuda"."""
    if "WORLD_SIZE" not in os.environ:
        yield Processes(0, 1, torch.device(device))
        return
    rank, world, local = (_number(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    mine = torch.device("cuda", local) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(mine)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Processes(rank, world, mine)
    finally:
        dist.destroy_process_group()


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"the environment variable {name} must be a number, as torchrun sets it; got {text!r}")
    return int(text)


def share_model(network: nn.Module, strategy: Strategy, here: Processes) -> nn.Module:
    """The network as this process runs it. ddp: each has all weights; fsdp: each has its part of every layer's."""
    if here.world == 1:
        return network
    if strategy == "ddp":
        devices = [here.device] if here.device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=devices)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # A layer returns views of its states; nothing writes into them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(here.device.type, (here.world,))
    layers: list[nn.Module] = network.layers() if hasattr(network, "layers") and callable(network.layers) else []
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return network


def accumulate(network: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Within it, gradients are summed up here alone, unless it is the last batch of a step."""
    if isinstance(network, DistributedDataParallel):
        return nullcontext() if last else network.no_sync()
    from torch.distributed.fsdp import FSDPModule

    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
    return nullcontext()


def whole_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors in one piece, on the CPU; where they are in parts, all processes call it."""
    own: dict[str, Any] = dict(own_tensors(model))
    whole = {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in own.items()}
    return {name: each.detach().cpu() for name, each in whole.items()}


def load_whole(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `whole_tensors`."""
    own = own_tensors(model)
    if differ := sorted(set(own) ^ set(tensors)):
        raise ValueError(f"the weights are of another model: they differ in {', '.join(differ[:3])}")
    for name, target in own.items():
        copy_whole(target, tensors[name])


def copy_whole(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into one that may be sharded over processes."""
    with torch.no_grad():
        if isinstance(target, DTensor):
            mine = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
            target.to_local().copy_(mine.to_local())
        else:
            target.copy_(value)
