"""The tasks of PD-SSM's tables: what is measured, and the table that is written from records."""

import json

import pytest
from pd_ssm import MARKS, PAGE, PUBLISHED, RECORDS, TASKS, last_answers, main, report, run
from state_tracking_jobs import Limits

from latchwork.automata import compile
from latchwork.machines import Machine
from latchwork.tasks import CycleNavigation, Parity


def made_up(name, seed, right, result):
    """A record; result: of its proof, or None where it was not learnt."""
    test = {"right": right, "words": 2048}
    config = {"limits": {"seconds": 60.0}}
    record = {"name": name, "seed": seed, "config": config, "training": {"seconds": 7.0, "length": 19}, "trained": test}
    if result is None:
        return record
    rounds = [{"result": result, **({"word": [1, 0]} if result == "counterexample" else {})}]
    return {**record, "proof": {"result": result, "units": 2, "rounds": rounds}, "pruned": {**test, "right": 2048}}


def test_a_network_compiled_from_the_machine_has_every_last_answer_right():
    model = compile(Machine.from_task(Parity()), "transformation").eval()
    assert last_answers(model, Parity(), seed=0)["right"] == 2048


def test_a_network_of_another_machine_is_right_by_chance_alone():
    model = compile(Machine.from_task(CycleNavigation()), "transformation").eval()
    other = CycleNavigation()
    other.output = (other.output + (other.output > 0)) % 5
    assert 0.1 < last_answers(model, other, seed=0)["right"] / 2048 < 0.6


def test_the_table_has_ours_beside_the_published_and_says_what_was_not_proved(tmp_path):
    lines = [made_up("parity", 1, 2028, "proof"), made_up("parity", 0, 1024, "counterexample")]
    (tmp_path / "parity.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (tmp_path / "S5-32.jsonl").write_text(json.dumps(made_up("S5, 32", 0, 512, None)) + "\n")
    text = report(tmp_path, {"about": "About.", "source": "Source", "models": {"Other": {"parity": 99.9}}})
    assert "| parity | 1 of 2 | 100.0 | 74.5 (50.0 to 99.0) | 7 of 60 | 2 | 99.9 |" in text
    assert "| S5, 32 | 0 of 1 | – | 25.0 | 7 of 60 | – | – |" in text
    assert "| even pairs | not run |" in text
    assert "- parity, seed 0: counterexample: wrong on [1, 0]; 7 s, 50.0% as trained." in text
    assert "- S5, 32, seed 0: not learnt, at length 19; 7 s, 25.0% as trained." in text


def test_the_page_has_the_table_of_the_records():
    figures = PAGE.read_text().split(MARKS[0])[1].split(MARKS[1])[0].strip()
    assert figures == report(RECORDS, json.loads(PUBLISHED.read_text()))


def test_an_unknown_task_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["S7, 2", "--out", str(tmp_path)])
    assert "no task 'S7, 2'; there are S5, 32;" in capsys.readouterr().err


@pytest.mark.slow
def test_parity_is_learnt_from_last_answers_and_proved():
    record = run("parity", 0, Limits(seconds=60))
    assert record["proof"]["result"] == "proof"
    assert record["pruned"]["right"] == 2048
    assert record["config"]["task"] == TASKS["parity"].task
