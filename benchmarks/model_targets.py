"""The figures that the models are to reach; 1 thread and float32 where nothing else is said."""

from collections.abc import Callable

from model_characters import LSTM
from model_contenders import COMPILED, OURS, PEER
from model_decode import INT8
from model_presets import LARGE, MEDIUM
from targets import Results, Target, pick

Value = Callable[[Results], float | None]


def faster(section: str, contender: str = OURS, **match: object) -> Value:
    """How many times as fast as minmaxrnc."""
    match |= {"threads": 1, "contender": contender}
    return lambda results: pick(results, section, "faster", **match)


def best_pieces(field: str) -> Value:
    """A field of our row of the evaluation that is the fastest; `faster` there is against their fastest."""

    def value(results: Results) -> float | None:
        rows = [row for row in results.get("evaluation", []) if row["contender"] == OURS and field in row]
        return min(rows, key=lambda row: row["seconds"])[field] if rows else None

    return value


def of_products(case: str) -> Value:
    """Our speed in a preset, in percent of that of its matrix products alone."""

    def value(results: Results) -> float | None:
        rows = [row for row in results.get("presets", []) if row["case"] == case and row["threads"] == 1]
        ours = [row["seconds"] for row in rows if row["contender"] == OURS]
        alone = [row["seconds"] for row in rows if row["contender"].startswith("torch.mm")]
        return 100 * min(alone) / ours[0] if ours and alone else None

    return value


def compiled_step(results: Results) -> float | None:
    """The time of a training step by torch.compile, in parts of the plain one."""
    found = [pick(results, "step", "seconds", case="V = 20", threads=1, contender=name) for name in (COMPILED, OURS)]
    return found[0] / found[1] if found[0] and found[1] else None


STEP, DECODE = "training step of the small preset", "decoding with the large preset"
PASS, AS_FAST = "accuracy on 2^20 tokens", f"times as fast as {PEER}"
TARGETS = (
    Target(f"{STEP}, V = 20, {AS_FAST}", faster("step", case="V = 20"), 5),
    Target(f"{STEP}, V = 20, {AS_FAST}: the goal", faster("step", case="V = 20"), 6.5),
    Target(f"{STEP}, V = 20, by torch.compile, parts of the plain step's time", compiled_step, 1.05, at_least=False),
    Target(f"{STEP}, V = 2560, {AS_FAST}", faster("step", case="V = 2560"), 5),
    Target(f"forward+backward of the large preset, {AS_FAST}", faster("presets", case=LARGE), 2.3),
    Target("forward+backward of the large preset, % of the speed of its products", of_products(LARGE), 95),
    Target("forward+backward of the medium preset, % of the speed of its products", of_products(MEDIUM), 95),
    Target(
        "layers of the character models, parts of the time of nn.LSTM of 2 layers and as many parameters",
        lambda results: pick(results, "characters", "of ours", contender=LSTM.format(2)),
        1,
        at_least=False,
    ),
    Target(f"{PASS}, {AS_FAST}", best_pieces("faster"), 5),
    Target(f"{PASS}, extra memory, MB", best_pieces("extra MB"), 200, at_least=False),
    Target(f"{DECODE}, {AS_FAST}", faster("decode"), 1.2),
    Target(f"{DECODE}, int8, {AS_FAST}", faster("decode", INT8), 1.9),
    Target(
        f"{STEP}, V = 20, peak memory, parts of {PEER}'s",
        lambda results: pick(results, "memory", "part", contender=OURS),
        0.333,
        at_least=False,
    ),
)
