"""Learning by length: it grows when it should, at the rates it should, stops when it should, and says what it did."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from latchwork import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.tasks import IGNORE, LastStep, Parity, WordProblem
from latchwork.training import LengthCurriculum, engine, learn_by_length
from latchwork.training.display import Display
from latchwork.training.plans import by_length as module


class Oracle(nn.Module):
    """Answers every word of a task as a share of right ones says; sees and keeps what it is asked."""

    def __init__(self, task, right=1.0):
        super().__init__()
        self.task, self.right = task, right
        self.weight = nn.Parameter(torch.ones(()))
        self.shapes, self.modes = [], []

    def forward(self, tokens, state=None):
        self.shapes.append(tuple(tokens.shape))
        self.modes.append(self.training)
        answers = torch.tensor([self.task.oracle(row) for row in tokens.tolist()])
        wrong = torch.rand(answers.shape) >= self.right
        logits = nn.functional.one_hot((answers + wrong) % self.task.vocabulary, self.task.vocabulary).float()
        return 20 * self.weight * logits, None


def small(vocabulary, degree=2, units=2):
    backbone = MinMaxRNCConfig(
        d_model=16,
        n_layers=1,
        d_state=units * degree,
        degree=degree,
        reset_form="selection",
        conv_type="gated",
        conv_init_val=-6.0,
        output_gate=False,
        ffn_dropout=0.0,
    )
    return MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig(backbone=backbone, tie_weights=False))


def test_who_is_always_right_goes_through_every_length_and_has_learnt():
    model, plan = Oracle(Parity()), LengthCurriculum(longest=9, tokens=32, rows=2)
    found = learn_by_length(model, model.task, plan)
    lengths = [entry["length"] for entry in found.history]
    assert lengths == [2, 3, 4, 5, 6, 8, 9]  # 1.3 times 4 is 5.2, then 6.76, then 8.788
    each = 5  # 1 - 0.8^5 is the first above 0.6
    assert [entry["step"] for entry in found.history] == [each * number for number in range(7)]
    assert found.learnt
    assert found.stopped == "learnt"
    assert found.steps == 6 * each + plan.right
    assert found.length == 9
    assert model.shapes[0] == (16, 2)
    assert model.shapes[-1] == (3, 9)
    assert found.tokens == sum(rows * length for rows, length in model.shapes)


def test_who_errs_too_often_stays_at_its_length_until_the_steps_are_used_up():
    model = Oracle(Parity(), right=0.45)
    found = learn_by_length(model, model.task, LengthCurriculum(steps=30, tokens=256))
    assert (found.stopped, found.learnt, found.steps, found.length) == ("steps", False, 30, 2)
    assert 0.3 < found.accuracy < 0.6


def test_who_stays_too_long_at_a_length_is_stuck():
    model = Oracle(Parity(), right=0.45)
    found = learn_by_length(model, model.task, LengthCurriculum(patience=7, tokens=256))
    assert (found.stopped, found.learnt, found.steps) == ("stuck", False, 7)
    model = Oracle(Parity(), right=0.97)  # gets to the last length, and is never right ten times in a row
    found = learn_by_length(model, model.task, LengthCurriculum(longest=3, patience=30, tokens=256))
    assert (found.stopped, found.length, found.steps) == ("stuck", 3, found.history[-1]["step"] + 30)


def test_who_errs_now_and_then_grows_but_has_never_learnt():
    model = Oracle(Parity(), right=0.97)
    found = learn_by_length(model, model.task, LengthCurriculum(longest=4, steps=60, tokens=256))
    assert (found.stopped, found.length) == ("steps", 4)


def test_time_ends_a_training(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(engine.time, "monotonic", lambda: float(next(clock)))  # twice a step: before it and after it
    model = Oracle(Parity(), right=0.5)
    found = learn_by_length(model, model.task, LengthCurriculum(seconds=5, tokens=8))
    assert (found.stopped, found.steps) == ("seconds", 5)


def test_numbers_that_are_none_end_a_training():
    model = Oracle(Parity())
    model.weight.data.fill_(math.nan)
    found = learn_by_length(model, model.task, LengthCurriculum(tokens=8))
    assert (found.stopped, found.steps, found.learnt) == ("diverged", 1, False)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["loss"] is None


def test_no_steps_is_no_training():
    model = Oracle(Parity())
    found = learn_by_length(model, model.task, LengthCurriculum(steps=0))
    assert (found.stopped, found.steps, model.shapes) == ("steps", 0, [])
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_optimizer_gets_the_rate_of_each_length(monkeypatch):
    used = []

    class Spy(torch.optim.Adam):
        def step(self, *arguments, **options):
            used.append(self.param_groups[0]["lr"])
            return super().step(*arguments, **options)

    monkeypatch.setattr(torch.optim, "Adam", Spy)
    model, plan = Oracle(Parity()), LengthCurriculum(longest=5, tokens=16, rows=1)
    found = learn_by_length(model, model.task, plan)
    assert used == [plan.rate(length) for _, length in model.shapes]
    assert found.learning_rate == used[-1] == plan.rate(5)


def test_the_surrogate_gets_the_temperature_of_each_length_and_then_its_own_again():
    task, plan = Parity(), LengthCurriculum(longest=5, tokens=16, rows=1, threshold=0.0, steps=8)
    model = small(task.vocabulary)
    cell, used = model.backbone.layers[0].neuron.cells[0], []
    model.register_forward_pre_hook(lambda _, inputs: used.append((inputs[0].shape[1], cell.temperature)))
    learn_by_length(model, task, plan)
    assert used == [(length, (length / 2) ** 0.5) for length, _ in used]
    assert {length for length, _ in used} == {2, 3, 4, 5}
    assert cell.temperature == 1


@given(st.integers(2, 10_000), st.floats(0, 2), st.floats(0, 1))
def test_the_rate_falls_with_the_length_and_never_below_its_floor(length, decay, floor):
    plan = LengthCurriculum(decay=decay, floor=floor)
    assert plan.rate(plan.shortest) == plan.learning_rate
    assert plan.rate(length) <= plan.rate(length - 1)  # shortest is 2, and below it the rate would be higher
    assert plan.rate(length) == pytest.approx(5e-3 * max(floor, (2 / length) ** decay))


@given(st.integers(1, 30), st.integers(0, 500), st.floats(1, 3), st.integers(1, 4096), st.integers(1, 9))
def test_lengths_grow_to_the_last_and_batches_have_as_many_tokens(shortest, more, growth, tokens, rows):
    plan = LengthCurriculum(shortest=shortest, longest=shortest + more, growth=growth, tokens=tokens, rows=rows)
    length, count = float(shortest), 0
    while length < plan.longest:
        assert plan.longer(length) >= min(length + 1, plan.longest)
        words = plan.words(length)
        assert words >= rows
        assert words == rows or tokens - int(length) < words * int(length) <= tokens
        length, count = plan.longer(length), count + 1
    assert length == plan.longest == plan.longer(length)
    assert count <= more


def test_only_the_last_answer_counts_and_lengths_vary_where_the_task_says_so():
    task, seen = LastStep(Parity()), []
    plan = LengthCurriculum(shortest=6, longest=6, tokens=600)
    for step in range(20):
        tokens, targets = module.draw(task, 0, step, plan, 6.0)
        assert tokens.shape[0] == 100
        asked = targets != IGNORE
        assert (asked.sum(1) == 1).all()
        for row, (word, wanted) in enumerate(zip(tokens.tolist(), asked, strict=True)):
            last = int(wanted.int().argmax())
            seen.append(last + 1)
            assert targets[row, last] == sum(word[: last + 1]) % 2
    assert set(seen) == {1, 2, 3, 4, 5, 6}
    assert task.splits == Parity().splits


def test_every_step_draws_new_words_and_every_seed_others():
    plan, task = LengthCurriculum(), WordProblem("S3")
    draws = [module.draw(task, seed, step, plan, 9.0)[0] for seed in (0, 1) for step in (1, 2)]
    for first in range(4):
        for second in range(first):
            assert not torch.equal(draws[first], draws[second])
    assert torch.equal(draws[0], module.draw(task, 0, 1, plan, 9.0)[0])


@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_trained_in_training_mode_and_left_in_the_mode_it_was_in(training):
    model = Oracle(Parity()).train(training)
    learn_by_length(model, model.task, LengthCurriculum(steps=2, tokens=8))
    assert model.modes == [True, True]
    assert model.training is training


def test_what_watches_sees_every_step_and_a_display_is_silent_without_a_terminal(capfd):
    model, seen = Oracle(Parity()), []
    with Display("parity") as display:

        def watch(progress):
            seen.append((progress.step, progress.done))
            display.watch(progress)

        found = learn_by_length(model, model.task, LengthCurriculum(longest=3, tokens=16), watch=watch)
    assert [step for step, _ in seen] == list(range(1, found.steps + 1))
    assert [length for _, length in seen] == sorted(length for _, length in seen)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("shortest", 0), ("tokens", 0), ("rows", 0), ("right", 0), ("learning_rate", 0.0), ("clip", -1.0), ("seconds", 0),
     ("floor", 1.5), ("threshold", -0.1), ("smoothing", 1.0), ("longest", 1), ("growth", 0.9), ("decay", -1.0),
     ("steps", -1), ("growth", math.nan)],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_named(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*; got {value}$"):
        replace(LengthCurriculum(), **{name: value})


def test_a_seed_must_be_a_number_from_0_on():
    with pytest.raises(ValueError, match="seed must be an integer of at least 0; got -1"):
        learn_by_length(Oracle(Parity()), Parity(), seed=-1)
