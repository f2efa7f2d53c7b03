"""Traces from files: CSV with a header line, or parquet. One column a signal, one row a step."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from latchwork.extras import need
from latchwork.files import open_file

MOST_LINE = 1 << 24  # characters of a line that are held at a time
TRUTH = {"true": 1.0, "false": -1.0, "": math.nan}


def read_trace(path: Path, names: Sequence[str]) -> dict[str, Tensor]:
    """The columns `names` of a file as float64 (T,). An empty cell is NaN; true and false are +1 and -1."""
    if path.suffix == ".parquet":
        return _parquet(path, names)
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = list(rows_of(file, str(path), names))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8: {error.reason} at byte {error.start}") from None
    table = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), len(names))
    return dict(zip(names, table.unbind(1), strict=True))


def rows_of(file: TextIO, source: str, names: Sequence[str]) -> Iterator[list[float]]:
    """The values of the columns `names`, line by line as they come. source: what the errors call the file."""
    reader = csv.reader(iter(lambda: file.readline(MOST_LINE), ""))
    try:
        header = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]  # which a stream may begin with
        _check_columns(source, header, names)
        places = [header.index(name) for name in names]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{source}, line {reader.line_num}: {len(header)} columns expected, got {len(row)}")
            yield [_number(row[place], source, reader.line_num, header[place]) for place in places]
    except csv.Error as error:
        raise ValueError(f"{source}, line {reader.line_num}, is not CSV: {error}") from None


def _number(text: str, source: str, line: int, column: str) -> float:
    text = text.strip()
    try:
        return float(text) if text.lower() not in TRUTH else TRUTH[text.lower()]
    except ValueError:
        raise ValueError(f"{source}, line {line}: {column} must be a number; got {text[:40]!r}") from None


def _check_columns(source: str, header: Sequence[str], names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in header]:
        columns = ", ".join(header) or "none"
        raise ValueError(f"{source}: the formula speaks of {', '.join(missing)}; the columns are {columns:.300}")
    if twice := [name for name in names if list(header).count(name) > 1]:
        raise ValueError(
            f"{source}: the column {twice[0]} must be there once; it is there {header.count(twice[0])} times"
        )


def _parquet(path: Path, names: Sequence[str]) -> dict[str, Tensor]:
    need("lm", "pyarrow")
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    open_file(path).close()  # its errors name the file
    try:
        _check_columns(str(path), parquet.read_schema(path).names, names)
        table = parquet.read_table(path, columns=list(names))
    except (OSError, ArrowException) as error:
        raise ValueError(f"{path} is not parquet, or half-written: {error}") from error
    found = {}
    for name in names:
        values = table.column(name).to_pylist()
        numbers = [math.nan if v is None else (1.0 if v else -1.0) if isinstance(v, bool) else v for v in values]
        if not all(isinstance(value, (int, float)) for value in numbers):
            raise ValueError(f"{path}: {name} must be numbers or booleans; it is {table.schema.field(name).type}")
        found[name] = torch.tensor(numbers, dtype=torch.float64)
    return found
