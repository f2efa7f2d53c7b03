"""Labelled sequences out of a file of events: CSV, parquet or JSON lines, one row an event. No torch."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from latchwork.extras import need
from latchwork.files import open_file

MOST_ROWS = 20_000_000
MOST_LINE = 1 << 24  # characters
Per = Literal["auto", "step", "sequence"]
Row = tuple[int, list[Any]]  # the line of a file, and the values of the columns asked for


def read_sequences(
    path: Path, sequence: str, event: str, labels: Sequence[str], order: str | None = None, per: Per = "auto"
) -> tuple[list[Any], list[list[Any]], list[Any]]:
    """The sequences' names, their events, and their labels, one each or a list each.

    sequence, event, labels, order: names of columns. Rows of one sequence need not stand together; they keep their
    order, or are sorted by the column `order`. Several columns of labels make one label, a tuple. An empty label is
    none. per: whether labels belong to steps or to sequences; "auto" takes them for those of sequences if no sequence
    has two different ones.
    """
    if per not in ("auto", "step", "sequence"):
        raise ValueError(f"per must be 'auto', 'step' or 'sequence'; got {per!r}")
    columns = [sequence, event, *labels, *([] if order is None else [order])]
    rows: dict[Any, list[tuple[Any, Any, Any]]] = {}
    for count, (line, values) in enumerate(_rows(path, columns)):
        if count >= MOST_ROWS:
            raise ValueError(f"{path} must have at most {MOST_ROWS:,} rows; it has more: take a part of the sequences")
        key, symbol, *rest = values
        for name, value in ((sequence, key), (event, symbol)):
            if _missing(value):
                raise ValueError(f"{path}, row {line}: {name} must not be empty")
            if not isinstance(value, (str, int, float, bool)):
                raise ValueError(f"{path}, row {line}: {name} must be a text or a number; got {value!r:.60}")
        said = rest[: len(labels)]
        label = None if any(map(_missing, said)) else tuple(said) if len(said) > 1 else said[0]
        place = rest[-1] if order is not None else None
        if order is not None and _missing(place):
            raise ValueError(f"{path}, row {line}: {order} must not be empty")
        rows.setdefault(key, []).append((place, symbol, label))
    if not rows:
        raise ValueError(f"{path} must have at least one row below its header; it has none")
    if order is not None:
        numbers = _all_numbers(place for each in rows.values() for place, _, _ in each)
        for each in rows.values():
            each.sort(key=lambda row: float(row[0]) if numbers else str(row[0]))
    names, events = list(rows), [[symbol for _, symbol, _ in each] for each in rows.values()]
    steps = [[label for _, _, label in each] for each in rows.values()]
    kinds = [{label for label in each if label is not None} for each in steps]
    if per == "auto":
        per = "step" if any(len(each) > 1 for each in kinds) else "sequence"
    if per == "step":
        return names, events, steps
    for name, kind in zip(names, kinds, strict=True):
        if len(kind) > 1:
            raise ValueError(
                f"{path}: sequence {name!r:.60} must have one label; it has {', '.join(sorted(map(repr, kind))):.200}: "
                "give labels per step, or correct it"
            )
    kept = [k for k, kind in enumerate(kinds) if kind]
    if not kept:
        raise ValueError(f"{path}: {', '.join(labels)} must hold at least one label; all are empty")
    return [names[k] for k in kept], [events[k] for k in kept], [next(iter(kinds[k])) for k in kept]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    kinds = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".jsonl": _json_lines, ".ndjson": _json_lines}
    if path.suffix.lower() not in kinds:
        raise ValueError(f"{path} must end in {', '.join(kinds)}; it ends in {path.suffix!r}")
    open_file(path).close()  # its errors name the file
    return kinds[path.suffix.lower()](path, columns)


def _csv(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(
            iter(lambda: file.readline(MOST_LINE), ""), delimiter="\t" if path.suffix.lower() == ".tsv" else ","
        )
        try:
            header = [name.strip() for name in next(reader, [])]
            _check_columns(path, header, columns)
            places = [header.index(name) for name in columns]
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(f"{path}, row {reader.line_num}: {len(header)} columns expected, got {len(row)}")
                if row:
                    yield reader.line_num, [row[place].strip() for place in places]
        except csv.Error as error:
            raise ValueError(f"{path}, row {reader.line_num}, is not CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8: {error.reason} at byte {error.start}") from None


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        try:
            for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), ""), 1):
                if not line.strip():
                    continue
                try:
                    values = json.loads(line)
                except (ValueError, RecursionError):
                    raise ValueError(f"{path}, row {number}, is not JSON: {line.strip()[:60]!r}") from None
                if not isinstance(values, dict):
                    raise ValueError(f"{path}, row {number}, must be a JSON object; got {line.strip()[:60]!r}")
                _check_columns(path, list(values), columns)
                yield number, [values[name] for name in columns]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8: {error.reason} at byte {error.start}") from None


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    need("lm", "pyarrow")
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    try:
        _check_columns(path, parquet.read_schema(path).names, columns)
        number = 1
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(dict.fromkeys(columns))):
                for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    yield (number := number + 1), list(row)
    except (OSError, ArrowException) as error:
        raise ValueError(f"{path} is not parquet, or half-written: {error}") from error


def _check_columns(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    for name in columns:
        if name not in header:
            near = get_close_matches(name, header, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(header)[:300] or 'none'}"
            raise ValueError(f"{path} has no column {name!r}; {hint}")


def _missing(value: Any) -> bool:
    return value is None or value == "" or value != value or (isinstance(value, str) and value.lower() == "nan")


def _all_numbers(values: Iterator[Any]) -> bool:
    try:
        return all(float(value) == float(value) for value in values)
    except (TypeError, ValueError):
        return False
