"""`learn`: labelled traces, or a teacher, to a machine and a network that is proved to be it."""

import numpy
import pytest
import torch

from latchwork.automata import Machine, Proof
from latchwork.learning import Learned, learn
from latchwork.tasks import make_task

ALARM = Machine.from_table([[0, 1], [0, 2], [2, 2]], [[0, 0], [0, 1], [1, 1]])  # two failures in a row, and for ever
SYMBOLS = ("ok", "fail")


def traces(machine, count, *, per_step, noise=0.0, longest=15, seed=0):
    random = numpy.random.default_rng(seed)
    words, labels = [], []
    for _ in range(count):
        word = random.integers(0, machine.n_symbols, random.integers(1, longest + 1))
        said = machine.run([word])[0]
        said = numpy.where(random.random(len(said)) < noise, 1 - said, said)
        words.append([SYMBOLS[each] for each in word])
        labels.append([bool(each) for each in said] if per_step else bool(said[-1]))
    return words, labels


@pytest.mark.parametrize("per_step", [True, False])
def test_clean_traces_give_the_machine_and_a_proof(per_step):
    found = learn(*traces(ALARM, 300, per_step=per_step), alphabet=SYMBOLS, method="merging")
    assert found.machine.equivalent(ALARM) is None
    assert isinstance(found.certificate, Proof)
    assert found.held_out.traces_right == found.held_out.traces == 60
    assert found.interval[0] > 0.9
    assert found.contradicted == ()


def test_predict_gives_the_labels_by_name_and_the_network_gives_the_same():
    found = learn(*traces(ALARM, 300, per_step=True), alphabet=SYMBOLS, method="merging")
    word = ["ok", "fail", "ok", "fail", "fail", "ok"]
    assert found.predict(word) == [False, False, False, False, True, True]
    said = found.model(torch.from_numpy(found.names.encode(word))[None])[0].argmax(-1)[0]
    assert [found.names.output(each) for each in said.tolist()] == found.predict(word)
    assert found.predict([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("per_step", [True, False])
def test_wrong_labels_are_contradicted_and_not_learnt(noise, per_step):
    words, labels = traces(ALARM, 400, per_step=per_step, noise=noise)
    found = learn(words, labels, alphabet=SYMBOLS, method="merging", seconds=30)
    assert found.machine.equivalent(ALARM) is None
    right = [ALARM.run([[SYMBOLS.index(each) for each in word]])[0] for word in words]
    wrong = [
        k
        for k, (said, label) in enumerate(zip(right, labels, strict=True))
        if (said.tolist() if per_step else said[-1]) != label
    ]
    assert list(found.contradicted) == wrong
    assert 0 < found.wrong_labels < 2 * noise
    assert "contradicts" in str(found)


@pytest.mark.slow
def test_a_trained_network_and_merging_agree_and_the_network_is_proved():
    found = learn(*traces(ALARM, 300, per_step=True), alphabet=SYMBOLS, seconds=60)
    assert found.machine.equivalent(ALARM) is None
    assert found.differences == ()
    assert any("trained network is proved" in each["note"] for each in found.log)


@pytest.mark.slow
def test_a_network_alone_learns_it_too():
    found = learn(*traces(ALARM, 300, per_step=True), alphabet=SYMBOLS, seconds=60, method="network")
    assert found.machine.equivalent(ALARM) is None
    assert found.network is not None


def test_where_the_traces_say_nothing_the_answer_is_none():
    found = learn([["a"], ["a", "a"], ["b"], ["a", "b"]], [0, 0, 1, 1], alphabet="abc", method="merging")
    assert found.predict(["c"]) is None
    assert found.predict(["a", "c", "a"]) is None
    assert ("c",) in found.undecided
    assert "answers None" in str(found)
    assert isinstance(found.certificate, Proof)


def test_a_step_without_a_label_does_not_count():
    words, labels = traces(ALARM, 300, per_step=True)
    some = [[label if k % 2 else None for k, label in enumerate(each)] for each in labels]
    found = learn(words, some, alphabet=SYMBOLS, method="merging")
    assert found.machine.equivalent(ALARM) is None


def test_symbols_and_labels_may_be_any_hashable_values():
    found = learn([[(1, "a"), 2.5]] * 12 + [[2.5]] * 12, [("low", 1)] * 12 + [("high", 2)] * 12, method="merging")
    assert found.predict([(1, "a"), 2.5]) == ("low", 1)
    assert found.predict([2.5]) == ("high", 2)


def test_what_is_saved_is_loaded_and_certified_again(tmp_path):
    found = learn(*traces(ALARM, 100, per_step=False), alphabet=SYMBOLS, method="merging")
    found.save(tmp_path)
    loaded = Learned.load(tmp_path)
    assert str(loaded) == str(found)
    assert loaded.machine == found.machine
    assert loaded.names == found.names
    assert isinstance(loaded.certificate, Proof)
    assert {each.name for each in tmp_path.iterdir()} == {
        "config.json",
        "model.safetensors",
        "machine.json",
        "learned.json",
        "index.html",
    }


def test_names_are_escaped_on_the_page(tmp_path):
    found = learn([["<script>"], ["b"]] * 10, ["<i>", "&"] * 10, method="merging")
    found.save(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert found._repr_html_() in page


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ('{"symbols": []}', "must hold"),
        ("[]", "must hold a JSON object"),
        ("{", "must be JSON"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, damage, message):
    learn([["a"], ["b"]] * 10, [0, 1] * 10, method="merging").save(tmp_path)
    (tmp_path / "learned.json").write_text(damage)
    with pytest.raises(ValueError, match=message):
        Learned.load(tmp_path)


def test_names_that_json_has_no_word_for_cannot_be_saved(tmp_path):
    found = learn([[frozenset("a")], [frozenset("b")]] * 10, [0, 1] * 10, method="merging")
    with pytest.raises(ValueError, match="to be saved"):
        found.save(tmp_path)


def test_a_teacher_is_asked_instead():
    found = learn(teacher=lambda word: "bad" if word.count("x") % 3 == 2 else "good", alphabet=["x", "y"])
    assert found.n_states == 3
    assert found.predict(["x", "y", "x"]) == "bad"
    assert isinstance(found.certificate, Proof)
    assert found.accuracy == 1


@pytest.mark.parametrize("k", range(1, 8))
def test_questions_and_merging_come_to_the_same_machine(k):
    machine = Machine.from_task(make_task(f"tomita({k})")).minimise()
    asked = learn(teacher=lambda word: int(machine.run([word])[0, -1]), alphabet=[0, 1])
    random = numpy.random.default_rng(k)
    words = [random.integers(0, 2, random.integers(1, 15)).tolist() for _ in range(600)]
    merged = learn(words, [int(machine.run([word])[0, -1]) for word in words], method="merging")
    assert asked.names == merged.names
    assert asked.machine.equivalent(merged.machine) is None
    assert asked.machine.equivalent(machine) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "both be given"),
        ({"sequences": [], "labels": []}, "at least one"),
        ({"sequences": ["a"], "labels": [1, 2]}, "as many as"),
        ({"sequences": ["a", ""], "labels": [1, 2]}, r"sequences\[1\]"),
        ({"sequences": ["ab"], "labels": [[1]]}, r"labels\[0\] must be 2"),
        ({"sequences": ["a", "b"], "labels": [[1], 2]}, r"labels\[1\]"),
        ({"sequences": ["a"], "labels": [None]}, "at least one label"),
        ({"sequences": ["ac"], "labels": [1], "alphabet": "ab"}, "'c'"),
        ({"sequences": ["a"], "labels": [3], "outputs": [1, 2]}, "outputs"),
        ({"sequences": [[float("nan")]], "labels": [1]}, "NaN"),
        ({"sequences": ["a"], "labels": [1], "seconds": 0}, "seconds"),
        ({"sequences": ["a"], "labels": [1], "method": "magic"}, "method"),
        ({"sequences": ["a"], "labels": [1], "seed": -1}, "seed"),
        ({"teacher": len}, "alphabet"),
    ],
)
def test_bad_input_names_its_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        learn(**arguments)


def test_a_symbol_that_was_never_seen_is_an_error():
    with pytest.raises(ValueError, match="'z'"):
        learn(["a", "b"] * 10, [0, 1] * 10, method="merging").predict("az")
