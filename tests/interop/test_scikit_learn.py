"""LatchClassifier is an estimator of scikit-learn: for numbers and symbols, in a pipeline, a copy and a search."""

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latchwork.interop.scikit_learn import LatchClassifier


def small(**options):
    return LatchClassifier(
        **{"hidden_size": 8, "num_layers": 1, "epochs": 40, "learning_rate": 0.02, "random_state": 0, **options}
    )


def series(rows=40, features=2):
    """Of several lengths; the class says whether the first feature was ever above 3."""
    random = np.random.default_rng(0)
    X = [random.uniform(-1, 1, (random.integers(3, 12), features)) for _ in range(rows)]
    y = np.array(["calm", "peak"])[np.arange(rows) % 2]
    for sequence, label in zip(X, y, strict=True):
        if label == "peak":
            sequence[random.integers(len(sequence)), 0] = 4.0
    return X, y


def test_sequences_of_several_lengths_are_learnt():
    X, y = series()
    model = small().fit(X, y)
    assert model.score(X, y) == 1
    assert model.classes_.tolist() == ["calm", "peak"]
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (model.classes_[probabilities.argmax(1)] == model.predict(X)).all()
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_a_sequence_is_judged_alone():
    X, y = series()
    model = small(epochs=2).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[7], model.predict_proba([X[7]])[0], atol=1e-5)


@pytest.mark.parametrize("symbols", [None, True])
def test_symbols_are_learnt_and_a_new_symbol_is_unknown(symbols):
    words = ["abab", "bbbb", "aab", "b", "ba", "bb"] * 3
    X = words if symbols is None else [[ord(letter) for letter in word] for word in words]
    y = ["a" in word for word in words]
    model = small(symbols=symbols, epochs=40).fit(X, y)
    assert model.score(X, y) == 1
    assert len(model.predict([["?", "?"]])) == 1


def test_one_seed_is_one_network_and_torch_keeps_its_own_generator():
    X, y = series()
    before = torch.random.get_rng_state()
    one, other, third = (small(epochs=2, random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1))
    assert (one == other).all()
    assert (one != third).any()
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_works_in_a_pipeline_a_search_and_cross_validation():
    random = np.random.default_rng(0)
    X, y = random.uniform(-1, 1, (30, 9)), np.arange(30) % 3
    X[:, 4] += 5 * y
    pipeline = make_pipeline(StandardScaler(), small())
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    assert pipeline.fit(X, y).score(X, y) > 0.6
    X, y = series()
    assert cross_val_score(small(epochs=2), X, y, cv=2).shape == (2,)
    search = GridSearchCV(small(epochs=1), {"hidden_size": np.arange(2, 4)}, cv=2).fit(X, y)
    assert search.best_params_["hidden_size"] in (2, 3)


def test_a_clone_is_new_and_a_pickle_is_the_same():
    X, y = series()
    model = small(epochs=2, periods=(5, 7)).fit(X, y)
    new = clone(model)
    assert new.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        new.predict(X)
    assert (pickle.loads(pickle.dumps(model)).predict_proba(X) == model.predict_proba(X)).all()


def test_progress_is_shown_if_asked_for(capsys):
    small(epochs=1, verbose=True).fit(*series())
    assert "training" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": "abc"}, "X must be a list or an array of sequences"),
        ({"X": []}, "X must hold at least one sequence"),
        ({"X": [[1.0], []], "y": [0, 1]}, r"X\[1\] must be a sequence of at least one step"),
        ({"X": [[1.0], [float("nan")]], "y": [0, 1]}, r"X\[1\] must hold finite numbers only"),
        ({"X": [[[1.0, 2.0]], [[1.0]]], "y": [0, 1]}, r"X\[1\] must be \(T, F\) with F = 2; got \(1, 1\)"),
        ({"X": [[1.0], [object()]], "y": [0, 1]}, r"X\[1\] must be numbers"),
        ({"y": [0] * 40}, r"y must hold at least 2 classes; got \[0\]"),
        ({"y": [0, 1]}, "X and y must have one row for each sequence; got 40 and 2"),
        ({"y": [[0, 1]] * 40}, "y must be one class for each sequence"),
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"learning_rate": -1}, "learning_rate must be positive"),
        ({"hidden_size": 0}, "hidden_size must be an integer of at least 1"),
    ],
)
def test_wrong_input_of_fit_is_named(change, message):
    X, y = series()
    with pytest.raises(ValueError, match=message):
        small(**{k: v for k, v in change.items() if k not in "Xy"}).fit(change.get("X", X), change.get("y", y))


def test_other_features_than_those_learnt_are_named():
    X, y = series()
    with pytest.raises(ValueError, match=r"X\[0\] must be \(T, F\) with F = 2; got \(3, 1\)"):
        small(epochs=1).fit(X, y).predict([[1.0, 2.0, 3.0]])
