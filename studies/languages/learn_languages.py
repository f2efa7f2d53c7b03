"""Learn languages of MLRegTest from labelled words, MinMax beside other networks: python learn_languages.py FOLDER

FOLDER holds the benchmark's automata, *.att. One language of every class and alphabet is drawn. A run is one language,
one network, one seed: 10,000 words of 20 to 29 letters, half of them in the language, the label at the last letter; as
many seconds of one thread's processor time and as many parameters for each network. The learning rate of each network
is chosen first, on languages that are not among those drawn. Records: results/languages/learn, one file a run; what has
a record is not run again. Seeds come one after the other, so that a study that is stopped is a smaller study.
`learn_report.py` writes the tables and the picture from the records.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy
import torch
from compile_languages import class_of, load, names
from labelled_words import Words, adversarial_set, even_words, key, random_set
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM
from latchwork.automata import Counterexample, Unknown, certify
from latchwork.automata.prune import prune_states
from latchwork.baselines.registry import ModelConfig, make_model, parameter_count
from latchwork.experiments.jobs import Record, run_job
from latchwork.learning.networks import one_hot_start
from latchwork.machines import Machine
from latchwork.seeds import generator
from latchwork.tasks import IGNORE

RESULTS = Path(__file__).parents[2] / "results" / "languages" / "learn"
PARAMETERS, BATCH, CLIP = 15_000, 32, 1.0
RATES = (3e-3, 1e-2)
CHOSEN_ON = (("64", "LT"),)  # alphabet and class of the language that rates are tried on
TRAIN, TEST = 10_000, 500  # words
SHORT, LONG = range(20, 30), range(31, 51)  # letters
LONGER = {1_000: 40, 100_000: 2}  # letters, and words; longer ones only where no answer was wrong before
NOT_LONGER = ("transformer",)  # reads 1,000 letters at most: its time grows as their square
CHUNK = 4_096
MOST_STATES, MOST_SECONDS, TOLERANCE = 50_000, 5.0, 1e-4  # of a proof; the last in float64, tried after float32
TOO_LONG = f"more than {MOST_SECONDS:g} seconds"
LEVELS = 9
PRUNE_ON = 1_000  # words of training

# Three layers: each sees one letter back, and languages of factors of k letters need k - 1 layers. No dropout before a
# latch, and each latch starts around a level of its own. Units of places stand beside the latches, for groups. With
# levels, and latches alone, a network can be pruned and proved.
LATCHES: dict[str, Any] = {
    "n_layers": 3,
    "d_state": 24,
    "s_r_init": "spread",
    "ffn_dropout": 0.0,
    "output_gate": False,
    "tie_weights": False,
}
PLACES: dict[str, Any] = {"extra_units": ((4, 5),), "reset_form": "transformation"}
PROVABLE = "minmax, levels"
NETWORKS: dict[str, Callable[[int], ModelConfig]] = {
    "minmax": lambda width: ModelConfig(options={**LATCHES, **PLACES, "d_model": width}),
    PROVABLE: lambda width: ModelConfig(options={**LATCHES, "levels": LEVELS, "d_model": width}),
    "lstm": lambda width: ModelConfig(kind="lstm", options={"n_layers": 2, "width": width}),
    "gru": lambda width: ModelConfig(kind="gru", options={"n_layers": 2, "width": width}),
    "transformer": lambda width: ModelConfig(kind="transformer", options={"n_layers": 2, "width": 8 * width}),
    "mamba": lambda width: ModelConfig(kind="mamba", options={"n_layers": 2, "width": width}),
}


def draw_languages(folder: Path) -> tuple[list[str], list[str]]:
    """One language of every alphabet and class, and those that rates are chosen on, which are others."""
    by_kind = defaultdict(list)
    for name in names(folder):
        by_kind[name[:2], class_of(name)].append(name)
    drawn = {
        kind: generator(0, ".".join(kind)).permutation(sorted(found)).tolist()
        for kind, found in sorted(by_kind.items())
    }
    in_order = sorted(drawn, key=lambda kind: (kind[1], kind[0]))  # a part of the study has every alphabet
    return [drawn[kind][0] for kind in in_order], [drawn[kind][1] for kind in CHOSEN_ON if len(drawn.get(kind, [])) > 1]


def widest(network: str, letters: int) -> ModelConfig:
    """The widest network with at most so many parameters."""
    width = 1
    while parameter_count(NETWORKS[network](width + 1), letters) <= PARAMETERS:
        width += 1
    return NETWORKS[network](width)


@lru_cache(1)
def data_of(folder: Path, language: str, seed: int) -> tuple[Machine, Words, dict[str, Words]]:
    """The machine, the training words and the test sets; the same for all networks."""
    machine = load(folder, language).minimise()
    random = generator(seed, f"words of {language}")
    train = random_set(machine, random, SHORT, TRAIN)
    apart = frozenset(key(word[:length]) for word, length in zip(train.tokens, train.lengths, strict=True))
    tests = {
        "short random": random_set(machine, random, SHORT, TEST, apart),
        "short adversarial": adversarial_set(machine, random, SHORT, TEST),
        "long random": random_set(machine, random, LONG, TEST),
        "long adversarial": adversarial_set(machine, random, LONG, TEST),
    }
    return machine, train, tests


def train_network(network: nn.Module, words: Words, rate: float, seconds: float, seed: int) -> int:
    """Adam at a rate that falls linearly to 0 with the processor time that has passed. The number of steps."""
    tokens, lengths, labels = map(torch.from_numpy, words)
    random, order = generator(seed, "order"), torch.zeros(0, dtype=torch.int64)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    steps, start, rows = 0, time.process_time(), torch.arange(BATCH)
    while (passed := (time.process_time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - passed)
        if len(order) < BATCH:
            order = torch.from_numpy(random.permutation(len(tokens)))
        batch, order = order[:BATCH], order[BATCH:]
        loss = F.cross_entropy(network(tokens[batch])[0][rows, lengths[batch] - 1], labels[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        steps += 1
    network.eval()
    return steps


@torch.no_grad()
def right_answers(network: nn.Module, words: Words) -> Record:
    """How many words are told right, by the answer at their last letter."""
    tokens, lengths, labels = map(torch.from_numpy, words)
    right = 0
    for rows in torch.arange(len(tokens)).split(500):
        said = network(tokens[rows])[0][torch.arange(len(rows)), lengths[rows] - 1].argmax(-1)
        right += int((said == labels[rows]).sum())
    return {"right": right, "words": len(tokens)}


@torch.no_grad()
def long_answers(network: Any, machine: Machine, random: numpy.random.Generator, length: int, rows: int) -> Record:
    """The same of even words of one length, half of them in the language where there are both."""
    right = asked = 0
    for label in (0, 1):
        words = torch.from_numpy(even_words(machine, random, length, label, rows // 2))
        if not len(words):
            continue
        for logits, _ in network.stream(words, chunk_size=CHUNK):  # noqa: B007
            pass
        right, asked = right + int((logits[:, -1].argmax(-1) == label).sum()), asked + len(words)
    return {"right": right, "words": asked}


def is_right(found: Record) -> bool:
    return bool(found["right"] == found["words"])


def prove(network: MinMaxRNC_LM, machine: Machine, train: Words) -> Record:
    """Take out the units that the words of training do not need; is the network right on all words?

    It has not seen words of fewer letters than those of training. Where one of these is wrong, it is asked whether all
    words of at least that many are right.
    """
    start = time.process_time()
    tokens, lengths, labels = (torch.from_numpy(each[:PRUNE_ON]) for each in train)
    smaller = prune_states(network, tokens, last_answers(tokens, lengths, labels))
    record: Record = {"d_state": smaller.config.resolved_backbone.d_state}
    for name, asked, no_answer in (
        ("all words", machine, None),
        (f"words of at least {SHORT[0]} letters", from_length(machine, SHORT[0]), machine.n_symbols),
    ):
        for precision in ("float32", "float64"):
            result = certify_in_time(smaller, asked, no_answer, precision)
            if not isinstance(result, Unknown) or result.reason == TOO_LONG:
                break
        record |= {"result": type(result).__name__, "of": name, "precision": precision, "states": result.states}
        if isinstance(result, Unknown):
            record["reason"] = result.reason
        if not isinstance(result, Counterexample):
            break
        record["word"] = len(result.word)
    return {**record, "seconds": round(time.process_time() - start, 2)}


def certify_in_time(network: MinMaxRNC_LM, machine: Machine, no_answer: int | None, precision: Any) -> Any:
    """`certify`, for at most MOST_SECONDS of processor time."""
    start = time.process_time()

    def watch(states: int, waiting: int) -> None:
        if time.process_time() - start > MOST_SECONDS:
            raise TimeoutError

    try:
        limits: dict[str, Any] = {"max_states": MOST_STATES, "watch": watch, "precision": precision}
        tolerance = TOLERANCE if precision == "float64" else 0.0
        return certify(network, machine, no_answer=no_answer, tolerance=tolerance, **limits)
    except TimeoutError:
        return Unknown(TOO_LONG, 0, MOST_SECONDS)


def last_answers(tokens: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """Targets (B, T) that ask at the last letter alone."""
    targets = torch.full_like(tokens, IGNORE)
    targets[torch.arange(len(tokens)), lengths - 1] = labels
    return targets


def from_length(machine: Machine, first: int) -> Machine:
    """The machine that gives its answers from the letter of this number on; before, the output n_symbols."""
    states, letters = machine.transitions.shape
    steps = numpy.arange(first)[:, None, None]  # letters read so far
    transitions = machine.transitions + states * numpy.minimum(steps + 1, first - 1)
    outputs = numpy.where(steps + 1 >= first, machine.outputs, letters)
    return Machine(transitions.reshape(-1, letters), outputs.reshape(-1, letters), machine.start)


def run(folder: Path, language: str, network: str, seed: int, config: Record) -> Record:
    """Train and test, and prove what was never wrong."""
    machine, train, tests = data_of(folder, language, seed)
    torch.manual_seed(seed)
    model = make_model(ModelConfig(**config["model"]), machine.n_symbols)
    one_hot_start(model)
    steps = train_network(model, train, config["rate"], config["seconds"], seed)
    found = {name: right_answers(model, words) for name, words in tests.items()}
    record: Record = {
        "states": machine.n_states,
        "parameters": sum(each.numel() for each in model.parameters()),
        "steps": steps,
        "train": right_answers(model, train),
        "tests": found,
        "longer": {},
    }
    wrong = not all(map(is_right, found.values()))
    for length, rows in LONGER.items():
        if length != min(LONGER) and (wrong or network in NOT_LONGER):
            break
        record["longer"][str(length)] = long_answers(
            model, machine, generator(seed, f"longer words of {language}"), length, rows
        )
        wrong = wrong or not is_right(record["longer"][str(length)])
    if network == PROVABLE and not wrong:
        record["proof"] = prove(model, machine, train)
    return record


def run_all(folder: Path, networks: Sequence[str], seeds: int, seconds: float, out: Path) -> None:
    """Choose rates, then every run that has no record yet."""
    drawn, others = draw_languages(folder)

    def job(where: str, language: str, network: str, seed: int, rate: float) -> Record | None:
        letters = load(folder, language).n_symbols
        config = {"language": language, "class": class_of(language), "letters": letters, "network": network}
        config |= {
            "seed": seed,
            "seconds": seconds,
            "rate": rate,
            "batch": BATCH,
            "model": widest(network, letters).resolved(),
        }
        path = out / where / language / f"{network.replace(', ', '-').replace(' ', '-')}-{seed}.json"
        record = run_job(path, config, lambda: run(folder, language, network, seed, config))
        if record is not None:
            told = {name: each["right"] / each["words"] for name, each in record["tests"].items() if each["words"]}
            print(language, network, seed, f"{rate:g}", record["steps"], told, record.get("proof", ""), flush=True)
        return record

    rates: dict[str, float] = {}
    for network in networks:
        if not others:
            rates[network] = RATES[0]
            continue
        scores = {}
        for rate in RATES:
            found = [job(f"rate-{rate:g}", language, network, 0, rate) for language in others]
            scores[rate] = mean(each["right"] / each["words"] for one in found if one for each in one["tests"].values())
        rates[network] = max(scores, key=scores.__getitem__)
    for seed in range(seeds):
        for language in drawn:
            for network in networks:
                job("drawn", language, network, seed, rates[network])


def main() -> None:
    """Every run that has no record yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the automata, *.att")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of processor time, for each training")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not any(options.folder.glob("*.att")):
        parser.error(f"{options.folder} holds no *.att")
    torch.set_num_threads(1)
    run_all(options.folder, options.networks, options.seeds, options.seconds, options.out)


if __name__ == "__main__":
    main()
