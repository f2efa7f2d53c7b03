import pytest

from latchwork.tasks import CycleNavigation, Cyclic, Parity, WordProblem


def test_parity_counts_ones():
    assert Parity().oracle([1, 0, 1, 1]) == [1, 1, 0, 1]


def test_cyclic_adds():
    assert Cyclic(5).oracle([3, 4, 0, 3]) == [3, 2, 2, 0]


def test_a_navigator_stays_or_goes_forward_or_back():
    assert CycleNavigation().oracle([2, 2, 0, 1, 1, 1]) == [4, 3, 3, 4, 0, 1]


@pytest.mark.parametrize(("group", "order"), [("S3", 6), ("A4", 12), ("S4", 24), ("A5", 60), ("S5", 120)])
def test_a_group_has_its_elements_and_the_identity_first(group, order):
    task = WordProblem(group)
    assert task.vocabulary == len(task.elements) == order
    assert task.elements[0] == tuple(range(int(group[1])))
    assert (task.successor[0] == range(order)).all()
    assert all(len(set(row)) == order for row in task.successor.tolist())


def test_what_is_read_first_acts_first():
    task = WordProblem("S3")
    swap, rotation = task.elements.index((1, 0, 2)), task.elements.index((1, 2, 0))
    assert task.elements[task.oracle([swap, rotation])[1]] == (2, 1, 0)  # 0 goes to 1 and on to 2
    assert task.elements[task.oracle([rotation, swap])[1]] == (0, 2, 1)


def test_bad_input_names_its_argument():
    with pytest.raises(ValueError, match="m must be at least 2; got 1"):
        Cyclic(1)
    for group in ("S2", "B3", "S", "S33"):
        with pytest.raises(ValueError, match=f"group must be .*; got '{group}'"):
            WordProblem(group)
