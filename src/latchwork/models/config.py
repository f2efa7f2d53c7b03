"""What a model is, as written to disk beside its weights. Frozen, checked, and nothing derived."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

MOST_LAYERS, MOST_EXTRA_UNITS, MOST_LEVELS = 10_000, 64, 1 << 24  # float32 tells no more levels apart
MOST_WEIGHTS = 1 << 36  # of one matrix: 275 GB
MOST_TOKENS = 1 << 31

Norm = Literal["layernorm", "rmsnorm", "none"]
ConvType = Literal["basic", "gated"]
Config = TypeVar("Config", bound="MinMaxRNCConfig | MinMaxRNCLMConfig")


def _check(config: MinMaxRNCConfig | MinMaxRNCLMConfig) -> None:
    """Each field against its annotation: a choice, a number of the right kind and range, or None where allowed."""
    annotations = typing.get_type_hints(type(config))
    for field in fields(config):
        value = getattr(config, field.name)
        annotation = annotations[field.name]
        union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
        options = typing.get_args(annotation) if union else (annotation,)
        if value is None and type(None) in options:
            continue
        kind = next(each for each in options if each is not type(None))
        if typing.get_origin(kind) is Literal:
            choices = typing.get_args(kind)
            if value not in choices:
                raise ValueError(f"{field.name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
        elif kind is bool:
            if not isinstance(value, bool):
                raise TypeError(f"{field.name} must be True or False; got {value!r}")
        elif kind is int:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field.name} must be an integer of at least 1; got {value!r}")
        elif kind is float:
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"{field.name} must be a number; got {value!r}")
            if field.name.endswith("dropout") and not 0 <= value < 1:
                raise ValueError(f"{field.name} must be at least 0 and less than 1; got {value!r}")
            if abs(value) >= MOST_WEIGHTS:
                raise ValueError(f"{field.name} must be less than {MOST_WEIGHTS:,}; got {value!r:.80}")


def _read_units(units: object) -> tuple[tuple[int, int], ...]:
    """((number, degree), ...) out of what JSON makes of it: lists."""
    wrong = f"extra_units must be pairs (number, degree), at least (1, 2) each; got {units!r}"
    if not isinstance(units, (tuple, list)) or not all(isinstance(each, (tuple, list)) for each in units):
        raise ValueError(wrong)
    pairs = tuple(tuple(each) for each in units)
    for pair in pairs:
        if len(pair) != 2 or any(type(each) is not int for each in pair) or pair[0] < 1 or pair[1] < 2:
            raise ValueError(wrong)
    return pairs


def _from_dict(cls: type[Config], values: Mapping[str, Any]) -> Config:
    if not isinstance(values, Mapping):
        raise TypeError(f"what {cls.__name__} is made from must be a mapping; got {type(values).__name__}")
    known = [field.name for field in fields(cls)]
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{cls.__name__} has no field {key!r}{hint} It has {', '.join(known)}")
    return cls(**values)


@dataclass(frozen=True, kw_only=True)
class MinMaxRNCConfig:
    """The shape of a cascade. Names and defaults are the paper's. `degree`, `reset_form`, `extra_units`, `levels` and
    s_r_init "spread" go beyond it.

    d_model: width of the residual stream. d_state: state scalars of each layer. degree n: they form d_state / n units
    of n, each reset by an n x n matrix. reset_form: how the input gives that matrix, freely, or by a choice that
    moves whole levels (modules/cells). extra_units: more units beside these, (number, degree) each, as in d_state=40,
    extra_units=((16, 5),). levels: round r, s and x0 to that many levels, so that states live on a finite grid.
    prelayers_dropout: the feed-forward dropout of the first layer, ffn_dropout being that of all others.

    >>> MinMaxRNCConfig(d_model=90, n_layers=2, d_state=40, conv_type="bsaic")
    Traceback (most recent call last):
    ...
    ValueError: conv_type must be one of 'basic', 'gated'; got 'bsaic'
    """

    d_model: int
    n_layers: int
    d_state: int
    degree: int = 1
    reset_form: Literal["free", "selection", "transformation"] = "free"
    extra_units: tuple[tuple[int, int], ...] = ()
    levels: int | None = None
    norm: Norm = "layernorm"
    postlayers_norm: Norm = "layernorm"
    ffn_type: Literal["gated", "basic"] = "gated"
    ffn_proj_factor: float = 1.3
    ffn_act_fn: Literal["relu", "relu^2", "gelu", "swish", "sigmoid", "selu"] = "relu"
    ffn_dropout: float = 0.1
    ffn_init: Literal["scaled", "basic"] = "scaled"
    output_gate: bool = True
    train_init: bool = False
    neuron_dropout: float = 0.0
    s_r_init: Literal["small_init", "kaiming", "asymmetric", "spread"] = "small_init"
    conv_type: ConvType = "basic"
    conv_init_val: float = 0.0
    prelayers_dropout: float = 0.0
    use_postlayers_ffn: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        object.__setattr__(self, "extra_units", _read_units(self.extra_units))
        _check(self)
        if self.d_state % self.degree:
            raise ValueError(f"d_state must be a multiple of degree = {self.degree}; got {self.d_state}")
        degrees = [self.degree, *(degree for _, degree in self.extra_units)]
        if self.reset_form != "free" and max(degrees) == 1:
            raise ValueError(f"reset_form must be 'free' where all degrees are 1; got {self.reset_form!r}")
        if self.levels is not None and self.levels < 2:
            raise ValueError(f"levels must be at least 2, or None; got {self.levels}")
        if not self.ffn_proj_factor > 0:
            raise ValueError(f"ffn_proj_factor must be positive; got {self.ffn_proj_factor}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        """What no machine could hold is an error here, and not hours or a broken allocation later."""
        for name, value, most in (
            ("n_layers", self.n_layers, MOST_LAYERS),
            ("the number of extra_units", len(self.extra_units), MOST_EXTRA_UNITS),
            ("levels", self.levels or 0, MOST_LEVELS),
        ):
            if value > most:
                raise ValueError(f"{name} must be at most {most:,}; got {value:,}")
        rows = self.state_width + 2 * self.d_state * self.degree + 2 * sum(n * k * k for n, k in self.extra_units)
        columns = 2 * self.d_model  # of the convolution; the first product is exact, and too large for a float if huge
        ffn = self.ffn_proj_factor
        if self.d_model * (rows + columns) > MOST_WEIGHTS or self.d_model * columns * ffn > MOST_WEIGHTS:
            raise ValueError(
                f"d_model, d_state, degree, extra_units and ffn_proj_factor must make no matrix of more than "
                f"{MOST_WEIGHTS:,} weights; got {self!r:.300}"
            )

    @property
    def state_width(self) -> int:
        """State scalars of each layer, those of the extra units included."""
        return self.d_state + sum(number * degree for number, degree in self.extra_units)

    @classmethod
    def small(cls, **changes: Any) -> MinMaxRNCConfig:
        """The paper's S for its synthetic tasks: 90 wide, 2 layers, 40 state scalars."""
        return _from_dict(cls, {"d_model": 90, "n_layers": 2, "d_state": 40, **changes})

    @classmethod
    def medium(cls, **changes: Any) -> MinMaxRNCConfig:
        """512 wide, 8 layers, 512 state scalars, gated convolution: 42 million parameters with GPT-2's vocabulary."""
        return _from_dict(cls, {"d_model": 512, "n_layers": 8, "d_state": 512, "conv_type": "gated", **changes})

    @classmethod
    def large(cls, **changes: Any) -> MinMaxRNCConfig:
        """The paper's language model: 728 wide, 12 layers, 1456 state scalars, 112 million with GPT-2's vocabulary."""
        return _from_dict(cls, {"d_model": 728, "n_layers": 12, "d_state": 1456, "conv_type": "gated", **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return {**asdict(self), "extra_units": [list(pair) for pair in self.extra_units]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MinMaxRNCConfig:
        """The inverse of `to_dict`; a key that is not a field is an error."""
        return _from_dict(cls, values)


@dataclass(frozen=True, kw_only=True)
class MinMaxRNCLMConfig:
    """A language model: its backbone, and what stands around it.

    output_gate, conv_type and ffn_dropout stand in for the backbone's where given. In the paper they always do; here
    None, the default, leaves the backbone as it says. `resolved_backbone` is what is built.
    embedding_init: "small_init", N(0, 2 / (5 d_model)), as the paper has it, or "normal", N(0, 1).

    >>> MinMaxRNCLMConfig.small(tie_weights=False, conv_type="gated").resolved_backbone.conv_type
    'gated'
    """

    backbone: MinMaxRNCConfig
    head_dropout: float = 0.0
    tie_weights: bool = True
    embedding_init: Literal["small_init", "normal"] = "small_init"
    output_gate: bool | None = None
    conv_type: ConvType | None = None
    ffn_dropout: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        if not isinstance(self.backbone, MinMaxRNCConfig):
            raise TypeError(f"backbone must be a MinMaxRNCConfig; got {self.backbone!r}")
        _check(self)

    @property
    def resolved_backbone(self) -> MinMaxRNCConfig:
        """The backbone with the fields given here in place of its own."""
        own = {name: getattr(self, name) for name in ("output_gate", "conv_type", "ffn_dropout")}
        return replace(self.backbone, **{name: value for name, value in own.items() if value is not None})

    @classmethod
    def small(cls, **changes: Any) -> MinMaxRNCLMConfig:
        """On MinMaxRNCConfig.small(); the fields of both configurations may be changed."""
        return _preset(cls, MinMaxRNCConfig.small, changes)

    @classmethod
    def medium(cls, **changes: Any) -> MinMaxRNCLMConfig:
        """On MinMaxRNCConfig.medium(); the fields of both configurations may be changed."""
        return _preset(cls, MinMaxRNCConfig.medium, changes)

    @classmethod
    def large(cls, **changes: Any) -> MinMaxRNCLMConfig:
        """On MinMaxRNCConfig.large(); the fields of both configurations may be changed."""
        return _preset(cls, MinMaxRNCConfig.large, changes)

    @classmethod
    def state_tracking(cls, degree: int, units: int = 16, **changes: Any) -> MinMaxRNCLMConfig:
        """One layer of units that select whole levels, as it learns groups: see studies/state_tracking.

        degree: that of the units, the points that the group moves. reset_form="transformation" is for all maps of a
        set into itself, where points may meet. The feed-forward part is small: a larger one learns short words by
        heart, and no unit learns the group. The fields of both configurations may be changed.
        """
        values = {"d_model": 128, "n_layers": 1, "d_state": units * degree, "degree": degree, "reset_form": "selection"}
        values |= {"conv_type": "gated", "conv_init_val": -6.0, "output_gate": False, "ffn_dropout": 0.0}
        values["ffn_proj_factor"] = 0.3
        return _preset(cls, MinMaxRNCConfig, {**values, "tie_weights": False, "embedding_init": "normal", **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return {**asdict(self), "backbone": self.backbone.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MinMaxRNCLMConfig:
        """The inverse of `to_dict`; a key that is not a field is an error."""
        if isinstance(values, Mapping) and isinstance(backbone := values.get("backbone"), Mapping):
            values = {**values, "backbone": MinMaxRNCConfig.from_dict(backbone)}
        return _from_dict(cls, values)


def _preset(
    cls: type[MinMaxRNCLMConfig], backbone: typing.Callable[..., MinMaxRNCConfig], changes: dict[str, Any]
) -> MinMaxRNCLMConfig:
    """A field of both configurations goes to the backbone, so that it is said once."""
    own = {"head_dropout", "tie_weights", "embedding_init"}
    around = {name: value for name, value in changes.items() if name in own}
    inside = {name: value for name, value in changes.items() if name not in own}
    return cls(backbone=backbone(**inside), **around)
