"""Tables: the numbers are those of the records, the published ones beside them, and every character is escaped."""

import pytest
from record_cases import as_older_versions_left_it, make_record, some_records

from latchwork.evaluation.statistics import FEW, by_sequence, wilson
from latchwork.reports.records import group_records
from latchwork.reports.tables import (
    Cell,
    Table,
    ablation_table,
    duration,
    latex,
    latex_text,
    markdown,
    markdown_text,
    percent,
    results_tables,
    runs_table,
)


def row_of(table, number=0):
    return {name: cell.text for name, cell in zip(table.head, table.rows[number], strict=True)}


def results(*records):
    return results_tables(group_records(records))[0]


def test_a_row_has_the_numbers_of_its_records():
    accuracies = [0.3, 0.5, 0.7]
    records = [
        make_record(
            "latching-8/mamba-s",
            seed=seed,
            accuracy=each,
            validation=0.75,
            constant=0.125,
            change=0.0625,
            epochs=4 + seed,
            published=[38.8, 1.5],
        )
        for seed, each in enumerate(accuracies)
    ]
    assert row_of(results(*records)) == {
        "Task": "latching(8)",
        "Model": "mamba-s",
        "Ours": "50.00 (seeds: 30.00–70.00)",
        "Published": "38.8 ± 1.5",
        "Constant": "12.50",
        "At changes": "6.25",
        "Worst step": "25.00",
        "Validation": "75.00",
        "Train": "75.00",
        "Epochs": "4–6",
        "Seeds": "3",
        "Sequences, length": "48 × 1,024",
        "Parameters": "123,456",
        "Training": "4.5 min",
        "Evaluation": "6.0 h",
        "Batch": "64",
        "Scale": "laptop",
    }


def test_a_check_mark_stands_only_where_every_seed_is_perfect():
    perfect = [make_record(seed=seed) for seed in range(2)]
    assert row_of(results(*perfect))["Ours"] == "✓ 100"
    row = row_of(results(*perfect, make_record(seed=2, accuracy=1 - 1e-9, published=[100, 0])))
    assert row["Ours"] == ">99.99 (seeds: >99.99–100)"
    assert row["Published"] == "✓ 100"


@pytest.mark.parametrize("accuracy", [0.0, 0.0625, 0.125, 0.5, 0.999, 1 - 2**-14, 1.0])
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("sequences", [2, FEW - 1, FEW, 1000])
def test_no_interval_is_a_point_and_few_sequences_have_none(accuracy, older, sequences):
    record = make_record(accuracy=accuracy)
    record["evaluation"]["sequences"] = sequences
    record["evaluation"]["by_sequence"] = by_sequence([1 << 14] * sequences, [round(accuracy * (1 << 14))] * sequences)
    group = group_records([as_older_versions_left_it(record) if older else record])[0]
    text = row_of(results_tables([group])[0])["Ours"]
    assert "±" not in text
    if sequences < FEW or accuracy == 1:
        assert "(" not in text
    else:
        low, high = text.split("95%: ")[1].rstrip(")").split("–")
        assert low != high
        assert group.interval.low < group.interval.high


def test_a_row_that_was_cut_short_says_so_in_the_cell():
    record = make_record(accuracy=0.125)
    record["training"]["stopped"] = "time limit"
    assert row_of(results(record))["Ours"] == "12.50 (95%: 3.0–39.4), training stopped: time limit"
    record["evaluation"]["average"]["mean"] = 1
    assert row_of(results(record))["Ours"] == "✓ 100, training stopped: time limit"


def test_the_constant_of_an_older_record_is_called_expected():
    record = make_record(constant=0.375)
    assert row_of(results(record))["Constant"] == row_of(runs_table(group_records([record])))["Constant"] == "37.50"
    old = as_older_versions_left_it(record)
    assert row_of(results(old))["Constant"] == row_of(runs_table(group_records([old])))["Constant"] == "37.50 expected"


def test_what_the_paper_has_not_and_what_cannot_be_measured_is_a_dash():
    row = row_of(results(make_record(published=None, change=None)))
    assert row["Published"] == row["At changes"] == "–"


def test_there_is_a_table_for_each_of_the_papers_and_the_ablation_stands_apart():
    groups = group_records(some_records())
    assert [table.title for table in results_tables(groups)] == ["Latching", "Sequences", "Induction heads"]
    assert sum(len(table.rows) for table in results_tables(groups)) + len(ablation_table(groups).rows) == len(groups)
    assert len(runs_table(groups).rows) == len(some_records())


def test_the_ablation_counts_seeds_beside_the_papers():
    records = [
        make_record(
            "ablation/induction_heads-16/40-gate",
            seed=seed,
            validation=1.0 if seed < 7 else 0.99,
            table="ablation",
            converged=[9, 10],
            changes={"output_gate": True, "s_r_init": "kaiming"},
        )
        for seed in range(8)
    ]
    row = row_of(ablation_table(group_records(records)))
    low, high = (round(100 * each) for each in wilson(7, 8))
    assert (row["Converged"], row["95% interval"]) == ("7 of 8", f"{low}–{high}")
    low, high = (round(100 * each) for each in wilson(9, 10))
    assert (row["Paper"], row["95% interval, paper"]) == ("9 of 10", f"{low}–{high}")
    assert (row["output_gate"], row["s_r_init"]) == ("yes", "kaiming")


def test_without_an_ablation_there_is_no_table_of_it():
    assert ablation_table(group_records([make_record()])) is None


def test_an_ablation_the_paper_has_not_shows_dashes():
    row = row_of(ablation_table(group_records([make_record("ablation/a/b", table="ablation", changes={})])))
    assert row["Paper"] == row["95% interval, paper"] == "–"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (1.0, "100"), (0.99995, ">99.99"), (0.9999, "99.99"), (0.00001, "<0.01"), (0.12345, "12.35")],
)
def test_only_what_is_perfect_prints_as_a_hundred(share, text):
    assert percent(share) == text


def test_durations_have_a_fitting_unit():
    assert [duration(each) for each in (0.2, 59, 60, 3599, 3600, 36_000)] == [
        "0 s",
        "59 s",
        "1.0 min",
        "60.0 min",
        "1.0 h",
        "10.0 h",
    ]


def test_names_are_escaped():
    name = r"a<b & c_d 5% | #1 $x$ {y} ~ ^ \z"
    table = Table(name="t", title=name, caption=name, head=(name,), rows=((Cell(name),),), words=1)
    in_latex = r"a\textless{}b \& c\_d 5\% | \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    assert latex_text(name) == in_latex
    assert latex(table).count(in_latex) == 4
    in_markdown = r"a&lt;b &amp; c\_d 5% \| #1 \$x\$ {y} \~ ^ \\z"
    assert markdown_text(name) == in_markdown
    assert markdown(table).splitlines()[-1] == f"| {in_markdown} |"


def test_every_row_has_as_many_cells_as_the_head():
    groups = group_records(some_records())
    for table in [*results_tables(groups), ablation_table(groups), runs_table(groups)]:
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {len(table.head) + 1}
        assert len(lines) == 2 + len(table.rows)
        body = [line for line in latex(table).splitlines() if line.endswith(r" \\")]
        assert {line.replace(r"\&", "").count("&") for line in body} == {len(table.head) - 1}
        assert len(body) == 1 + len(table.rows)
