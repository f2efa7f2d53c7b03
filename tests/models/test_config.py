"""Configurations: the paper's fields and defaults, checked, frozen, and the same after a trip to disk."""

import json
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork import MinMaxRNCConfig, MinMaxRNCLMConfig

SIZES = {"d_model": 90, "n_layers": 2, "d_state": 40}
DEFAULTS = {
    "degree": 1,
    "reset_form": "free",
    "extra_units": [],
    "levels": None,
    "norm": "layernorm",
    "postlayers_norm": "layernorm",
    "ffn_type": "gated",
    "ffn_proj_factor": 1.3,
    "ffn_act_fn": "relu",
    "ffn_dropout": 0.1,
    "ffn_init": "scaled",
    "output_gate": True,
    "train_init": False,
    "neuron_dropout": 0.0,
    "s_r_init": "small_init",
    "conv_type": "basic",
    "conv_init_val": 0.0,
    "prelayers_dropout": 0.0,
    "use_postlayers_ffn": False,
}
CHOICES = {
    "norm": ["layernorm", "rmsnorm", "none"],
    "postlayers_norm": ["layernorm", "rmsnorm", "none"],
    "ffn_type": ["gated", "basic"],
    "ffn_act_fn": ["relu", "relu^2", "gelu", "swish", "sigmoid", "selu"],
    "ffn_init": ["scaled", "basic"],
    "s_r_init": ["small_init", "kaiming", "asymmetric", "spread"],
    "conv_type": ["basic", "gated"],
}
DROPOUTS = ["ffn_dropout", "neuron_dropout", "prelayers_dropout"]
BOOLEANS = ["output_gate", "train_init", "use_postlayers_ffn"]


def make(**changes):
    return MinMaxRNCConfig(**{**SIZES, **changes})


def test_the_fields_and_defaults_of_the_backbone_are_those_of_the_paper():
    assert make().to_dict() == {**SIZES, **DEFAULTS}


def test_the_fields_and_defaults_of_the_language_model_are_those_of_the_paper():
    config = MinMaxRNCLMConfig(backbone=make())
    assert config.to_dict() == {
        "backbone": {**SIZES, **DEFAULTS},
        "head_dropout": 0.0,
        "embedding_init": "small_init",
        "tie_weights": True,
        "output_gate": None,
        "conv_type": None,
        "ffn_dropout": None,
    }


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_taken_and_a_bad_one_lists_them(name):
    for value in CHOICES[name]:
        assert getattr(make(**{name: value}), name) == value
    for value in ("nonsense", "", None, 3, ["basic"], True):
        with pytest.raises(ValueError, match=f"^{name} must be one of ") as caught:
            make(**{name: value})
        for choice in CHOICES[name]:
            assert repr(choice) in str(caught.value)
        assert str(caught.value).endswith(f"got {value!r}")


NAN, INF = float("nan"), float("inf")
WRONG = [  # fields, values that none of them may have, the error and what it says after the name
    ([*SIZES, "degree"], (0, -1, 2.0, "2", True, None), ValueError, "must be an integer of at least 1; got {value!r}"),
    (["levels"], (0, 1, -3), ValueError, "must be .*at least .*got {value}"),
    (BOOLEANS, (1, 0, "yes", None), TypeError, "must be True or False; got {value!r}"),
    (DROPOUTS, (-0.1, 1, 1.5, NAN, INF), ValueError, "must be at least 0 and less than 1; got {value!r}"),
    ([*DROPOUTS, "ffn_proj_factor", "conv_init_val"], ("0.1", None, True, [0.1]), TypeError, "must be a number"),
    (["ffn_proj_factor"], (0, -1.3, NAN, INF), ValueError, "must be (positive|finite|less than)"),
]


@pytest.mark.parametrize(("names", "values", "error", "message"), WRONG)
def test_a_wrong_value_is_named(names, values, error, message):
    for name in names:
        for value in values:
            with pytest.raises(error, match=f"^{name} {message.format(value=value)}"):
                make(**{name: value})


def test_whole_units_are_needed():
    assert make(d_state=42, degree=3).degree == 3
    with pytest.raises(ValueError, match="d_state must be a multiple of degree = 3; got 40"):
        make(degree=3)


def test_a_configuration_is_frozen_and_takes_only_keywords():
    config = MinMaxRNCLMConfig(backbone=make())
    with pytest.raises(FrozenInstanceError):
        config.backbone.d_model = 3
    with pytest.raises(FrozenInstanceError):
        config.tie_weights = False
    with pytest.raises(TypeError):
        MinMaxRNCConfig(90, 2, 40)
    with pytest.raises(TypeError):
        MinMaxRNCLMConfig(make())


def test_equal_configurations_are_equal_and_hash_alike():
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(degree=2)


configs = st.builds(
    MinMaxRNCConfig,
    d_model=st.integers(1, 9),
    n_layers=st.integers(1, 4),
    d_state=st.sampled_from([6, 12, 60]),
    degree=st.sampled_from([1, 2, 3]),
    levels=st.none() | st.integers(2, 9),
    ffn_proj_factor=st.floats(0.1, 9),
    conv_init_val=st.floats(-9, 9),
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
    **{name: st.booleans() for name in BOOLEANS},
    **{name: st.floats(0, 1, exclude_max=True) for name in DROPOUTS},
)
lm_configs = st.builds(
    MinMaxRNCLMConfig,
    backbone=configs,
    head_dropout=st.floats(0, 1, exclude_max=True),
    tie_weights=st.booleans(),
    output_gate=st.none() | st.booleans(),
    conv_type=st.none() | st.sampled_from(["basic", "gated"]),
    ffn_dropout=st.none() | st.floats(0, 1, exclude_max=True),
)


@given(config=lm_configs)
def test_a_configuration_survives_the_trip_through_json(config):
    assert MinMaxRNCLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert MinMaxRNCConfig.from_dict(json.loads(json.dumps(config.backbone.to_dict()))) == config.backbone


@given(config=lm_configs)
def test_what_the_language_model_says_stands_in_for_the_backbone_only_where_it_is_given(config):
    resolved = config.resolved_backbone
    for field in fields(MinMaxRNCConfig):
        own = getattr(config, field.name, None) if field.name in ("output_gate", "conv_type", "ffn_dropout") else None
        assert getattr(resolved, field.name) == (getattr(config.backbone, field.name) if own is None else own)


def test_an_override_of_false_or_zero_is_an_override():
    config = MinMaxRNCLMConfig(backbone=make(), output_gate=False, ffn_dropout=0.0)
    assert (config.resolved_backbone.output_gate, config.resolved_backbone.ffn_dropout) == (False, 0.0)


@pytest.mark.parametrize("cls", [MinMaxRNCConfig, MinMaxRNCLMConfig])
def test_an_unknown_key_lists_what_there_is(cls):
    whole = MinMaxRNCLMConfig(backbone=make())
    values = whole.to_dict() if cls is MinMaxRNCLMConfig else whole.backbone.to_dict()
    with pytest.raises(ValueError, match=f"{cls.__name__} has no field 'zzz'") as caught:
        cls.from_dict({**values, "zzz": 1})
    for field in fields(cls):
        assert field.name in str(caught.value)


@pytest.mark.parametrize(("wrong", "right"), [("n_layer", "n_layers"), ("conv_typ", "conv_type"), ("level", "levels")])
def test_a_misspelt_key_is_told_its_neighbour(wrong, right):
    with pytest.raises(ValueError, match=f"has no field '{wrong}'; did you mean '{right}'"):
        MinMaxRNCConfig.from_dict({**SIZES, wrong: 1})
    with pytest.raises(ValueError, match=f"has no field '{wrong}'; did you mean '{right}'"):
        MinMaxRNCLMConfig.from_dict({"backbone": {**SIZES, wrong: 1}})
    with pytest.raises(ValueError, match=f"has no field '{wrong}'; did you mean '{right}'"):
        MinMaxRNCLMConfig.small(**{wrong: 1})


def test_a_missing_key_is_named():
    with pytest.raises(TypeError, match="'d_state'"):
        MinMaxRNCConfig.from_dict({"d_model": 90, "n_layers": 2})
    with pytest.raises(TypeError, match="'backbone'"):
        MinMaxRNCLMConfig.from_dict({})


@pytest.mark.parametrize("backbone", [None, 3, "small", [1]])
def test_a_backbone_must_be_a_configuration(backbone):
    with pytest.raises(TypeError, match="backbone must be a MinMaxRNCConfig; got"):
        MinMaxRNCLMConfig(backbone=backbone)


@pytest.mark.parametrize("cls", [MinMaxRNCConfig, MinMaxRNCLMConfig])
def test_a_list_is_no_configuration(cls):
    with pytest.raises((TypeError, ValueError), match="must be a mapping"):
        cls.from_dict([1])


PRESETS = {
    "small": {"d_model": 90, "n_layers": 2, "d_state": 40},
    "medium": {"d_model": 512, "n_layers": 8, "d_state": 512, "conv_type": "gated"},
    "large": {"d_model": 728, "n_layers": 12, "d_state": 1456, "conv_type": "gated"},
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_default_but_for_its_sizes(name):
    expected = MinMaxRNCConfig(**PRESETS[name])
    assert getattr(MinMaxRNCConfig, name)() == expected
    assert getattr(MinMaxRNCLMConfig, name)() == MinMaxRNCLMConfig(backbone=expected)


@pytest.mark.parametrize("name", PRESETS)
def test_fields_of_both_configurations_may_change_in_a_preset(name):
    config = getattr(MinMaxRNCLMConfig, name)(n_layers=3, tie_weights=False, head_dropout=0.2, output_gate=False)
    backbone = MinMaxRNCConfig(**{**PRESETS[name], "n_layers": 3, "output_gate": False})
    assert config == MinMaxRNCLMConfig(backbone=backbone, tie_weights=False, head_dropout=0.2)
    assert config.resolved_backbone == backbone


def test_the_preset_for_state_tracking():
    config = MinMaxRNCLMConfig.state_tracking(5)
    assert (config.backbone.d_state, config.backbone.degree, config.backbone.reset_form) == (80, 5, "selection")
    assert (config.tie_weights, config.embedding_init) == (False, "normal")
    changed = MinMaxRNCLMConfig.state_tracking(3, units=4, reset_form="transformation", embedding_init="small_init")
    assert (changed.backbone.d_state, changed.backbone.reset_form) == (12, "transformation")
    assert changed.embedding_init == "small_init"


def test_extra_units_and_forms_survive_a_trip_to_disk():
    config = make(extra_units=[[3, 2], (1, 5)], reset_form="selection")
    assert config.extra_units == ((3, 2), (1, 5))
    assert config.state_width == 40 + 6 + 5
    assert MinMaxRNCConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    language = MinMaxRNCLMConfig(backbone=config)
    assert MinMaxRNCLMConfig.from_dict(json.loads(json.dumps(language.to_dict()))) == language
    old = {key: value for key, value in make().to_dict().items() if key not in ("extra_units", "reset_form")}
    assert MinMaxRNCConfig.from_dict(old) == make()


def test_extra_units_are_pairs():
    for units in (3, "ab", [3], [(1,)], [(0, 2)], [(1, 1)], [(1, 2, 3)], [(1.0, 2)], [(True, 2)]):
        with pytest.raises(ValueError, match=r"extra_units must be pairs \(number, degree\).*; got"):
            make(extra_units=units)


def test_a_form_is_for_degrees_it_is_made_for():
    with pytest.raises(ValueError, match="reset_form must be 'free' where all degrees are 1; got 'selection'"):
        make(reset_form="selection")
    with pytest.raises(ValueError, match="'selection', 'transformation'; got 'swap'"):
        make(degree=2, reset_form="swap")
