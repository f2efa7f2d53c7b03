"""How a network is trained until it is proved right, and what that comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from latchwork.automata.findings import Finding
from latchwork.models import MinMaxRNC_LM


@dataclass(frozen=True, kw_only=True)
class ProofProtocol:
    """How `train_until_proved` trains.

    rounds: of training and certifying, at most. steps: in a round, at most; a round ends early after `enough` batches
    in a row without a mistake. tokens: of a batch. length: of its words, at most; short words come as often as long
    ones, and more of them at once, since a counterexample is short. even: words are drawn evenly among "symbols", or
    among the "states" that may follow (`machines.words.even_moves`), for machines that few symbols move.
    learning_rate: of Adam in the first round; it falls to a tenth within a round. later_rate: in later rounds. clip:
    the largest gradient norm. tries: random words among which more mistakes are looked for after a counterexample.
    prune: symbols of the words, counterexamples among them, by which `prune_states` takes out units before certifying;
    what is proved is then the smaller network, and training goes on with the larger one. 0: certify it as it is.
    precision, tolerance, max_states: of `certify`.
    """

    rounds: int = 20
    steps: int = 2000
    enough: int = 60
    tokens: int = 2048
    length: int = 64
    even: Literal["symbols", "states"] = "symbols"
    learning_rate: float = 3e-3
    later_rate: float = 1e-3
    clip: float = 1.0
    tries: int = 10_000
    prune: int = 0
    precision: Literal["float32", "float64"] = "float32"
    tolerance: float = 0.0
    max_states: int = 2_000_000

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("rounds", "steps", "enough", "tokens", "length", "tries", "max_states"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.prune < 0:
            raise ValueError(f"prune must be at least 0; got {self.prune}")
        if self.even not in ("symbols", "states"):
            raise ValueError(f"even must be 'symbols' or 'states'; got {self.even!r}")
        for name in ("learning_rate", "later_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")


@dataclass
class Attempt:
    """What came of it: the model, the last result, and for each round its steps, loss, result and seconds."""

    model: MinMaxRNC_LM
    result: Finding
    rounds: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
