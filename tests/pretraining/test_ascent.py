"""A step with `optimizer.ascent` against its definition; no weights stay uphill; runs go on with the same bits."""

import copy
from dataclasses import replace

import pytest
import torch
from pretraining_cases import make_corpus, run_whole_and_cut_off, tiny
from safetensors.torch import load_file
from torch import nn

from latchwork.pretraining import loop
from latchwork.pretraining.ascent import uphill
from latchwork.pretraining.batches import read_batches
from latchwork.pretraining.config import BatchConfig
from latchwork.pretraining.corpus import Corpus
from latchwork.pretraining.model import make_model
from latchwork.pretraining.optimizer import make_optimizer, set_step
from latchwork.pretraining.run import pretrain
from latchwork.training.seeds import seed_everything


def make_config(**changes):
    config = tiny(**changes)
    still = {**config.model.options, "ffn_dropout": 0.0}
    return replace(
        config, model=replace(config.model, options=still), optimizer=replace(config.optimizer, ascent=0.3, clip=None)
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "c")


def by_definition(config, corpus):
    """A run: in each step the gradient of a third of the rows, the weights along it, the gradient there."""
    seed_everything(config.seed)
    model = make_model(config.model, corpus.vocabulary)
    optimizer = make_optimizer(model, config.optimizer)
    for step in range(config.steps):
        rate = set_step(optimizer, config, step)
        batches = read_batches(config, corpus.train, step, 0, 1)
        there = copy.deepcopy(model)
        rows = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 3}[len(batches[0].tokens)]
        there.loss(batches[0].tokens[:rows], batches[0].targets[:rows])[0].backward()
        length = sum(each.grad.double().square().sum() for each in there.parameters()).sqrt()
        with torch.no_grad():
            for each in there.parameters():
                each += each.grad * (0.3 * rate / config.optimizer.learning_rate / length)
        there.zero_grad()
        total = sum(len(batch.tokens) for batch in batches)
        for batch in batches:
            (there.loss(batch.tokens, batch.targets)[0] * (len(batch.tokens) / total)).backward()
        for each, moved in zip(model.parameters(), there.parameters(), strict=True):
            each.grad = moved.grad
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_a_run_takes_its_gradients_uphill(rows, corpus, tmp_path):
    config = make_config(batch=BatchConfig(micro=rows, context=8, accumulation=((0, 1), (3, 2))))
    pretrain(config, corpus, tmp_path / "uphill", peak=1.0)
    found = load_file(tmp_path / "uphill" / "model" / "model.safetensors")
    expected = by_definition(config, Corpus(corpus))
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4, msg=name)
    pretrain(replace(config, optimizer=replace(config.optimizer, ascent=0.0)), corpus, tmp_path / "plain", peak=1.0)
    plain = load_file(tmp_path / "plain" / "model" / "model.safetensors")
    assert any((plain[name] - expected[name]).abs().max() > 1e-3 for name in plain)


@pytest.mark.parametrize("tbptt", [None, 3])
def test_a_run_that_is_cut_off_ends_with_the_same_bits(tbptt, corpus, tmp_path):
    folders = run_whole_and_cut_off(make_config(tbptt=tbptt), corpus, tmp_path)
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in folders)
    assert all(torch.equal(one[each], other[each]) for each in one)


def test_the_weights_are_back_to_the_bit_even_if_it_fails_there():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
    before = copy.deepcopy(model.state_dict())
    model[0](torch.randn(4, 3)).square().sum().backward()  # nothing reaches the second part

    def fail():
        with uphill(model.parameters(), 0.7):
            moved = [(value - before[name]).square().sum() for name, value in model.state_dict().items()]
            assert sum(moved).sqrt().item() == pytest.approx(0.7, rel=1e-5)
            assert [float(each) for each in moved[2:]] == [0.0, 0.0]
            assert all(each.grad is None for each in model.parameters())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_a_gradient_of_any_size_leads_no_further(scale):
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    weight.grad = torch.tensor([3.0, 4.0]) * scale
    with uphill([weight], 0.5):
        assert (weight.detach() - torch.tensor([1.0, 2.0])).norm() <= 0.5 + 1e-6


def test_a_gradient_that_is_no_number_stops_the_run_with_the_weights_before(corpus, tmp_path, monkeypatch):
    losses = loop.Training._loss
    models = []

    def broken(self, batch, state):
        loss, after = losses(self, batch, state)
        if self.place.step == 2 and self.model.training:
            models.append((self.model, copy.deepcopy(self.model.state_dict())))
            return loss * float("nan"), after
        return loss, after

    monkeypatch.setattr(loop.Training, "_loss", broken)
    with pytest.raises(loop.DivergedError, match="step 3"):
        pretrain(make_config(), corpus, tmp_path / "run", peak=1.0)
    model, before = models[0]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
