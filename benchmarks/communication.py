"""What processes exchange in one training step, by formulas, and as counted on this machine.

    python benchmarks/communication.py            # 2 and 3 processes on one machine: formulas beside counts
    python benchmarks/communication.py --paper    # the formulas for paper-112m on 1, 8 and 64 GPUs

A count is of the numbers that a process hands to a collective operation, as torch's profiler sees them. How many bytes
then cross a wire depends on the algorithm; for a ring it is given below as `wire`.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, use_backend
from latchwork.training.config import at
from latchwork.training.distributed import Processes, accumulate, share_model
from latchwork.training.flops import flops_per_token
from latchwork.training.network import ModelWithLoss
from latchwork.training.presets import CONFIGS

BYTES = 4  # of a number: weights and gradients are float32
SMALL = {"d_model": 16, "d_state": 12, "n_layers": 2}
VOCABULARY = 10


def shard(parameter: torch.Tensor, world: int) -> int:
    """The numbers of a parameter that FSDP2 keeps in each process: rows are dealt out, the last may be padding."""
    rows = -(-parameter.shape[0] // world)
    return rows * (parameter[0].numel() if parameter.dim() > 1 else 1)


def ddp(model: nn.Module, micro_batches: int, world: int) -> dict[str, int]:
    """One all-reduce of all gradients in a step, after its last micro-batch."""
    numbers = sum(each.numel() for each in model.parameters())
    return {"all_reduce": numbers, "wire": BYTES * 2 * numbers * (world - 1) // world}


def fsdp(model: MinMaxRNC_LM, micro_batches: int, world: int) -> dict[str, int]:
    """Each layer is gathered twice in a micro-batch, forward and backward; what is outside of the layers once.

    Gradients are scattered in a step's last micro-batch. Where a backend has no reduce-scatter, as gloo, an all-reduce
    of all numbers takes its place.
    """
    parts = {id(each) for each in model.backbone.layers.parameters()}
    inner = sum(shard(each, world) for each in model.parameters() if id(each) in parts)
    outer = sum(shard(each, world) for each in model.parameters() if id(each) not in parts)
    gathered, whole = micro_batches * (2 * inner + outer), world * (inner + outer)
    return {
        "all_gather": gathered,
        "all_reduce": whole,
        "wire": BYTES * (world - 1) * (gathered + inner + outer),
    }


def context_parallel(model: MinMaxRNC_LM, rows: int) -> int:
    """Bytes that a rank gives in a forward and backward pass of one batch: see latchwork/ops/distributed.py."""
    config = model.config.backbone
    forward, backward = config.d_model + 3 * config.d_state + 3, config.d_model + config.d_state
    return BYTES * rows * config.n_layers * (forward + backward)


def kept_per_token(model: MinMaxRNC_LM, steps: int = 64) -> float:
    """Bytes of float32 activations that a token keeps for the backward pass, with plain torch modules.

    Counted, without computing anything, as torch saves them: the difference of two lengths, so that weights cancel out.
    """

    def kept(length: int) -> int:
        found: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            found[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            return tensor

        alive = []  # storages, so that no address is used twice
        with FakeTensorMode(allow_non_fake_inputs=True), use_backend("torch"):
            fake = MinMaxRNC_LM(model.vocab_size, model.config)
            tokens = torch.zeros(1, length, dtype=torch.long)
            with torch.autograd.graph.saved_tensors_hooks(
                lambda each: alive.append(note(each)) or each, lambda each: each
            ):
                fake.loss(tokens, tokens)
        return sum(found.values())

    return (kept(2 * steps) - kept(steps)) / steps


FORMULAS = {"ddp": ddp, "fsdp": fsdp}


def _work(
    rank: int, world: int, strategy: str, micro_batches: int, port: int, found: "mp.Queue[dict[str, int]]"
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    network = ModelWithLoss(MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.small(**SMALL)))
    shared = share_model(network, strategy, Processes(rank, world, torch.device("cpu")))  # type: ignore[arg-type]

    def step() -> None:
        for number in range(micro_batches):
            tokens = torch.randint(VOCABULARY, (2, 9))
            with accumulate(shared, number == micro_batches - 1):
                shared(tokens[:, :-1], tokens[:, 1:])[0].backward()

    step()  # the first prepares: buckets, copies
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        step()
    counts: dict[str, int] = {}
    for event in seen.events():
        if event.name.startswith("gloo:"):
            numbers = sum(torch.Size(shape).numel() for shape in event.input_shapes if shape)
            counts[event.name.removeprefix("gloo:")] = counts.get(event.name.removeprefix("gloo:"), 0) + numbers
    if rank == 0:
        found.put(counts)
    dist.barrier()
    dist.destroy_process_group()


def count(strategy: str, world: int, micro_batches: int) -> dict[str, int]:
    """The numbers that the first of some processes hands to each collective operation in a step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found: mp.SimpleQueue[dict[str, int]] = mp.get_context("spawn").SimpleQueue()
    mp.spawn(_work, (world, strategy, micro_batches, port, found), nprocs=world)
    return found.get()


def check() -> None:
    model = MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.small(**SMALL))
    for strategy, formula in FORMULAS.items():
        for world in (2, 3):
            for micro_batches in (1, 2):
                expected = formula(model, micro_batches, world)
                counted = count(strategy, world, micro_batches)
                same = {name: counted.get(name) == expected[name] for name in expected if name != "wire"}
                print(strategy, world, "processes", micro_batches, "micro-batches", counted, same, flush=True)


def paper(worlds: tuple[int, ...] = (1, 8, 64)) -> list[dict[str, float]]:
    """For paper-112m in its first steps, what each of so many GPUs needs; by the formulas above."""
    config = CONFIGS["paper-112m"]
    with torch.device("meta"):
        model = MinMaxRNC_LM(50257, MinMaxRNCLMConfig.large())
    parameters = sum(each.numel() for each in model.parameters())
    sequences = config.batch.micro * at(config.batch.accumulation, 0)  # of a step, on all GPUs together
    rows = []
    for world in worlds:
        each = sequences // world
        micro = min(each, config.batch.micro)
        tokens = each * config.batch.context
        state = 4 * BYTES * parameters  # weights, gradients and the two moments of AdamW
        rows.append(
            {
                "GPUs": world,
                "sequences of each": each,
                "micro-batches": each // micro,
                "state GB, DDP": state / 1e9,
                "state GB, FSDP": state / world / 1e9,
                "activations GB": kept_per_token(model) * micro * config.batch.context / 1e9,
                "TFLOP a step": flops_per_token(model, config.model, config.batch.context) * tokens / 1e12,
                "wire GB, DDP": ddp(model, each // micro, world)["wire"] / 1e9,
                "wire GB, FSDP": fsdp(model, each // micro, world)["wire"] / 1e9,
                "wire MB, context": context_parallel(model, sequences) / 1e6 if world > 1 else 0.0,
            }
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", action="store_true", help="print the formulas for paper-112m")
    if not parser.parse_args().paper:
        check()
    else:
        for row in paper():
            print({name: round(value, 2) for name, value in row.items()})
