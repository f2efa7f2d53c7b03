"""Figures: what is drawn is what was measured."""

import math
import sys
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from record_cases import as_older_versions_left_it, make_record, some_records, write_record

from latchwork.evaluation import latch_states
from latchwork.evaluation.statistics import wilson
from latchwork.experiments import EXPERIMENTS
from latchwork.reports.figures import (
    accuracy_by_position,
    plot_accuracy,
    plot_answers,
    plot_converged,
    plot_trained_states,
    plot_training,
    render,
)
from latchwork.reports.labels import GAP, spread
from latchwork.reports.pictures import pictures
from latchwork.reports.records import group_records, read_records
from latchwork.tasks import make_task

pytest.importorskip("matplotlib")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def at_ends(axes):
    """The names at the ends of lines."""
    return [text.get_text() for text in axes.texts]


def with_positions(positions, **fields):
    record = make_record(**fields)
    record["evaluation"]["positions"] = positions
    return record


def test_the_band_is_over_seeds_where_there_are_several_and_over_sequences_where_there_is_one():
    one = with_positions([[0, 1, 16, 8], [2, 8, 96, 24]])
    two = with_positions([[0, 1, 16, 16], [2, 8, 96, 72]], seed=1)
    places, middle, low, high = accuracy_by_position(group_records([one, two])[0])
    assert places == [1, math.sqrt(24)]
    assert (middle, low, high) == ([75, 50], [50, 25], [100, 75])
    _, middle, low, high = accuracy_by_position(group_records([one])[0])
    assert middle == [50, 25]
    assert list(zip(low, high, strict=True)) == [
        pytest.approx([100 * each for each in wilson(right, 16)]) for right in (8, 4)
    ]
    one["evaluation"]["sequences"] = 9
    _, middle, low, high = accuracy_by_position(group_records([one])[0])
    assert low == middle == high


def test_a_task_is_a_panel_with_a_line_for_each_model_and_one_for_the_constant():
    groups = [group for group in group_records(some_records()) if group.first["task"] == "latching(4)"]
    (axes,) = plot_accuracy(groups).axes
    assert axes.get_title(loc="left") == "latching(4)"
    assert at_ends(axes) == ["minmax-s", "mamba-s", "constant"]
    assert axes.get_xscale() == "log"
    assert len(axes.lines) == 3
    constant = next(line for line in axes.lines if line.get_label() == "constant")
    assert list(constant.get_ydata()) == [25, 25]
    assert constant.get_linestyle() == "--"
    older = plot_accuracy(group_records([as_older_versions_left_it(make_record())]))
    assert at_ends(older.axes[0])[-1] == "constant, expected"


def test_lines_of_several_scales_and_batch_sizes_are_told_apart():
    records = [make_record(), make_record(batch_size=128), make_record(scale="smoke")]
    figure = plot_accuracy(group_records(records))
    assert at_ends(figure.axes[0]) == [
        "minmax-s, laptop, batch 64",
        "minmax-s, laptop, batch 128",
        "minmax-s, smoke",
        "constant",
    ]
    assert len({line.get_linestyle() for line in figure.axes[0].lines[:3]}) > 1


def test_where_answers_are_asked_for_at_one_step_each_model_is_a_point(tmp_path):
    records = [
        with_positions([[1000, 1024, 16, right]], seed=seed, run="absent", accuracy=right / 16)
        for seed, right in enumerate([4, 12])
    ]
    figure = plot_answers(group_records(records))
    band, point, constant = figure.axes[0].lines
    assert list(band.get_xdata()) == [25, 75]
    assert list(point.get_xdata()) == [50]
    assert list(constant.get_xdata()) == [25, 25]
    assert next(picture.name for picture in pictures(tmp_path, group_records(records))) == "answers-latching"


def test_every_seed_is_a_line_and_the_best_one_is_thick():
    records = [make_record(seed=seed, validation=each) for seed, each in enumerate([0.5, 0.9, 0.7])]
    losses, accuracies = plot_training(group_records(records)).axes
    assert [line.get_linewidth() for line in losses.lines] == [0.7, 2, 0.7]
    for record, loss, accuracy in zip(records, losses.lines, accuracies.lines, strict=True):
        epochs = record["training"]["epochs"]
        assert list(loss.get_ydata()) == [each["loss"] for each in epochs]
        assert list(accuracy.get_ydata()) == [100 * each["validation_accuracy"] for each in epochs]


def test_a_training_that_diverged_is_drawn():
    record = make_record(epochs=1)
    record["training"]["epochs"][0]["loss"] = math.nan
    assert render(plot_training(group_records([record])), "diverged")


def test_seeds_that_converged_stand_beside_the_papers():
    groups = [group for group in group_records(some_records()) if group.first["table"] == "ablation"]
    figure = plot_converged(groups)
    assert legend(figure) == ["ours", "paper"]
    axes = figure.axes[0]
    points = [(line.get_label(), float(line.get_xdata()[0])) for line in axes.lines if line.get_label()[0] != "_"]
    assert points == [("ours", pytest.approx(200 / 3)), ("paper", 100), ("ours", pytest.approx(200 / 3))]


@pytest.fixture
def trained(tmp_path):
    """A folder with one run and its weights."""
    run = write_record(tmp_path, make_record())
    model = EXPERIMENTS["latching-4/minmax-s"].make_model(20)
    model.save(run / "model")
    return tmp_path, model.eval(), run / "model"


def test_states_of_a_trained_network_are_those_of_its_weights(trained):
    folder, model, _ = trained
    record = read_records(folder)[0]
    figure = plot_trained_states(folder, record, steps=7)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    tokens = make_task("latching(4)").sample("evaluation", 0, 1, 7).tokens
    states = latch_states(model, tokens)[:, 0]  # (n_layers, T, d_state)
    for layer in range(2):
        drawn = torch.from_numpy(images[2 * layer].get_array().data)  # (d_state, T), sorted
        torch.testing.assert_close(drawn.sort(0).values.float(), states[layer].T.sort(0).values)
    assert legend(figure) == ["set", "reset", "held"]


def test_weights_of_another_model_are_named(trained):
    folder, _, model = trained
    EXPERIMENTS["latching-4/minmax-s"].make_model(21).save(model)
    with pytest.raises(ValueError, match=r"must hold the model of latching-4/minmax-s"):
        plot_trained_states(folder, read_records(folder)[0])


def test_states_are_among_the_pictures_where_there_are_weights(trained):
    folder = trained[0]
    names = [picture.name for picture in pictures(folder, group_records(read_records(folder)))]
    assert names == ["training-latching", "states-latching"]


def test_only_what_varies_is_drawn_and_the_caption_names_the_rest(tmp_path):
    flat = make_record("latching-8/minmax-s", run="nowhere")
    for epoch in flat["training"]["epochs"]:
        epoch["validation_accuracy"] = 1.0
    groups = group_records([flat, make_record("latching-4/mamba-s", accuracy=0.5, run="nowhere")])
    accuracy, training = pictures(tmp_path, groups)
    for picture in (accuracy, training):
        (svg,) = picture.svgs  # one a task
        assert "latching(4)" in svg
        assert "latching(8)" not in svg
        assert picture.caption.endswith(": latching(8).")
    assert pictures(tmp_path, group_records([flat])) == []


def test_a_run_that_was_stopped_is_marked():
    record = make_record(accuracy=0.5)
    record["training"]["stopped"] = "time limit"
    groups = group_records([record])
    assert at_ends(plot_accuracy(groups).axes[0])[0] == "minmax-s, stopped"
    assert [line.get_marker() for axes in plot_training(groups).axes for line in axes.lines].count("x") == 2


@given(st.lists(st.floats(0, 1), max_size=12))
def test_names_at_line_ends_stand_apart_and_in_the_order_of_their_lines(places):
    found = spread(places)
    order = sorted(range(len(places)), key=lambda each: (places[each], found[each]))
    moved = [found[each] for each in order]
    assert moved == sorted(moved)
    assert all(two - one >= GAP - 1e-9 for one, two in pairwise(moved))
    assert all(-1e-9 <= each <= 1 + 1e-9 for each in found)
    if all(abs(one - two) >= GAP + 1e-9 for one, two in combinations(places, 2)):
        assert found == pytest.approx(places)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (plot_accuracy, plot_answers, plot_training, plot_converged):
        with pytest.raises(ImportError, match=r"pip install 'latchwork\[plots\]'"):
            plot(group_records([make_record()]))


def test_shorter_sequences_are_points_of_the_line_where_answers_are_asked_for_at_the_end_only():
    record = with_positions([[1023, 1024, 16, 4]])
    record["evaluation"]["shorter"] = [[16, 20, 20], [64, 20, 15], [256, 20, 10]]
    places, middle, _, _ = accuracy_by_position(group_records([record])[0])
    assert places == [16, 64, 256, 1024]
    assert middle == [100, 75, 50, 25]
    assert len(plot_accuracy(group_records([record])).axes) == 1
