"""What a machine needs of a cascade: is it group-free, and if not, on how many points must its groups act?"""

from __future__ import annotations

from latchwork.automata.holonomy import Holonomy, Level, holonomy
from latchwork.automata.subsets import MAX_SETS, Permutation, subsets
from latchwork.machines.machine import Machine

__all__ = ["Holonomy", "Level", "degree", "holonomy", "is_group_free"]


def is_group_free(machine: Machine, max_sets: int = MAX_SETS) -> bool:
    """Whether the transition semigroup is aperiodic: no word permutes a set of states, but for leaving each alone.

    Only the states that are reached count. The machine is taken as it is: ask `machine.minimise()` about its function.
    The search goes over the sets of states that words lead to from all states, never over the semigroup; it raises
    DecompositionTooLarge beyond max_sets of them.
    >>> is_group_free(Machine.from_regex("(ab)*", "ab")), is_group_free(Machine.from_regex("(aa)*", "ab"))
    (True, False)
    """
    graph = subsets(machine.reachable(), max_sets)
    return not any(graph.generators(component) for component in graph.components)


def degree(machine: Machine, max_sets: int = MAX_SETS) -> int:
    """The degree that a cascade must have: 1 if the machine is group-free; else the points its simple groups act on.

    That is the largest, over the simple factors of the groups in the transition semigroup, of the fewest points on
    which the factor can act faithfully: p for the cyclic group of prime order p, 5 for A5. Only reached states count,
    and the machine is taken as it is, as by `is_group_free`.
    >>> turn, swap = [1, 2, 3, 0], [1, 0, 2, 3]  # all permutations of 4 points: factors 2, 3, 2, 2
    >>> transitions = [list(pair) for pair in zip(turn, swap)]
    >>> degree(Machine.from_table(transitions, transitions))
    3
    """
    graph = subsets(machine.reachable(), max_sets)
    groups: set[tuple[int, frozenset[Permutation]]] = set()
    for component in graph.components:
        if generators := graph.generators(component):
            groups.add((graph.sets[component[0]].bit_count(), frozenset(generators)))
    if not groups:
        return 1
    from latchwork.automata.groups import permutation_group, simple_factors

    factors = (simple_factors(permutation_group(generators, points)) for points, generators in groups)
    return max(factor.points for each in factors for factor in each)
