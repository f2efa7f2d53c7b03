import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretraining_cases import TINY, tiny

from latchwork.baselines.registry import ModelConfig, parameter_count
from latchwork.training.config import (
    BatchConfig,
    OptimizerConfig,
    PretrainingConfig,
    at,
)
from latchwork.training.config_file import read_config
from latchwork.training.presets import CONFIGS, GPT2_VOCABULARY, OPTIMIZERS, find_config


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_survives_json(name):
    config = CONFIGS[name]
    assert PretrainingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_papers_configuration_has_the_values_of_its_table():
    paper = find_config("paper-112m")
    assert parameter_count(paper.model, GPT2_VOCABULARY) == 112_465_992  # one LayerNorm less than the paper's release
    assert paper.vocabulary == 50_257
    options = {"d_model": 728, "d_state": 1456, "n_layers": 12, "conv_type": "gated", "output_gate": True}
    assert paper.model.options == options
    assert (paper.optimizer.betas, paper.optimizer.eps, paper.optimizer.learning_rate) == ((0.9, 0.95), 1e-8, 6e-4)
    assert [at(paper.optimizer.weight_decay, step) for step in (0, 93_999, 94_000)] == [0.1, 0.1, 0.0]
    assert [at(paper.batch.accumulation, step) for step in (0, 35_999, 36_000)] == [32, 32, 64]
    assert (paper.batch.micro, paper.batch.context) == (16, 1024)
    assert (paper.schedule.shape, paper.schedule.steps, paper.steps) == ("linear", 200_000, 100_000)
    assert (paper.schedule.warmup, paper.schedule.final) == (0.01, 0.01)
    assert (paper.precision, paper.compile, paper.log_every) == ("bfloat16", True, 50)
    assert (paper.validation.every, paper.validation.batches, paper.validation.batch_size) == (1000, 2000, 4)


@pytest.mark.parametrize("name", ["paper-112m", "medium-42m", "char-1m", "bpe-10m"])
@pytest.mark.parametrize("kind", ["transformer", "lstm", "gru", "mamba"])
def test_a_baseline_has_as_many_parameters_and_differs_in_nothing_else(name, kind):
    ours, baseline = CONFIGS[name], CONFIGS[f"{name}-{kind}"]
    vocabulary = ours.vocabulary or 65
    expected = parameter_count(ours.model, vocabulary)
    assert abs(parameter_count(baseline.model, vocabulary) - expected) <= 0.02 * expected
    assert replace(ours, name=baseline.name, model=baseline.model, optimizer=baseline.optimizer) == baseline
    assert baseline.optimizer == OPTIMIZERS.get(baseline.name, ours.optimizer)


@pytest.mark.parametrize(
    ("name", "vocabulary", "least", "most"),
    [("medium-42m", 50_257, 42.0e6, 42.5e6), ("char-1m", 65, 0.75e6, 1.05e6), ("bpe-10m", 50_257, 9.8e6, 10.4e6)],
)
def test_the_names_say_the_sizes(name, vocabulary, least, most):
    assert least < parameter_count(CONFIGS[name].model, vocabulary) < most


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=4, unique_by=lambda each: each[0]))
def test_a_value_by_step_is_that_of_the_last_piece_begun(pieces):
    pieces = ((0, 7), *sorted(pieces))
    for step in range(60):
        expected = 7
        for start, value in pieces:
            if step >= start:
                expected = value
        assert at(pieces, step) == expected


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("stpes", 3, "the config has no field 'stpes'; did you mean 'steps'"),
        ("batch", {"micro": 2, "context": 8, "acumulation": []}, "batch has no field 'acumulation'; did you mean"),
        ("batch", 3, "batch must be a table of values; got 3"),
        ("batch", {"micro": 2}, "batch: .*context"),
        ("batch", {"micro": 0, "context": 8}, "micro must be at least 1; got 0"),
        ("batch", {"micro": 2.5, "context": 8}, r"batch\.micro must be an integer; got 2\.5"),
        ("batch", {"micro": 2, "context": 8, "accumulation": [[1, 2]]}, "accumulation must be pairs"),
        ("batch", {"micro": 2, "context": 8, "accumulation": [[0, 2], [0, 3]]}, "accumulation must be pairs"),
        ("batch", {"micro": 2, "context": 8, "accumulation": [[0]]}, r"batch\.accumulation must be a list of 2"),
        ("batch", {"micro": 2, "context": 8, "accumulation": [[0, 0]]}, "accumulation must have values of at least 1"),
        ("optimizer", {"learning_rate": 0.0}, "learning_rate, eps and clip must be positive"),
        ("optimizer", {"learning_rate": 1e-3, "betas": [0.9, 1.0]}, "betas and momentum must be"),
        ("optimizer", {"learning_rate": "fast"}, r"optimizer\.learning_rate must be a number; got 'fast'"),
        ("schedule", {"shape": "square"}, r"schedule\.shape must be one of 'linear', 'cosine', 'constant'"),
        ("schedule", {"warmup": 2}, "warmup and final must be between 0 and 1"),
        ("validation", {"batches": 1}, "batches must be at least 2"),
        ("precision", "float16", "precision must be one of 'float32', 'bfloat16'"),
        ("compile", 1, "compile must be true or false; got 1"),
        ("tbptt", 0, "tbptt must be at least 1"),
        ("model", {"kind": "lstm", "options": 4}, r"model\.options must be a table"),
    ],
)
def test_a_wrong_value_is_named(path, value, message):
    with pytest.raises(ValueError, match=message):
        PretrainingConfig.from_dict({**TINY.to_dict(), path: value})


def test_tbptt_is_for_ours():
    with pytest.raises(ValueError, match="tbptt and gradient_checkpointing are for kind 'minmax'; got 'gru'"):
        tiny(model=ModelConfig(kind="gru", options={"n_layers": 1, "width": 8}), tbptt=2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ModelConfig(options={"d_model": 4}), "it lacks n_layers, d_state"),
        (ModelConfig(options={"d_model": 4, "n_layers": 1, "d_state": 4, "gate": True}), "no field 'gate'"),
        (ModelConfig(kind="lstm", options={"width": 4}), "options of lstm must be n_layers, width"),
        (
            ModelConfig(kind="transformer", options={"n_layers": 1, "width": 8, "heads": 1, "places": 4}),
            "must be n_layers, width, and may be heads, positions, window; got",
        ),
    ],
)
def test_wrong_options_of_a_model_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        parameter_count(model, 5)


def test_a_configuration_comes_from_a_name_or_a_file_and_single_fields_are_changed(tmp_path):
    changed = read_config("char-1m", ["batch.micro=3", "optimizer.clip=null", "seed=5", "name=mine"])
    assert (changed.batch.micro, changed.optimizer.clip, changed.seed, changed.name) == (3, None, 5, "mine")
    (tmp_path / "a.json").write_text(json.dumps(changed.to_dict()))
    assert read_config(str(tmp_path / "a.json")) == changed
    (tmp_path / "a.toml").write_text(
        'name = "mine"\nsteps = 3\n[model]\noptions = {d_model = 4, n_layers = 1, d_state = 4}\n'
        "[optimizer]\nlearning_rate = 1e-3\n[batch]\nmicro = 2\ncontext = 8\naccumulation = [[0, 1], [2, 4]]\n"
    )
    found = read_config(str(tmp_path / "a.toml"))
    assert found.batch == BatchConfig(micro=2, context=8, accumulation=((0, 1), (2, 4)))
    assert found.optimizer == OptimizerConfig(learning_rate=1e-3)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("paper-12m", [], "did you mean paper-112m"),
        ("missing.json", [], r"missing\.json is not there"),
        ("char-1m", ["batch.micro"], "a change must be field=value"),
        ("char-1m", ["steps.micro=1"], "which has none"),
        ("char-1m", ["bach.micro=1"], "no field 'bach'; did you mean 'batch'"),
    ],
)
def test_a_wrong_name_file_or_change_is_named(name, changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(name, changes)


def test_a_broken_file_is_named(tmp_path):
    for suffix, text in {"json": "{", "toml": "= 3"}.items():
        (tmp_path / f"a.{suffix}").write_text(text)
        with pytest.raises(ValueError, match=f"must be {suffix.upper()}"):
            read_config(str(tmp_path / f"a.{suffix}"))
