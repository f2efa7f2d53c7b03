import re

import pytest
from task_cases import NAMES

from latchwork.tasks import TASKS, make_task


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_made_again_by_its_name(name):
    assert make_task(name).name == name


def test_every_kind_of_task_is_tested():
    assert {name.split("(")[0] for name in NAMES} == set(TASKS)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sequences(3)", "sequences(3, defined)"),
        (" latching( 4 ,all ) ", "latching(4, all)"),
        ("latching(4, others)", "latching(4)"),
        ("parity()", "parity"),
        ("fflm(0)", "fflm(0.0)"),
        ("regular(01)", "regular(01)"),
        ("regular(a{1,2}, ab)", "regular(a{1,2}, ab)"),
        ("regular((ab)*, ab)", "regular((ab)*)"),
    ],
)
def test_other_ways_to_write_it(text, name):
    assert make_task(text).name == name


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("latchin(4)", "no task 'latchin(4)'; did you mean latching"),
        ("word_problems(S5)", "no task 'word_problems(S5)'; did you mean word_problem"),
        ("xyz", f"no task 'xyz'; did you mean {', '.join(TASKS)}?"),
        ("latching(4", "no task 'latching(4'"),
        ("", "no task ''"),
        ("latching", "latching takes (n, distractors=others); got 'latching'"),
        ("parity(2)", "parity takes (); got 'parity(2)'"),
        ("latching(4, all, 3)", "latching takes (n, distractors=others); got 'latching(4, all, 3)'"),
        ("latching(four)", "n of latching must be int; got 'four'"),
        ("fflm(often)", "p of fflm must be float; got 'often'"),
        ("latching(0)", "n must be at least 1; got 0"),
        ("tomita(8)", "number must be 1 to 7; got 8"),
    ],
)
def test_what_cannot_be_made_is_explained(text, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        make_task(text)
