"""The page on state tracking, written from records that are made up."""

import pytest
from state_tracking_cases import made_up
from state_tracking_jobs import Job, Limits, run_all
from state_tracking_report import (
    MARKS,
    beside_scalars,
    body,
    curve,
    describe_units,
    errors,
    group,
    percent,
    published,
    spread,
    write,
)
from state_tracking_tasks import PROBLEMS

import state_tracking

S3, PARITY = PROBLEMS["word_problem(S3)"], PROBLEMS["parity"]


def some():
    """Three seeds of ours, one of them not learnt; of an LSTM three rates, and two seeds at the best."""
    ours = [made_up(Job(S3, "minmax", 5e-3, seed), wrong=3 * (seed == 1)) for seed in (0, 1)]
    ours.append(made_up(Job(S3, "minmax", 5e-3, 2), learnt=False, length=7, wrong=60_000))
    ours.append(made_up(Job(PARITY, "minmax", 5e-3, 0), result="counterexample"))
    lstm = [made_up(Job(S3, "lstm", rate, 0), learnt=False, length=6, wrong=50_000) for rate in (1e-3, 1e-2)]
    lstm += [made_up(Job(S3, "lstm", 3e-3, seed), steps=900, wrong=20_000) for seed in (0, 1)]
    return ours + lstm


def row(text, *starts):
    """The cells of the one row that begins with these."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    (found,) = [cells for cells in rows if cells[: len(starts)] == list(starts)]
    return found


def test_seeds_at_other_rates_are_left_out():
    groups = group(some())
    assert [each["rate"] for each in groups["word_problem(S3)", "lstm"]] == [3e-3, 3e-3]
    assert len(groups["word_problem(S3)", "minmax"]) == 3


def test_a_rate_of_more_seeds_is_shown_before_one_that_was_quicker():
    records = [made_up(Job(S3, "gru", 1e-3, seed)) for seed in (0, 1)] + [made_up(Job(S3, "gru", 1e-2, 0), steps=1)]
    assert [each["rate"] for each in group(records)["word_problem(S3)", "gru"]] == [1e-3, 1e-3]


def test_where_only_rates_were_tried_the_best_is_shown():
    tried = [made_up(Job(S3, "gru", rate, 0), learnt=rate == 1e-2) for rate in (1e-3, 1e-2)]
    assert [each["rate"] for each in group(tried)["word_problem(S3)", "gru"]] == [1e-2]


def test_the_tables_say_what_the_records_say():
    records = some()
    ours_of_s3 = [each for each in records if (each["problem"], each["model"]) == ("word_problem(S3)", "minmax")]
    ours_of_s3[1]["stuck"] = [{"steps": 20, "seconds": 1.0, "length": 3}] * 2
    text = body(records, group(records))
    ours = text.split("### Other models")[0]
    assert row(ours, "word_problem(S3)")[1:] == [
        "6", "16 of degree 3, selection", "600", "2/3", "0, 2, 0", "150 (100 to 200)", "15 (10 to 20)",
        "3 of 131,072", "0 of 2,097,152", "2 (1 to 2)", "2/3",
    ]  # fmt: skip
    assert row(ours, "parity")[-1] == "0/1, 1 counterexample"
    lstm = row(text, "word_problem(S3)", "lstm", "1,234")
    assert lstm[3:] == ["0.003", "600", "2/2", "900", "40", "100", "100", "100", "69.48", "–", "25.00"]
    assert row(text, "word_problem(S3)", "lstm", "length 6 in 600 s")[3:] == ["900 steps", "length 6 in 600 s"]
    assert "a processor" in text


def test_layers_are_named_where_there_are_several_and_old_records_have_one():
    units = {"form": "selection", "degree": 5, "units": 16}
    assert describe_units(units) == describe_units({**units, "layers": 1}) == "16 of degree 5, selection"
    assert describe_units({**units, "layers": 2}) == "16 of degree 5, selection in each of 2 layers"


def test_seeds_of_one_model_beside_scalars_stand_in_one_row():
    rows = [{"task": "t", "model": "m", "accuracies": each} for each in ([0.5, 1.0], [0.25])]
    assert row(beside_scalars(rows), "t") == ["t", "m", "50.00, 100; 25.00"]


def test_no_error_is_called_100_and_one_error_is_not():
    assert percent(1.0) == "100"
    assert percent(1 - 1e-9) == "99.99"
    assert percent(None) == "–"


def test_nothing_is_a_dash_and_one_value_has_no_range():
    assert spread([]) == errors([]) == errors([None]) == "–"
    assert spread([5]) == spread([5, 5]) == "5"
    assert spread([1000, 2000]) == "1,500 (1,000 to 2,000)"


def test_a_curve_is_the_median_and_the_range_over_seeds_each_position_from_its_shortest_test():
    records = [made_up(Job(S3, "lstm", 5e-3, seed), wrong=wrong) for seed, wrong in enumerate((0, 32368, 64736))]
    places, middle, low, high = curve(records)
    assert places == sorted(places)
    assert (middle, low, high) == ([100, 100, 100, 50], [100, 100, 100, 0], [100, 100, 100, 100])


def test_ours_is_shown_without_idle_units():
    record = made_up(Job(S3, "minmax", 5e-3, 0), wrong=64736)
    assert min(curve([record])[1]) == 100
    assert min(curve([{**record, "proof": None}])[1]) == 0


def test_the_page_is_written_between_its_marks_and_the_plot_beside_it_and_again_the_same(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{MARKS[0]}\n\nwhat was there\n\n{MARKS[1]}\n\nafter\n")
    write(some(), page)
    text, svg = page.read_text(), page.with_suffix(".svg").read_text()
    assert text.startswith("before\n\n")
    assert text.endswith("after\n")
    assert "what was there" not in text
    for word in ("minmax", "lstm", "word_problem(S3)", "parity", "constant"):
        assert f">{word}<" in svg
    write(some(), page)
    assert (page.read_text(), page.with_suffix(".svg").read_text()) == (text, svg)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["page.md", "page.svg"]


def test_the_command_writes_the_page_from_a_folder_of_records(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    records, page = tmp_path / "records", tmp_path / "page.md"
    records.mkdir()
    run_all([S3], ["minmax"], 2, records, Limits(), lambda line: None, made_up)
    page.write_text(f"{MARKS[0]}\n{MARKS[1]}\n")
    monkeypatch.setattr(state_tracking, "PAGE", page)
    assert state_tracking.main(["--report", "--out", str(records)]) == 0
    assert row(page.read_text(), "word_problem(S3)")[4] == "2/2"


def test_what_cannot_be_written_is_said_and_nothing_is_changed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="must have the lines"):
        write(some(), page)
    with pytest.raises(ValueError, match="there are no records"):
        write([], page)
    assert page.read_text() == "no marks"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_others_published_has_its_source_and_a_mark_where_it_was_not_checked():
    text = published()
    assert row(text, "Mamba [-1, 1]")[1:] == ["1.000 *", "0.241 *", "0.116 *"]
    assert "https://arxiv.org/abs/2411.12537" in text
    assert all("http" in line for line in text.splitlines() if line.startswith("- "))
