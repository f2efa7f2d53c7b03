import pytest

from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.experiments.experiment import by_name, find
from latchwork.experiments.paper import CHECK
from latchwork.tasks import make_task


def test_every_row_of_the_papers_tables_is_here():
    names = list(EXPERIMENTS)
    assert sum(name.startswith("latching-") for name in names) == 8 * 6 + 4 * 3  # and LSTM, GRU, Transformer on four
    assert sum(name.startswith("sequences-") for name in names) == 5 * 5 * 3 - 5 + 2 * 3  # no balanced sequences of 16
    assert sum(name.startswith("induction_heads-") for name in names) == 2 * (19 + 3)
    assert sum(name.startswith("ablation/") for name in names) == 2 * 2 * 2 * 2 * 3 + 4 * 4


@pytest.mark.parametrize("name", sorted({each.task for each in EXPERIMENTS.values()}))
def test_a_tasks_name_makes_it(name):
    assert make_task(name).name == name


def test_minmax_has_the_papers_number_of_parameters():
    counts = {
        name: EXPERIMENTS[name].make_model(make_task(EXPERIMENTS[name].task).vocabulary).parameter_count()
        for name in [
            "latching-4/minmax-s",
            "latching-512/minmax-s",
            "induction_heads-16/minmax-m",
            "ablation/induction_heads-16/40-no_gate-gated-small_init",
        ]
    }
    thousands = [round(count / 1000) for count in counts.values()]
    assert thousands == [129, 358, 165, 89]  # the paper: 130, 358, 165, 89


def test_published_numbers_stand_where_the_paper_has_them():
    assert EXPERIMENTS["latching-64/mamba-s_bs8"].published == (99.9, 0.0)
    assert EXPERIMENTS["latching-4/slstm-s"].published == CHECK
    assert EXPERIMENTS["sequences-3-published/mlstm-s"].published == (47.1, 0.2)
    assert EXPERIMENTS["sequences-3-defined/mlstm-s"].published is None
    assert EXPERIMENTS["induction_heads-30/mamba-m"].published is None
    assert EXPERIMENTS["ablation/induction_heads-30/90-gate-basic-asymmetric"].converged == (10, 10)
    assert EXPERIMENTS["ablation/induction_heads-30/90-gate-gated-asymmetric"].converged is None


def test_a_name_finds_one_a_part_finds_all_and_a_wrong_one_the_nearest():
    assert [each.name for each in find(EXPERIMENTS, "latching-4/minmax-s")] == ["latching-4/minmax-s"]
    assert len(find(EXPERIMENTS, "latching-4")) == 9
    assert len(find(EXPERIMENTS, "ablation/induction_heads-16")) == 24
    with pytest.raises(ValueError, match="no experiment 'latching-4/minmax'; did you mean latching-4/minmax-s"):
        find(EXPERIMENTS, "latching-4/minmax")


def test_a_name_used_twice_an_unknown_trainer_and_changes_to_a_baseline_are_errors():
    one = EXPERIMENTS["latching-4/minmax-s"]
    with pytest.raises(ValueError, match="two experiments are called 'latching-4/minmax-s'"):
        by_name([one, one])
    with pytest.raises(ValueError, match=r"trainer must be one of minmax, .*; got 'sgd'"):
        Experiment(name="x", table="x", task="latching(4)", model="minmax-s", trainer="sgd")
    with pytest.raises(ValueError, match="changes are for minmax-s, minmax-m; got them for 'gru-s'"):
        Experiment(name="x", table="x", task="latching(4)", model="gru-s", trainer="minmax", changes={"levels": 3})
