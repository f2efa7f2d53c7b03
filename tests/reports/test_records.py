"""Records read from disk: what is found, how it is grouped, how it fails."""

import json

import pytest
from record_cases import as_older_versions_left_it, make_record, some_records, write_record

from latchwork.evaluation.statistics import wilson
from latchwork.experiments import EXPERIMENTS
from latchwork.reports.records import group_records, read_records


def test_every_record_below_a_folder_is_read(tmp_path):
    records = some_records()
    for record in records:
        write_record(tmp_path, record)
    found = read_records(tmp_path)
    assert len(found) == len(records)
    for each in found:
        run, joined = each.pop("run"), {name: each.pop(name, None) for name in ("published", "converged")}
        stored = json.loads((tmp_path / run / "record.json").read_text())
        assert {name: value for name, value in stored.items() if name not in joined} == each
        known = EXPERIMENTS.get(each["experiment"])  # what the paper has is joined, not stored
        assert known is None or joined["published"] == (known.published and list(known.published))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON"),
        ("{}", "is not the record of a run: it has no experiment, table"),
        (json.dumps({**make_record(), "training": []}), "training must be a JSON object"),
        (json.dumps({**make_record(), "evaluation": {"length": 1}}), "evaluation has no sequences, average"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, message):
    path = tmp_path / "some" / "run" / "record.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_records(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("seed",), "<script>", "seed must be a whole number of at least 0; got '<script>'"),
        (("seed",), True, "seed must be a whole number"),
        (("batch_size",), -1, "batch_size must be a whole number of at least 0; got -1"),
        (("parameters",), 10**400, "parameters must be a whole number"),
        (("experiment",), ["<b>"], r"experiment must be text; got \['<b>'\]"),
        (("training", "epochs"), {}, "training.epochs must be a list"),
        (("training", "epochs", 1, "loss"), "x", r"training.epochs\[1\].loss must be a number; got 'x'"),
        (("training", "validation_accuracy"), 1.5, "training.validation_accuracy must be a number from 0 to 1"),
        (("evaluation", "average", "mean"), 1.5, "evaluation.average.mean must be a number from 0 to 1; got 1.5"),
        (("evaluation", "length"), 0, "evaluation must have a length and positions"),
        (("evaluation", "positions"), [], "evaluation must have a length and positions"),
        (("evaluation", "positions", 0), [0, 1, 2], "evaluation.positions must be rows of"),
        (("evaluation", "positions", 0), [0, 1, 2, 3], "evaluation.positions must be rows of"),
        (("evaluation", "positions", 0), [0, 1, 0, 0], "evaluation.positions must be rows of"),
        (("published",), [1], r"published must be two numbers; got \[1\]"),
        (("converged",), [3, 2], "converged must be seeds, of all that were run"),
        (("converged",), [0, 0], "converged must be seeds, of all that were run"),
        (("changes",), "x", "changes must be a JSON object"),
        (("manifest", "versions"), ["x"], "manifest.versions must be a JSON object"),
    ],
)
def test_a_field_of_another_kind_is_named(tmp_path, place, value, message):
    record = make_record()
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=rf"record\.json is not the record of a run: {message}"):
        read_records(tmp_path)


def test_the_same_run_in_two_places_is_an_error(tmp_path):
    for folder in ("here", "there"):
        write_record(tmp_path / folder, make_record())
    with pytest.raises(ValueError, match=r"the same run twice: here/laptop/.* and there/laptop/"):
        read_records(tmp_path)


def test_groups_keep_scales_and_batch_sizes_apart_and_follow_the_paper():
    records = [
        make_record("sequences-2/minmax-s"),
        make_record("latching-16/minmax-s"),
        make_record("latching-4/mamba-s"),
        make_record("latching-4/minmax-s", seed=1),
        make_record("latching-4/minmax-s", seed=0),
        make_record("latching-4/minmax-s", batch_size=128),
        make_record("latching-4/minmax-s", scale="smoke"),
    ]
    groups = group_records(records)
    assert [(group.experiment, group.scale, group.batch_size) for group in groups] == [
        ("latching-4/minmax-s", "laptop", 64),
        ("latching-4/minmax-s", "laptop", 128),
        ("latching-4/minmax-s", "smoke", 64),
        ("latching-4/mamba-s", "laptop", 64),
        ("latching-16/minmax-s", "laptop", 64),
        ("sequences-2/minmax-s", "laptop", 64),
    ]
    assert [record["seed"] for record in groups[0].records] == [0, 1]
    assert group_records(records[::-1]) == groups


def test_the_best_run_has_the_best_validation_accuracy():
    records = [
        {**make_record(seed=seed, accuracy=accuracy, validation=validation), "run": str(seed)}
        for seed, accuracy, validation in [(0, 1.0, 0.5), (1, 0.2, 0.9), (2, 0.7, 0.9)]
    ]
    assert group_records(records)[0].best is records[1]


def test_only_a_single_seed_of_enough_sequences_has_an_interval():
    assert group_records([make_record(seed=seed, accuracy=0.5) for seed in range(2)])[0].interval is None
    record = make_record(accuracy=0.5)
    low, high = group_records([record])[0].interval[1:]
    assert 0.2 < low < 0.5 < high < 0.8
    record["evaluation"]["sequences"] = 9
    assert group_records([record])[0].interval is None


def test_an_older_record_counts_each_sequence_as_one_answer():
    group = group_records([as_older_versions_left_it(make_record(accuracy=0.125))])[0]
    assert group.interval == (0.125, *wilson(2, 16))
    assert group.constant_is_expected
    assert not group_records([make_record()])[0].constant_is_expected


def test_what_was_cut_short_says_so():
    records = [make_record(seed=seed) for seed in range(3)]
    assert group_records(records)[0].stopped == ""
    records[0]["training"]["stopped"] = records[2]["training"]["stopped"] = "time limit"
    assert group_records(records)[0].stopped == "training stopped: time limit (2 of 3 seeds)"
    records[0]["evaluation"]["stopped"] = "time limit"
    assert group_records(records[:1])[0].stopped == "training stopped: time limit, evaluation stopped: time limit"
    records[0]["training"]["stopped"] = "interrupted"
    assert group_records(records[:1])[0].stopped.startswith("training stopped: interrupted")


def test_a_group_is_perfect_only_if_every_seed_is():
    almost = 1 - 2**-40
    perfect = [make_record(seed=seed) for seed in range(3)]
    assert group_records(perfect)[0].perfect
    assert not group_records([*perfect, make_record(seed=3, accuracy=almost)])[0].perfect
    assert group_records([*perfect, make_record(seed=3, validation=almost)])[0].converged == 3
