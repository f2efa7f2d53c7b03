"""Whether a network is exactly what its config makes: the first thing that a proof rests on.

`certify` knows what the parts of a network compute from their classes and their weights. A part that was exchanged,
hooked, patched or set to another number computes something else, and no proof would hold for it. So each part is
compared with the same part of a fresh network of the same config, which takes no memory: it is on the meta device.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.models import MinMaxRNC_LM
from latchwork.models.backbone import MinMaxRNC
from latchwork.modules.cells import MatrixCell, ScalarCell, SelectionCell, TransformationCell
from latchwork.modules.cells.choice import ChoiceCell
from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.linear import Linear
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.state import State

ADVICE = (
    "undo that; or load the weights into a network made anew, MinMaxRNC_LM(model.vocab_size, model.config), and "
    "certify that one"
)
_MODULES = (MinMaxRNC_LM, MinMaxRNC, MinMaxLayer, MinMaxNeuron, BasicConv, GatedConv, FeedForward, GatedFeedForward)
_CELLS = (ScalarCell, MatrixCell, SelectionCell, TransformationCell)
_PARTS = (Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.Dropout, nn.ModuleList, State)
_TENSORS = ("_parameters", "_buffers")
# No run depends on these: they are of the gradient, or of saving and loading.
_FREE = ("training", "gradient_checkpointing", "_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks")
_FREE_TOO = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_NOT_RUN = ("__init__", "__setstate__", "__annotations__", "__annotate__")  # torch.compile patches the first two
_ADDED_BY_OTHERS = ("smart_apply",)  # transformers gives it to every module, to initialise weights; no run calls it


class NotAsMade(Exception):
    """A part of a network is not as its config makes it. advice: what to do."""

    def __init__(self, reason: str, advice: str = ADVICE) -> None:
        super().__init__(reason)
        self.advice = advice


def check_as_made(model: nn.Module) -> None:
    """Raise NotAsMade if any part of the model is not as its config makes it."""
    if type(model) is not MinMaxRNC_LM:
        inside = [name for name, each in model.named_modules() if type(each) is MinMaxRNC_LM]
        plain = f"pass the plain model, here {inside[0]!r} of what was given" if inside else ADVICE
        raise NotAsMade(f"the model is a {type(model).__name__}, not a MinMaxRNC_LM itself", plain)
    _check_classes()
    try:
        made = _make(model)
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise NotAsMade(f"model.config and model.vocab_size make no network: {error}") from error
    _check(model, made, "model")
    if model.config.tie_weights and model.head.weight is not model.embedding.weight:
        raise NotAsMade("model.head.weight is not model.embedding.weight itself, as tie_weights makes it")


def copy_as_made(model: MinMaxRNC_LM, dtype: torch.dtype = torch.float32) -> MinMaxRNC_LM:
    """A fresh network of the same config with these weights as they are now, on the CPU, in eval mode."""
    made = _make(model)
    for part, own in zip(_every_part(made), _every_part(model), strict=True):
        for table in _TENSORS:
            for name, value in vars(own)[table].items():
                if value is not None:
                    copied = value.detach().to("cpu", dtype, copy=True)
                    vars(part)[table][name] = nn.Parameter(copied, False) if table == "_parameters" else copied
    if model.config.tie_weights:
        made.head.weight = made.embedding.weight
    return made.eval()


def _make(model: MinMaxRNC_LM) -> MinMaxRNC_LM:
    with torch.device("meta"):
        return MinMaxRNC_LM(model.vocab_size, model.config)


def _every_part(module: nn.Module) -> list[nn.Module]:
    """The module and all below it; a part that stands in two places comes twice."""
    return [each for _, each in module.named_modules(remove_duplicate=False)]


def _check(found: object, made: nn.Module, name: str) -> None:
    """Compare a part, and all below it, with what was made."""
    _check_type(found, made, name)
    own, fresh = vars(found), vars(made)
    for key in sorted(own.keys() - fresh.keys()):  # torch.compile leaves private marks, which no run reads
        if not key.startswith("_") or hasattr(type(found), key):
            raise NotAsMade(f"{name}.{key} was added")
    for key, expected in fresh.items():
        if key in _FREE or key in _FREE_TOO:
            continue
        if key not in own:
            raise NotAsMade(f"{name}.{key} is missing")
        if "hooks" in key and own[key]:
            raise NotAsMade(f"{name} has a hook, in {key}")
        if key == "_modules" or key in _TENSORS:
            _check_table(own[key], expected, name)
        elif not _is_allowed(made, key, own[key], expected):
            raise NotAsMade(f"{name}.{key} is {own[key]!r}; as made it is {expected!r}")
    if isinstance(found, nn.Dropout) and found.training and found.p:
        raise NotAsMade(f"{name} is in training mode: it drops out numbers at random", "call model.eval() first")


def _check_type(found: object, made: object, name: str) -> None:
    if type(found) is not type(made):
        raise NotAsMade(f"{name} is of type {type(found).__name__}; as made it is of type {type(made).__name__}")


def _check_table(found: object, made: dict[str, Any], name: str) -> None:
    """Compare parameters, buffers or parts with those made."""
    if not isinstance(found, dict) or type(found) not in (dict, OrderedDict):
        raise NotAsMade(f"{name} keeps its parts in a {type(found).__name__}")
    if list(found) != list(made):
        raise NotAsMade(f"{name} has {', '.join(found) or 'no parts'}; as made it has {', '.join(made) or 'no parts'}")
    for key, expected in made.items():
        if isinstance(expected, nn.Module):
            _check(found[key], expected, f"{name}.{key}")
        elif isinstance(expected, Tensor):
            _check_tensor(found[key], expected, f"{name}.{key}")
        else:
            _check_type(found[key], expected, f"{name}.{key}")


def _check_tensor(found: object, made: Tensor, name: str) -> None:
    """Compare with the type and shape made; the numbers must be plain float32 ones, and finite."""
    _check_type(found, made, name)
    assert isinstance(found, Tensor)
    if found.shape != made.shape:
        raise NotAsMade(f"{name} is of shape {tuple(found.shape)}; as made it is of shape {tuple(made.shape)}")
    if found.dtype != torch.float32:
        raise NotAsMade(f"the network's weights must be float32: {name} is {found.dtype}", "certify model.float()")
    if found.layout != torch.strided or found.is_meta or found.is_neg() or not found.is_contiguous():
        raise NotAsMade(f"{name} is not a plain tensor of its own numbers, one after the other")
    if not bool(found.isfinite().all()):
        raise NotAsMade(f"{name} is not finite", "train again, or load a checkpoint from before the first NaN")


def _is_allowed(made: nn.Module, key: str, found: object, expected: object) -> bool:
    """Whether an attribute is as made, or is one that no run without dropout depends on."""
    if isinstance(made, nn.Dropout) and key in ("p", "inplace"):
        return True
    if isinstance(made, ChoiceCell) and key == "temperature":
        return type(found) in (int, float) and 0 < found < float("inf")  # type: ignore[operator]
    return _same(found, expected)


def _same(found: object, made: object) -> bool:
    """Whether two values are equal, and of the same types throughout."""
    if type(found) is not type(made):
        return False
    if isinstance(found, (tuple, list)) and isinstance(made, (tuple, list)):
        return len(found) == len(made) and all(_same(*pair) for pair in zip(found, made, strict=True))
    if dataclasses.is_dataclass(made):
        return vars(found).keys() == vars(made).keys() and all(_same(vars(found)[k], v) for k, v in vars(made).items())
    return bool(found == made)


def _methods(kind: type) -> dict[str, tuple[object, object]]:
    """What a class does in a run: its functions, properties and the like, each with its code."""
    return {
        name: (value, getattr(value, "__code__", None))
        for name, value in vars(kind).items()
        if (callable(value) or hasattr(type(value), "__get__")) and name not in (*_NOT_RUN, *_ADDED_BY_OTHERS)
    }


_CLASSES = {base for kind in (*_MODULES, *_CELLS, *_PARTS) for base in kind.__mro__ if base is not object}
_AS_IMPORTED = {kind: _methods(kind) for kind in _CLASSES}


def _check_classes() -> None:
    """No class was patched since this file was imported, and there is no hook on all modules."""
    for kind, imported in _AS_IMPORTED.items():
        now = _methods(kind)
        if changed := [name for name in now | imported if now.get(name) != imported.get(name)]:
            raise NotAsMade(f"{kind.__name__}.{changed[0]} was patched", "undo that")
    for name, value in vars(nn.modules.module).items():
        if name.startswith("_global") and "hooks" in name and value:
            raise NotAsMade(f"there is a hook on all modules, in torch.nn.modules.module.{name}", "remove it")
