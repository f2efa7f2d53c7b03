"""A sequence split over processes goes through the whole model as in one process: gloo on 2 and 3 processes."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from model_cases import (
    EXACT_VARIANTS,
    VARIANTS,
    assert_same_gradients,
    assert_same_run,
    gradients,
    make_exact_model,
    make_model,
    make_state,
    make_tokens,
)

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.models.int8 import quantize_int8
from latchwork.ops import context_parallel, distributed
from reset_cases import make_reset

CUTS = {2: [(8, 8), (15, 1), (0, 16)], 3: [(5, 6, 5), (1, 15, 0), (7, 0, 9)]}
MOVES = ("selection", "transformation", "extra units")  # they are evaluated, not trained


def own_slice(rank, cuts):
    return slice(sum(cuts[:rank]), sum(cuts[: rank + 1]))


def cases(world):
    """Tokens, reset and the state to start from, for each way to cut."""
    for number, cuts in enumerate(CUTS[world]):
        torch.manual_seed(number)
        reset = make_reset(["never", "random"][number % 2], 2, 16)
        yield cuts, make_tokens(2, 16), reset, number > 0


def run_split(model, tokens, state, reset, mine):
    with context_parallel():
        return model(tokens[:, mine], state, reset=None if reset is None else reset[:, mine])


def evaluate(rank, world):
    for make, variants in ((make_exact_model, EXACT_VARIANTS), (make_model, VARIANTS)):
        for changes in variants.values():
            for cuts, tokens, reset, goes_on in cases(world):
                torch.manual_seed(1)
                model, mine = make(**changes), own_slice(rank, cuts)
                state = model(tokens)[1].detach() if goes_on else None
                with torch.no_grad():
                    logits, after = model(tokens, state, reset=reset)
                    found = run_split(model, tokens, state, reset, mine)
                # a product of exact numbers is exact, whatever the number of rows
                tolerance = None if make is make_exact_model else 1e-12
                assert_same_run(found, (logits[:, mine], after), tolerance)


def train(rank, world):
    for name, changes in VARIANTS.items():
        for cuts, tokens, reset, goes_on in cases(world):
            torch.manual_seed(1)
            model, mine = make_model(**changes).train(), own_slice(rank, cuts)
            targets = make_tokens(2, 16).masked_fill(torch.rand(2, 16) < 0.2, -100)
            state = make_state(model, 2) if goes_on else None
            loss, _ = model.loss(tokens, targets, state, reset=reset)
            if name in MOVES:
                with context_parallel(), pytest.raises(RuntimeError, match="surrogate gradient"):
                    model.loss(tokens, targets)
                continue
            with context_parallel():
                resets = None if reset is None else reset[:, mine]
                split, _ = model.loss(tokens[:, mine], targets[:, mine], state, reset=resets)
            torch.testing.assert_close(split, loss, rtol=1e-12, atol=1e-12)
            found = gradients(model, split)
            for each in found.values():
                dist.all_reduce(each)
            assert_same_gradients(found, gradients(model, loss), 1e-10)


def quantised(rank, world):
    cuts, tokens, _, _ = next(cases(world))
    model = quantize_int8(make_model(dtype=torch.float32))
    mine = own_slice(rank, cuts)
    with torch.no_grad():
        logits, after = model(tokens)
        assert_same_run(run_split(model, tokens, None, None, mine), (logits[:, mine], after), 1e-5)


def count_bytes(rank, world):
    """What ops/distributed.py says about the small preset."""
    model, given = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()), []
    gather, send = dist.all_gather, dist.send
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather", lambda out, mine, **k: given.append(mine.nbytes) or gather(out, mine, **k))
        patch.setattr(dist, "send", lambda each, *a, **k: given.append(each.nbytes) or send(each, *a, **k))
        with context_parallel():
            loss, _ = model.loss(make_tokens(1, 50, 20), make_tokens(1, 50, 20))
        assert sum(given) == 2 * 852
        given.clear()
        loss.backward()
        assert sum(given) == 2 * (520 if rank else 360)  # the first has no rank before it


def work(rank, world, init):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    for job in (evaluate, train, quantised, count_bytes):
        job(rank, world)
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_a_split_sequence_gives_what_one_process_gives(world, tmp_path: Path):
    mp.spawn(work, args=(world, f"file://{tmp_path / 'store'}"), nprocs=world)


def test_what_is_for_one_process_says_so(monkeypatch):
    model, tokens = make_model(), make_tokens(2, 6)
    monkeypatch.setattr(distributed, "_group", "a group that is not reached")
    for way in (
        lambda: model(tokens, chunk_size=3),
        lambda: model.backbone(torch.zeros(1, 4, 6).double(), chunk_size=2),
        lambda: next(model.stream(tokens, chunk_size=3)),
        lambda: model.generate(tokens, 2),
    ):
        with pytest.raises(RuntimeError, match="is for one process: use it outside of context_parallel"):
            way()
