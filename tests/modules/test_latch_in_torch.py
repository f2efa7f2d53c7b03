"""Latch under torch.compile, torch.export and DistributedDataParallel does what it does without."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.export import Dim
from torch.nn.parallel import DistributedDataParallel

from latchwork import Latch


def make(**options):
    return Latch(3, 12, 2, batch_first=True, **options)


def assert_same(found, expected, tolerance=1e-5):
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_compiled_latch_is_one_graph_and_the_same(bidirectional):
    torch._dynamo.reset()
    latch = make(bidirectional=bidirectional)
    compiled = torch.compile(latch, fullgraph=True, backend="aot_eager")
    u, reset = torch.randn(2, 40, 3), torch.rand(2, 40) < 0.2
    _, state = latch(u)
    state = state.detach()
    calls = [{}, {"lengths": torch.tensor([40, 7])}, {"state": state}, {"reset": reset}]
    for options in calls:
        found, grads = [], []
        for each in (compiled, latch):
            latch.zero_grad()
            y, after = each(u, **options)
            y.square().mean().backward()
            found.append((y, after))
            grads.append([p.grad.clone() for p in latch.parameters()])
        assert_same(*found)
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_compiled_latch_refuses_the_state_of_another_batch():
    torch._dynamo.reset()
    latch = make()
    compiled = torch.compile(latch, fullgraph=True, backend="eager")
    with pytest.raises(ValueError, match=r"first must be \(2, 12\); got \(1, 12\)"):
        compiled(torch.randn(2, 40, 3), latch.initial_state(1))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_exported_latch_takes_any_batch_and_length(bidirectional):
    latch = make(bidirectional=bidirectional).eval()
    free = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    u = torch.randn(3, 50, 3)
    shapes = {"input": free, "lengths": {0: Dim.DYNAMIC}}
    program = torch.export.export(latch, (u,), {"lengths": torch.tensor([50, 9, 3])}, dynamic_shapes=shapes)
    for B, T in [(5, 33), (2, 70)]:
        u, lengths = torch.randn(B, T, 3), torch.randint(0, T + 1, (B,))
        assert_same(program.module()(u, lengths=lengths), latch(u, lengths=lengths))


def train(rank, store, weights, batches, lengths):
    """Two steps on half of the rows."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    latch = make(bidirectional=True)
    latch.load_state_dict(weights)
    model = DistributedDataParallel(latch)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for u in batches:
        optimizer.zero_grad()
        model(u[rank::2], lengths=lengths[rank::2])[0].square().mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save(latch.state_dict(), f"{store}.weights")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_train_a_latch_as_one(tmp_path):
    latch = make(bidirectional=True)
    batches, lengths = torch.randn(2, 4, 20, 3), torch.tensor([20, 3, 11, 20])
    store = tmp_path / "store"
    mp.spawn(train, args=(store, copy.deepcopy(latch.state_dict()), batches, lengths), nprocs=2)
    optimizer = torch.optim.SGD(latch.parameters(), 0.1)
    for u in batches:
        optimizer.zero_grad()
        latch(u, lengths=lengths)[0].square().mean().backward()
        optimizer.step()
    found = torch.load(f"{store}.weights", weights_only=True)
    for name, value in latch.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
