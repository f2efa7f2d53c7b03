"""One task of every kind, by name."""

from latchwork.tasks import Automaton, Split, Task, make_task

SPLITS = {
    "train": Split(sequences=6, shortest=3, longest=20),
    "validation": Split(sequences=4, shortest=500, longest=530),
    "evaluation": Split(sequences=2, shortest=1100, longest=1100),
}
PAPER = (
    "latching(4)",
    "latching(4, all)",
    "latching(60)",
    "sequences(2, defined)",
    "sequences(3, published)",
    "sequences(4, balanced)",
    "sequences(60, defined)",
    "induction_heads(16)",
    "induction_heads(300)",
)
AUTOMATA = (
    "parity",
    "cyclic(5)",
    "word_problem(S3)",
    "word_problem(A5)",
    "word_problem(S5)",
    "word_problem(D4)",
    "word_problem(S4, swaps)",
    "word_problem(S4, 3, 1)",
    "transformations(3)",
    "transformations(5, 4, 1)",
    "even_pairs",
    "cycle_navigation",
    "modular_arithmetic",
    *(f"tomita({number})" for number in range(1, 8)),
    "regular((ab)*)",
    "regular((a|b)*aab, abc)",
    "regular(a{1,2}b*)",
    "regular(([a-c]d){0}[^b-c]*)",
)
NAMES = (*PAPER, "fflm(0.8)", "fflm(0.0)", *AUTOMATA, "last_step(word_problem(S3, generators))")


def every_task() -> list[Task]:
    """Those of every name, and an automaton whose letters depend on its state: 0, 1 and 2, but no 2 after a 0."""
    uneven = Automaton([[0, 1, -1], [0, 1, 2], [0, 1, 2]], [3, -100, 1], start=1, name="uneven", splits=SPLITS)
    return [*(make_task(name) for name in NAMES), uneven]
