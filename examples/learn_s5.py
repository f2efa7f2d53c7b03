"""Learn to multiply the 120 permutations of S5, and prove it for words of any length: python examples/learn_s5.py"""

import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.automata import Machine, certify
from latchwork.automata.prune import freeze_moves, keep_followers
from latchwork.tasks import WordProblem
from latchwork.training import LengthCurriculum, learn_by_length
from latchwork.training.display import Display


def learn(group, degree, curriculum=LengthCurriculum(), seed=0):  # noqa: B008 - frozen
    """What the training came to, the units that follow the group alone, and what `certify` found of them."""
    torch.manual_seed(seed)
    task = WordProblem(group)
    model = MinMaxRNC_LM(task.vocabulary, MinMaxRNCLMConfig.state_tracking(degree))
    with Display(task.name) as display:
        learning = learn_by_length(model, task, curriculum, watch=display.watch)
    smaller = keep_followers(model.eval(), *task.sample("validation", 0, rows=64, length=256))
    if smaller is None:
        raise SystemExit(f"{learning.stopped} after {learning.steps} steps: no unit follows it; try another seed")
    freeze_moves(smaller)
    learn_by_length(smaller, task, LengthCurriculum(shortest=32, longest=32, right=60, steps=1000))
    return learning, smaller, certify(smaller.eval(), Machine.from_task(task))


if __name__ == "__main__":
    torch.set_num_threads(1)
    learning, smaller, found = learn("S5", degree=5)
    units = smaller.config.backbone.d_state // smaller.config.backbone.degree
    print(f"{learning.stopped} after {learning.steps} steps and {learning.seconds:.0f} s; {units} units left; {found}")
