"""Thresholds and templates from labelled traces with known answers."""

import pytest
import torch

from latchwork.learning.thresholds import fit
from latchwork.temporal import parse


def data(traces=150, steps=40):
    """Speeds and distances, and for each trace whether it is safe: slow wherever it was near in the last 3 steps."""
    generator = torch.Generator().manual_seed(0)
    speed = torch.rand(traces, steps, generator=generator, dtype=torch.float64) * 10
    distance = torch.rand(traces, steps, generator=generator, dtype=torch.float64) * 20 + 1.9
    calm = torch.rand(traces, 1, generator=generator, dtype=torch.float64) * 0.6
    near = parse("once[0:2] distance < 4")({"distance": distance}) > 0
    speed = torch.where(near, speed * calm, speed)
    return {"speed": speed, "distance": distance}


def test_known_thresholds_are_found_again():
    found = data()
    labels = parse("always (once[0:2] distance < 4 implies speed <= 3)").satisfied(found)[:, 0]
    assert 0.2 < labels.double().mean() < 0.8
    fitted = fit(parse("always (once[0:2] distance < 4 implies speed <= $limit)"), found, labels, starts=3, steps=100)
    assert fitted.accuracy == 1.0
    assert abs(fitted.thresholds["limit"] - 3) < 0.1
    assert fitted.formula.parameters()[0].item() == fitted.thresholds["limit"]


def test_the_template_that_fits_is_chosen():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 30, generator=generator, dtype=torch.float64)
    labels = parse("eventually[0:29] historically[0:2] x >= 0.4").satisfied({"x": x})[:, 0]
    templates = [
        parse("always x <= $a"),
        parse("eventually x >= $a"),
        parse("eventually historically[0:2] x >= $a"),
        parse("always once[0:2] x >= $a"),
    ]
    fitted = fit(templates, {"x": x}, labels, starts=3, steps=100)
    assert fitted.formula is templates[2]
    assert fitted.accuracy > 0.97
    assert abs(fitted.thresholds["a"] - 0.4) < 0.1


def test_labels_that_do_not_fit_are_named():
    formula, found = parse("always x <= $a"), {"x": torch.randn(4, 5)}
    with pytest.raises(ValueError, match="labels must be booleans"):
        fit(formula, found, torch.ones(4))
    with pytest.raises(ValueError, match="both true and false"):
        fit(formula, found, torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least one formula"):
        fit([], found, torch.tensor([True, False, True, True]))
    with pytest.raises(ValueError, match="steps must be at least 1; got 0"):
        fit(formula, found, torch.tensor([True, False, True, True]), steps=0)


def test_a_formula_without_thresholds_is_judged_as_it_is():
    fitted = fit(parse("always x <= 1"), {"x": torch.tensor([[0.5, 0.9], [0.2, 3.0]])}, [True, False])
    assert (fitted.accuracy, fitted.thresholds) == (1.0, {})
