"""The mean of the weights as a teacher: what it is, what is learnt from it, and that a run with one can be cut off."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretraining_cases import make_corpus, tiny, without_time
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from latchwork.pretraining.config import ModelConfig, PretrainingConfig, TeacherConfig
from latchwork.pretraining.distributed import Processes
from latchwork.pretraining.loop import Training
from latchwork.pretraining.model import make_model
from latchwork.pretraining.network import Network
from latchwork.pretraining.run import pretrain
from latchwork.pretraining.teacher import Teacher

KINDS = {
    "minmax": tiny().model,
    "lstm": ModelConfig(kind="lstm", options={"n_layers": 1, "width": 8}),
}
TEACHER = TeacherConfig(weight=0.4, decay=0.8, start=2)


@given(decay=st.floats(0.1, 0.999), steps=st.integers(1, 30), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_mean_is_that_of_a_loop(decay, steps, seed):
    model = nn.Linear(2, 1, bias=False).double()
    teacher = Teacher(model, TeacherConfig(decay=decay))
    weights = torch.randn(steps, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mean = model.weight.detach().clone()
    for step, each in enumerate(weights):
        model.weight.data.copy_(each)
        teacher.follow(model, step)
        left = min(decay, (1 + step) / (10 + step))
        mean = left * mean + (1 - left) * each
    torch.testing.assert_close(teacher.model.weight, mean)
    assert torch.equal(model.weight.detach(), weights[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_logits_is_that_of_both_targets_mixed(kind):
    torch.manual_seed(0)
    model, other = (make_model(KINDS[kind], 8).eval() for _ in range(2))
    tokens, targets = torch.randint(8, (2, 2, 5))
    taught = Teacher(other, TEACHER).predict(tokens)
    torch.testing.assert_close(taught.sum(-1), torch.ones(2, 5))
    loss, _ = Network(model)(tokens, targets, taught=taught, weight=0.4)
    loss.backward()
    found = [each.grad for each in model.parameters()]
    model.zero_grad()
    mixed = 0.6 * F.one_hot(targets, 8) + 0.4 * taught
    logits = model(tokens)[0]
    expected = -(mixed * logits.log_softmax(-1)).sum(-1).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for one, each in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, each.grad, atol=1e-6, rtol=1e-4)


def test_a_teacher_that_is_the_model_itself_changes_only_the_length_of_the_gradient():
    torch.manual_seed(0)
    model = make_model(KINDS["minmax"], 8).eval()
    tokens, targets = torch.randint(8, (2, 3, 7))
    gradients = []
    for taught in (None, Teacher(model, TEACHER).predict(tokens)):
        model.zero_grad()
        Network(model)(tokens, targets, taught=taught, weight=0.75)[0].backward()
        gradients.append([each.grad.clone() for each in model.parameters()])
    for plain, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, 0.25 * plain, atol=1e-6, rtol=1e-3)


def test_a_teacher_takes_no_gradient_and_shares_no_weight():
    model = make_model(KINDS["minmax"], 8)
    teacher = Teacher(model, TEACHER)
    assert not any(each.requires_grad for each in teacher.model.parameters())
    assert not teacher.model.training
    assert model.training
    assert not {each.data_ptr() for each in model.parameters()} & {e.data_ptr() for e in teacher.model.parameters()}
    assert teacher.model.head.weight is teacher.model.embedding.weight  # what is one in the model is one in the teacher


def run(corpus, out, **changes):
    pretrain(tiny(**changes), corpus, out, peak=1.0)
    return load_file(out / "model" / "model.safetensors")


def same(one, other):
    return all(torch.equal(one[each], other[each]) for each in one)


def test_before_it_starts_a_run_has_the_bits_of_one_without(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    plain = run(corpus, tmp_path / "plain")
    assert same(plain, run(corpus, tmp_path / "late", teacher=replace(TEACHER, start=tiny().steps)))
    assert not same(plain, run(corpus, tmp_path / "taught", teacher=TEACHER))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_cut_off_ends_with_the_same_bits(kind, tmp_path):
    class Cut(Exception):
        pass

    def stop(progress):
        if progress.step == 5:
            raise Cut

    corpus, config = make_corpus(tmp_path / "corpus"), tiny(teacher=TEACHER, model=KINDS[kind])
    pretrain(config, corpus, tmp_path / "whole", peak=1.0)
    with pytest.raises(Cut):
        pretrain(config, corpus, tmp_path / "cut", peak=1.0, watch=stop)
    assert list((tmp_path / "cut").glob("checkpoints/*/teacher.safetensors"))
    pretrain(config, corpus, tmp_path / "cut", peak=1.0)
    assert same(*(load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut")))
    lines = [
        [without_time(json.loads(line)) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "cut")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("changes", [{"weight": 0.0}, {"weight": 1.0}, {"decay": 1.0}, {"decay": 0.0}, {"start": -1}])
def test_bad_values_are_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        TeacherConfig(**changes)


def test_it_is_written_and_read_with_the_configuration():
    config = tiny(teacher=TEACHER)
    assert PretrainingConfig.from_dict(config.to_dict()) == config
    assert PretrainingConfig.from_dict(tiny().to_dict()).teacher is None


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="tbptt"):
        tiny(teacher=TEACHER, tbptt=2)
    here, model = Processes(rank=0, world=2, device=torch.device("cpu")), make_model(KINDS["minmax"], 8)
    with pytest.raises(ValueError, match="teacher must be None under fsdp"):
        Training(tiny(teacher=TEACHER), model, (None, None), folder=None, here=here, strategy="fsdp")
