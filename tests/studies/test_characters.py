"""The study of characters: what is run, what is kept, what is told of it."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import characters_report
import characters_runs
import pytest
from characters_runs import (
    MODELS,
    NANOGPT,
    OURS,
    SUBWORDS,
    Run,
    run_all,
    subword_runs,
    time_runs,
    token_runs,
    tuning_runs,
)

import characters
from latchwork.baselines.registry import ModelConfig, parameter_count
from latchwork.training.presets import find_config

CHARACTERS = 65


def record(name, seed, loss, seconds=100.0, steps=2000, contexts=None, **changes):
    config = replace(find_config(name), seed=seed, steps=steps).to_dict()
    found = {"config": config, "parameters": 800_000, "step": steps, "processor_seconds": seconds}
    found |= {"validation": {"mean": loss, "margin": 0.01}, **({"contexts": contexts} if contexts else {})}
    return {**found, **changes}


def keep(folder, run, kept):
    path = folder / run.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept))


def test_no_two_runs_have_one_record():
    runs = [*tuning_runs(MODELS), *token_runs((NANOGPT, *MODELS), 3)]
    assert len({run.file for run in runs}) == len(runs)


def test_all_models_have_about_as_many_parameters():
    counts = {name: parameter_count(find_config(name).model, CHARACTERS) for name in (NANOGPT, *MODELS)}
    assert max(counts.values()) < 1.02 * min(counts.values()), counts


def test_tuning_sees_the_training_text_alone(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a" * 90 + "b" * 10)
    assert characters_runs.training_text(text, tmp_path / "part.txt").read_text() == "a" * 90


def test_equal_time_is_that_of_nanogpts_settings(tmp_path):
    with pytest.raises(ValueError, match=r"timing.json is missing"):
        time_runs(MODELS, 3, tmp_path)
    seconds = {NANOGPT: {"median": 0.06}, OURS: {"median": 0.08}}
    (tmp_path / characters_runs.TIMING).write_text(json.dumps({"seconds": seconds}))
    found = time_runs([OURS], 2, tmp_path)
    assert [(run.config.name, run.config.seed, run.config.steps) for run in found] == [(OURS, 0, 1500), (OURS, 1, 1500)]


def test_steps_are_timed_in_turns(tiny, tmp_path, monkeypatch):
    text, config = tiny
    monkeypatch.setattr(characters_runs, "find_config", lambda name: replace(config, name=name))
    monkeypatch.setattr(characters_runs, "ROUNDS", 2)
    monkeypatch.setattr(characters_runs, "ROUND_STEPS", 3)
    characters_runs.measure_steps(["a", "b"], characters_runs.make_corpus(text, tmp_path / "corpus"), tmp_path)
    kept = json.loads((tmp_path / characters_runs.TIMING).read_text())
    assert {name: len(each["rounds"]) for name, each in kept["seconds"].items()} == {"a": 2, "b": 2}
    assert all(second > 0 for each in kept["seconds"].values() for second in each["rounds"])


@pytest.fixture
def tiny(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat, and so it goes on. " * 300)
    base = find_config(OURS)
    model = ModelConfig(options={"d_model": 8, "n_layers": 1, "d_state": 4})
    validation = replace(base.validation, batches=2)
    return text, replace(base, steps=3, model=model, validation=validation)


def test_a_run_leaves_a_record_and_is_not_run_again(tiny, tmp_path, capsys):
    text, config = tiny
    corpus = characters_runs.make_corpus(text, tmp_path / "corpus")
    run = Run("tokens", "seed 0", config, contexts=True)
    run_all(lambda: [run], corpus, tmp_path / "records", tmp_path / "scratch")
    assert "tokens/char-1m_seed_0.json" in capsys.readouterr().out
    kept = json.loads((tmp_path / "records" / run.file).read_text())
    assert kept["step"] == 3
    assert kept["bits_per_byte"] == pytest.approx(kept["validation"]["mean"] / math.log(2))  # a byte a character
    edges = [(low, high) for low, high, *_ in kept["contexts"]]
    assert edges[0] == (1, 1)
    assert edges[-1][1] == 644  # half of the validation text
    assert 0 < kept["read_through"] < 10
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(edges))
    assert {"versions", "commit", "hardware", "date"} <= set(kept)
    run_all(lambda: [run], corpus, tmp_path / "records", tmp_path / "scratch")
    assert capsys.readouterr().out == ""
    other = Run("tokens", "seed 0", replace(config, steps=4))
    with pytest.raises(ValueError, match=r"char-1m_seed_0.json is the record of another configuration"):
        run_all(lambda: [other], corpus, tmp_path / "records", tmp_path / "scratch")


def test_the_page_has_what_the_records_say(tmp_path, monkeypatch):
    contexts = [[1, 1, 6, 3.0], [2, 2, 6, None], [3, 4, 12, 1.6]]
    for seed, loss in enumerate((1.50, 1.52)):
        keep(
            tmp_path, token_runs([OURS], seed + 1)[seed], record(OURS, seed, loss, contexts=contexts, read_through=1.4)
        )
    keep(tmp_path, token_runs([NANOGPT], 1)[0], record(NANOGPT, 0, 1.91, seconds=50))
    keep(tmp_path, Run("time", "seed 0", find_config(OURS)), record(OURS, 0, 1.6, steps=1000))
    for run, loss in zip(tuning_runs([OURS])[:2], (1.7, 1.65), strict=True):
        keep(tmp_path, run, record(OURS, 0, loss, steps=500))
    for number, run in enumerate(reversed(subword_runs(SUBWORDS, 1))):
        kept = record(run.config.name, 0, 5.0 + number, steps=200, seconds=1234.0, bits_per_byte=2.5)
        keep(tmp_path, run, kept)
    page = tmp_path / "characters.md"
    page.write_text(f"before\n{characters_report.MARKS[0]}\nold\n{characters_report.MARKS[1]}\nafter\n")
    monkeypatch.setattr(characters, "PAGE", page)
    characters.main(["--report", "--records", str(tmp_path)])
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    (head,) = [line for line in text.splitlines() if line.startswith("| model | parameters | optimiser")]
    (ours,) = [line for line in text.splitlines() if line.startswith("| minmax | 800,000 | muon 0.004 |")]
    assert dict(zip(head.split(" | "), ours.split(" | "), strict=True))["read through"] == "1.400"
    assert "| 1.510 (1.500 to 1.520) | – | 1.400 | 100 | 1.600 | 1,000 | 100 |" in text
    assert "| as nanoGPT | 800,000 | adamw 0.001 |" in text
    assert "| 1.910 | +0.410 | – | 50 | – | – | – |" in text  # less seed 0's 1.50, not the mean's 1.51
    assert "| minmax | 1.700 | **1.650** | – |" in text
    assert "| transformer | – |" not in text  # no rate of it was tried
    assert "| minmax | 800,000 | 7.000 | 2.500 | 1,234 |\n| transformer | 800,000 | 6.000 |" in text
    assert page.with_suffix(".svg").read_text().startswith("<?xml")


def test_bad_options_are_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        characters.main([str(tmp_path / "nothing.txt")])
    assert "TEXT must be a file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="has no records of equal tokens"):
        characters.main(["--report", "--records", str(tmp_path)])
