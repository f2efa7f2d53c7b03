"""Configs from plain values, as JSON and TOML have them: one reader for all, whose errors name the nearest field."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

Config = TypeVar("Config")


def read_values(cls: type[Config], values: Any, path: str = "") -> Config:
    """A dataclass from plain values, its fields read by their annotations. A key that is no field is an error.

    path: where the values stand, for the error.
    """
    where = path or "the config"
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be a table of values; got {values!r}")
    annotations = typing.get_type_hints(cls)
    known = [each.name for each in fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            raise ValueError(
                f"{where} has no field {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"it has {known}")
            )
    read = {key: _value(annotations[key], value, f"{path}.{key}" if path else key) for key, value in values.items()}
    try:
        return cls(**read)
    except TypeError as error:  # a field without a default is missing
        raise ValueError(f"{where}: {error}") from None


def _value(annotation: Any, value: Any, path: str) -> Any:
    """A value as an annotation of these dataclasses wants it, or an error that names it."""
    if isinstance(annotation, types.UnionType):
        if value is None:
            return None
        annotation = next(each for each in typing.get_args(annotation) if each is not type(None))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_dataclass(annotation):
        return read_values(annotation, value, path)  # type: ignore[arg-type]
    if origin is tuple:
        is_list = isinstance(value, (list, tuple))
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis and is_list else arguments
        if not is_list or len(value) != len(kinds):
            raise ValueError(f"{path} must be a list{'' if ... in arguments else f' of {len(kinds)}'}; got {value!r}")
        return tuple(_value(kind, each, path) for kind, each in zip(kinds, value, strict=True))
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{path} must be one of {', '.join(map(repr, arguments))}; got {value!r}")
    elif annotation in (int, float):
        allowed = (int,) if annotation is int else (int, float)
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise ValueError(f"{path} must be {'an integer' if annotation is int else 'a number'}; got {value!r}")
        try:
            return annotation(value)
        except OverflowError:
            raise ValueError(f"{path} must be a number that a float holds; got {value!r:.80}") from None
    elif annotation in (bool, str):
        if not isinstance(value, annotation):
            raise ValueError(f"{path} must be {'true or false' if annotation is bool else 'a text'}; got {value!r}")
    elif origin is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path} must be a table of values; got {value!r}")
    return value
