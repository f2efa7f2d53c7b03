"""Pictures of latches: what is drawn, and how it fails."""

import io
import sys

import pytest
import torch

from latchwork import MinMaxRNC, MinMaxRNCConfig
from latchwork.evaluation import latch_report
from latchwork.reports.diagnostics import COLOURS, plot_latches

matplotlib = pytest.importorskip("matplotlib")


def make_model(**config):
    return MinMaxRNC(MinMaxRNCConfig(**{"d_model": 8, "n_layers": 2, "d_state": 6, **config})).eval()


def draw(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("config", [{}, {"degree": 3}, {"d_state": 1, "n_layers": 1}, {"d_state": 1456, "n_layers": 3}])
def test_each_layer_is_a_row_of_sorted_bars(config):
    model = make_model(**config)
    report = latch_report(model, torch.randn(4, 9, 8))
    figure = plot_latches(report)
    names = [name for name in COLOURS if name != "moved" or "degree" in config]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert len(figure.axes) == model.config.n_layers
    for layer, axes in enumerate(figure.axes):
        assert [each.get_label() for each in axes.collections] == names
        for each in axes.collections:
            assert matplotlib.colors.to_hex(each.get_facecolor()[0]) == COLOURS[each.get_label()]
        tops = {each.get_label(): each.get_paths()[0].vertices[:, 1].max() for each in axes.collections}
        share = {name: report.share(name)[layer] for name in ("set", "reset", "moved", "held", "dead")}
        heights = {"dead zone": share["dead"], "held": share["held"], "moved": share["held"] + share["moved"]}
        heights["reset"], heights["set"] = heights["moved"] + share["reset"], torch.ones(1)
        assert tops == {name: pytest.approx(heights[name].max().item()) for name in names}
    draw(figure)


def test_scalars_that_never_left_x0_are_counted():
    model = make_model(n_layers=1)
    neuron = model.layers[0].neuron
    with torch.no_grad():
        neuron.projection.weight.zero_()
        neuron.projection.bias[:6], neuron.projection.bias[6:12] = 1.0, torch.tensor([-1.0, 1, 1, 1, 1, -1])
    axes = plot_latches(latch_report(model, torch.randn(1, 3, 8))).axes[0]
    assert axes.get_title(loc="right") == "2 of 6 never left x0"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    report = latch_report(make_model(), torch.randn(1, 3, 8))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[plots\]'"):
        plot_latches(report)
