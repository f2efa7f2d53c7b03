import pytest

from latchwork.tasks import IGNORE, CycleNavigation, Cyclic, LastStep, Parity, Transformations, WordProblem


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
    for group in ("S2", "B3", "S", "S33", "A7", "D2", "Z1", "A4x", "xZ5", ""):
        with pytest.raises(ValueError, match=f"group must be .*; got '{group}'"):
            WordProblem(group)
    for group, letters in (("A5", "swaps"), ("S3xZ2", "generators"), ("S5", "some")):
        with pytest.raises(ValueError, match=f"letters must be .*; got '{letters}' for '{group}'"):
            WordProblem(group, letters)
    for points, letters in ((1, 0), (5, 0), (1, 2), (257, 1)):
        with pytest.raises(ValueError, match=f"points must be .*; got {points}"):
            Transformations(points, letters)
    with pytest.raises(ValueError, match="letters must be at least 0; got -1"):
        Transformations(3, -1)


@pytest.mark.parametrize(("group", "order"), [("D4", 8), ("Z7", 7), ("A4xZ5", 60), ("Z3xZ4xZ5", 60), ("S3xS3", 36)])
def test_symmetries_rotations_and_products_are_groups(group, order):
    task = WordProblem(group)
    assert len(set(task.elements)) == task.vocabulary == order
    assert task.elements[0] == tuple(range(len(task.elements[0])))
    assert all(len(set(line)) == order for line in (*task.successor.tolist(), *task.successor.T.tolist()))


def test_generators_and_swaps_reach_the_whole_group():
    for group, letters, number in (
        ("S5", "generators", 2), ("S5", "swaps", 10), ("S3", "swaps", 3), ("S5", "2", 2), ("S5", "32", 32),
        ("A5", "12", 12), ("A4xZ5", "3", 3),
    ):  # fmt: skip
        task = WordProblem(group, letters)
        assert task.successor.shape == (len(task.elements), number)
        reached = {0}
        while len(more := reached | set(task.successor[sorted(reached)].flatten().tolist())) > len(reached):
            reached = more
        assert len(reached) == len(task.elements)


def test_random_generators_are_different_elements_and_come_from_their_seed():
    one, same, other = (WordProblem("S5", "8", seed).letters for seed in (1, 1, 2))
    assert len(set(one)) == 8
    assert one == same
    assert one != other


def test_a_number_of_elements_that_cannot_generate_the_group_is_refused():
    for letters in ("0", "7"):
        with pytest.raises(ValueError, match=f"letters must be 1 to 6, the elements of S3; got {letters}"):
            WordProblem("S3", letters)
    with pytest.raises(ValueError, match=r"letters must be .* generate S3; 1000 draws of 1 did not"):
        WordProblem("S3", "1")


def test_every_map_of_three_points_is_a_letter_and_the_answer_is_where_zero_goes():
    task = Transformations(3)
    assert task.successor.shape == (3, 27)
    rotation, to_two = 1 * 9 + 2 * 3 + 0, 2 * 9 + 2 * 3 + 2
    assert task.oracle([rotation, rotation, rotation, to_two, rotation]) == [1, 2, 0, 2, 0]


def test_random_maps_come_from_their_seed():
    one, same, other = (Transformations(6, 3, seed).successor for seed in (1, 1, 2))
    assert one.shape == (6, 3)
    assert (one == same).all()
    assert (one != other).any()


def test_the_last_step_is_asked_for_alone_and_is_that_of_each_sequence():
    task = LastStep(Parity())
    targets = task.sample("train", 0, rows=50).targets
    asked = targets != IGNORE
    assert (asked.sum(1) == 1).all()
    assert len(set(asked.long().argmax(1).tolist())) > 10
    whole = Parity().sample("train", 0, rows=50).targets
    assert (whole[asked] == targets[asked]).all()
