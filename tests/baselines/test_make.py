"""The table of baselines."""

import sys

import pytest
import torch
from baseline_cases import needs

from latchwork.baselines import PRESETS, make_baseline

# Raised by torch itself, where mlstm_kernels compiles what is for GPUs only.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

# Trainable parameters of two layers, and of each further layer.
COUNTS = {
    ("mamba-s", 20): 135_945,
    ("mamba-m", 18): 149_700,
    ("slstm-s", 20): 116_832,
    ("slstm-m", 18): 161_300,
    ("mlstm-s", 20): 131_248,
    ("mlstm-m", 18): 174_807,
    ("xlstm-l-s", 20): 128_968,
    ("lstm-s", 20): 129_940,
    ("gru-s", 20): 130_604,
    ("transformer-s", 20): 127_872,
}


def make(name, *sizes):
    needs({"slst": "slstm", "mlst": "mlstm", "xlst": "xlstm-large"}.get(name[:4]))
    return make_baseline(name, *sizes)


def test_every_baseline_has_a_count():
    assert [name for name, _ in COUNTS] == list(PRESETS)


@pytest.mark.parametrize(("name", "vocabulary"), COUNTS)
def test_a_baseline_has_the_number_of_parameters_of_the_paper(name, vocabulary):
    model = make(name, vocabulary)
    assert model.parameter_count() == COUNTS[name, vocabulary]
    for each in model.parameters():
        assert each.isfinite().all()


@pytest.mark.parametrize(("name", "vocabulary"), COUNTS)
def test_layers_are_as_many_as_asked_for_and_equally_large(name, vocabulary):
    one, two, three = (make(name, vocabulary, n_layers).parameter_count() for n_layers in (1, 2, 3))
    assert three - two == two - one > 0


@pytest.mark.parametrize("name", PRESETS)
def test_untrained_logits_are_finite_and_small(name):
    with torch.no_grad():
        logits, _ = make(name, 20)(torch.randint(20, (2, 10)))
    assert logits.shape == (2, 10, 20)
    assert logits.abs().max() < 5


def test_an_unknown_name_is_an_error_that_lists_the_names_the_nearest_first():
    with pytest.raises(ValueError, match=r"name 'mamba' is unknown; there are mamba-[sm], mamba-[sm], ") as error:
        make_baseline("mamba", 20)
    assert all(name in str(error.value) for name in PRESETS)


@pytest.mark.parametrize("sizes", [(0, 2), (20, 0), (2.5, 2), ("20", 2)])
@pytest.mark.parametrize("name", ["gru-s", "mamba-s"])
def test_a_size_that_is_no_size_is_named(name, sizes):
    with pytest.raises(ValueError, match=r"(vocabulary|n_layers) must be an integer"):
        make_baseline(name, *sizes)


@pytest.mark.parametrize(
    ("name", "package"),
    [("mamba-s", "transformers"), ("slstm-s", "xlstm"), ("mlstm-s", "xlstm"), ("xlstm-l-s", "xlstm")],
)
def test_a_missing_package_is_an_error_that_says_how_to_install_it(monkeypatch, name, package):
    for module in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}.*pip install 'latchwork\[baselines\]'"):
        make_baseline(name, 20)
