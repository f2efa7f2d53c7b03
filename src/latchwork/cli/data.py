"""`latchwork data`: text into corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from latchwork.cli.options import MOST_THREADS, check_out, number, resumable
from latchwork.cli.options import path as read_path
from latchwork.data.corpus import Corpus
from latchwork.data.dataset import OPENWEBTEXT
from latchwork.data.prepare import prepare
from latchwork.data.shards import SHARD_TOKENS
from latchwork.errors import NO, explain

data = typer.Typer(no_args_is_help=True, help="Text into corpora: token shards that pretraining reads.")


@data.command("prepare")
def prepare_command(
    out: Annotated[Path, typer.Option(parser=read_path, help="the folder to make")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="files (.txt, .jsonl, .parquet, also .gz or .zst), folders, patterns, or hf:NAME[:CONFIG] of the hub",
            show_default=f"hf:{OPENWEBTEXT}",
        ),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="gpt2, characters, bytes, a tokenizer.json, a folder with vocab.json and merges.txt, owner/name"
        ),
    ] = "gpt2",
    validation_documents: Annotated[
        int | None, typer.Option(min=0, help="documents held out", show_default="5000")
    ] = None,
    validation_fraction: Annotated[
        float | None, typer.Option(callback=number, help="instead: of each document the last part, as 0.1")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the draw of documents held out")] = 0,
    jobs: Annotated[
        int, typer.Option(min=1, max=MOST_THREADS, help="processes; the result does not depend on them")
    ] = 1,
    field: Annotated[str, typer.Option(help="where the text is in jsonl, parquet and data sets")] = "text",
    separator: Annotated[
        str | None, typer.Option(help="cuts a .txt into documents; \\n is a new line", show_default="a file is one")
    ] = None,
    shard_tokens: Annotated[
        int, typer.Option(min=1, help="tokens of a file, and at most lost by a kill")
    ] = SHARD_TOKENS,
) -> None:
    """Turn text into token shards. After an interruption the same command resumes."""
    check_out(out, folder=True)
    for each in (*(sources or ()), tokenizer):
        read_path(each)  # an empty one would be this folder
    if separator is not None:
        separator = separator.replace("\\n", "\n").replace("\\t", "\t")
    with resumable("the shards that are finished"), Bar() as bar:
        corpus = prepare(
            sources or [f"hf:{OPENWEBTEXT}"],
            out,
            tokenizer,
            validation_documents=validation_documents,
            validation_fraction=validation_fraction,
            seed=seed,
            jobs=jobs,
            field=field,
            separator=separator,
            shard_tokens=shard_tokens,
            watch=bar.watch,
        )
    _print(corpus)


@data.command()
def verify(
    path: Annotated[Path, typer.Argument(parser=read_path, help="a folder that `latchwork data prepare` made")],
) -> None:
    """Read a whole corpus and compare it with its hashes. Exit code 1 if they differ."""
    corpus = Corpus(path)
    try:
        corpus.verify()
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {explain(error)[0]}", err=True)
        raise typer.Exit(NO) from None
    _print(corpus)


class Bar(Progress):
    """A progress bar on the terminal; nothing where there is none."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        super().__init__(TextColumn("{task.description}"), *columns, console=console, disable=not console.is_terminal)
        self._numbers: dict[str, TaskID] = {}

    def watch(self, what: str, done: int, total: int | None) -> None:
        """Show how much of a task is done."""
        if what not in self._numbers:
            self._numbers[what] = self.add_task(what, total=total)
        self.update(self._numbers[what], completed=done)


def _print(corpus: Corpus) -> None:
    tokenizer = corpus.manifest["tokenizer"]
    table = Table("split", "documents", "tokens", "bytes of text", "shards")
    for name, split in (("train", corpus.train), ("validation", corpus.validation)):
        shards = corpus.manifest["splits"][name]["shards"]
        table.add_row(name, f"{split.documents:,}", f"{len(split):,}", f"{split.bytes:,}", str(len(shards)))
    console = Console()
    console.print(table)
    console.print(f"{corpus.path}: {tokenizer['kind']}, a vocabulary of {corpus.vocabulary:,}", soft_wrap=True)
