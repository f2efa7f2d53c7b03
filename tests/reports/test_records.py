"""Records read from disk: what is found, how it is grouped, how it fails."""

import json

import pytest
from record_cases import make_record, some_records, write_record

from latchwork.evaluation.statistics import bootstrap
from latchwork.reports.records import best_runs, group_records, read_records


def test_every_record_below_a_folder_is_read(tmp_path):
    records = some_records()
    for record in records:
        write_record(tmp_path, record)
    found = read_records(tmp_path)
    assert len(found) == len(records)
    for each in found:
        run = each.pop("run")
        assert json.loads((tmp_path / run / "record.json").read_text()) == each


def test_a_folder_without_records_has_none(tmp_path):
    assert read_records(tmp_path) == read_records(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "is not the record of a run: it has no experiment, table"),
        (json.dumps({**make_record(), "training": []}), "must hold a JSON object as 'training'"),
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


def test_bytes_that_are_not_text_are_named(tmp_path):
    (tmp_path / "record.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"record\.json must be JSON"):
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
    assert best_runs(records) == {"latching-4/minmax-s": records[1]}
    assert group_records(records)[0].best is records[1]


def test_the_interval_is_over_seeds_or_over_the_data_sets_of_one():
    accuracies = [0.2, 0.5, 0.9]
    many = group_records([make_record(seed=seed, accuracy=each) for seed, each in enumerate(accuracies)])[0]
    assert many.accuracy == bootstrap(accuracies, 0.99)
    one = group_records([make_record(accuracy=0.5, margin=0.125)])[0]
    assert one.accuracy == (0.5, 0.375, 0.625)


def test_a_group_is_perfect_only_if_every_seed_is():
    almost = 1 - 2**-40
    perfect = [make_record(seed=seed) for seed in range(3)]
    assert group_records(perfect)[0].perfect
    assert not group_records([*perfect, make_record(seed=3, accuracy=almost)])[0].perfect
    assert group_records([*perfect, make_record(seed=3, validation=almost)])[0].converged == 3
