"""Every kind of file that we read: what writes one into a folder, and what reads it to values that can be compared."""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from latchwork import load_model
from latchwork.automata import Machine
from latchwork.baselines.registry import ModelConfig, make_model, own_tensors, save_model
from latchwork.data.corpus import Corpus
from latchwork.data.documents import TextFile
from latchwork.data.shards import write_corpus
from latchwork.data.tokenizers import Characters, load_tokenizer, save_tokenizer
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules import State
from latchwork.reports.records import read_records
from latchwork.temporal import parse
from latchwork.temporal.tables import read_trace
from latchwork.training.checkpoint import load_checkpoint, save_checkpoint, why_broken
from latchwork.training.config_file import read_config
from latchwork.training.optimizer import make_optimizer
from latchwork.training.presets import CONFIGS
from latchwork.training.run_folder import RunFolder


def plain(tensors):
    """Tensors as values that can be compared."""
    return {name: (str(each.dtype), each.tolist()) for name, each in tensors.items()}


def make_lm(folder):
    torch.manual_seed(0)
    MinMaxRNC_LM(5, MinMaxRNCLMConfig.small(d_model=4, d_state=3, levels=3)).save(folder)


def read_lm(folder):
    model = MinMaxRNC_LM.load(folder)
    return model.config, model.vocab_size, plain(model.state_dict())


SIZES = ModelConfig(kind="transformer", options={"n_layers": 1, "width": 8, "heads": 2})


def make_baseline(folder):
    torch.manual_seed(0)
    save_model(folder, make_model(SIZES, 5))


def read_baseline(folder):
    model = load_model(folder)
    return model.layers[0].heads, plain(own_tensors(model))


def make_huggingface(folder):
    from latchwork.models.huggingface import to_huggingface

    torch.manual_seed(0)
    to_huggingface(MinMaxRNC_LM(5, MinMaxRNCLMConfig.small(d_model=4, d_state=3))).save_pretrained(folder)


def read_huggingface(folder):
    from latchwork.models.huggingface import MinMaxRNCForCausalLM

    model = MinMaxRNCForCausalLM.from_pretrained(folder)
    return plain(model.state_dict())


def make_state(folder):
    State(torch.randn(1, 2, 3), torch.randn(1, 2, 4)).save(folder / "state.safetensors")


def read_state(folder):
    return plain(State.load(folder / "state.safetensors")._asdict())


def make_run(folder):
    run = RunFolder(folder)
    run.begin({"config": {"task": "parity", "seed": 3, "scale": {"steps": 10}}})
    run.metrics.write_text('{"step": 1}\n{"step": 2}\n')
    run.cut(2)


def read_run(folder):
    run = RunFolder(folder)
    run.begin({"config": {"task": "parity", "seed": 3, "scale": {"steps": 10}}})
    run.cut(2)
    return run.metrics.read_text()


RECORD = {
    **{name: "x" for name in ("experiment", "table", "task", "model", "scale")},
    **{"batch_size": 64, "seed": 0, "parameters": 1000, "published": [99.5, 0.5], "changes": {"levels": 3}},
    "training": {"train_accuracy": 1.0, "validation_accuracy": 0.5, "seconds": 3.5, "epochs": []},
    "evaluation": {
        **{"length": 100, "sequences": 8, "change": None, "constant": 0.25, "seconds": 2, "positions": [[0, 9, 8, 7]]},
        **{"average": {"mean": 0.5}, "minimum": {"mean": 0.25}},
    },
}


def make_record(folder):
    (folder / "record.json").write_text(json.dumps(RECORD))


def read_record(folder):
    if not (found := read_records(folder)):
        raise FileNotFoundError("there is no record.json")
    return found[0]


def make_corpus(folder):
    write_corpus(folder / "corpus", Characters("abc"), [[0, 1, 2], [2, 1]], [[1]], shard_tokens=3)
    for path in (folder / "corpus").iterdir():
        path.rename(folder / path.name)


def read_corpus(folder):
    corpus = Corpus(folder)
    corpus.verify()
    splits = [split.read(0, len(split)).tolist() for split in (corpus.train, corpus.validation)]
    return splits, corpus.train.starts.tolist(), corpus.tokenizer.alphabet, corpus.vocabulary, corpus.end


def make_characters(folder):
    save_tokenizer(Characters("abcxyz é日"), folder)


def read_characters(folder):
    return load_tokenizer(folder).alphabet


def make_subwords(folder):
    from tokenizers import Tokenizer, models

    from latchwork.data.subwords import Subwords

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "ab": 2}, unk_token="a"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    save_tokenizer(Subwords(tokenizer.to_str(), "<|endoftext|>"), folder)


def read_subwords(folder):
    tokenizer = load_tokenizer(folder)
    return tokenizer.vocabulary, tokenizer.end, tokenizer.encode("ab").tolist()


def make_unhashed_subwords(folder):
    make_subwords(folder)
    (folder / "sha256.json").unlink()


def make_config(folder):
    (folder / "config.json").write_text(json.dumps(CONFIGS["bpe-10m"].to_dict()))


def read_pretraining(folder):
    return read_config(str(folder / "config.json")).to_dict()


def make_toml(folder):
    (folder / "config.toml").write_text("""
name = "mine"
steps = 10
model = {kind = "lstm", options = {n_layers = 1, width = 8}}
optimizer = {learning_rate = 0.001, weight_decay = [[0, 0.1]]}
batch = {micro = 2, context = 8}
""")


def read_toml(folder):
    return read_config(str(folder / "config.toml")).to_dict()


def make_machine(folder):
    Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]]).save(folder / "machine.json")


def read_machine(folder):
    machine = Machine.load(folder / "machine.json")
    return {"transitions": machine.transitions.tolist(), "outputs": machine.outputs.tolist(), "start": machine.start}


HERE = SimpleNamespace(first=True, world=1, wait=lambda: None, gather=lambda each: [each])


def parts():
    torch.manual_seed(0)
    model = make_model(SIZES, 5)
    return model, make_optimizer(model, CONFIGS["bpe-10m"].optimizer)


def make_checkpoint(folder):
    model, optimizer = parts()
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    optimizer.step()
    place = {"step": 4, "tokens": 64, "seconds": 1.5, "lines": 2, "plan": {"length": 8}}
    save_checkpoint(folder, place, model, optimizer, {"best": torch.randn(2, 3)}, HERE, 1)


def read_checkpoint(folder):
    if reason := why_broken(folder / "00000004"):
        raise ValueError(reason)
    model, optimizer = parts()
    place, tensors = load_checkpoint(folder / "00000004", model, optimizer, HERE)
    return place["step"], place["plan"], plain(own_tensors(model)), plain(tensors)


def make_documents(folder):
    import pyarrow.parquet
    import zstandard

    lines = "\n".join(json.dumps({"text": f"text {number}"}) for number in range(9)).encode()
    (folder / "a.jsonl").write_bytes(lines)
    (folder / "a.txt").write_bytes(lines)
    (folder / "a.jsonl.zst").write_bytes(zstandard.compress(lines))
    (folder / "a.txt.gz").write_bytes(zlib.compress(lines, wbits=31))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "two"]}), folder / "a.parquet")


def read_documents(name):
    return lambda folder: list(TextFile(folder / name))


FORMULA = "historically[0, 3] (x > 1)"


def make_monitor(folder):
    watch = parse(FORMULA).online()
    for value in (3.0, 0.5):
        watch.step({"x": value})
    watch.save(folder / "monitor.safetensors")


def read_monitor(folder):
    watch = parse(FORMULA).online()
    watch.load(folder / "monitor.safetensors")
    return plain(watch.state()), watch.steps


def make_traces(folder):
    import pyarrow.parquet

    rows = [(0.5, True, 1), (1.5, False, 2), (float("nan"), True, 3)]
    (folder / "trace.csv").write_text("\n".join(["x,y,z", *(",".join(map(str, row)) for row in rows)]))
    columns = {name: [row[place] for row in rows] for place, name in enumerate("xyz")}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "trace.parquet")


def read_traces(name):
    return lambda folder: plain(read_trace(folder / name, ["z", "x", "y"]))


@dataclass(frozen=True)
class Kind:
    make: Callable[..., None]
    read: Callable[..., Any]
    file: str
    says: str = "what was saved"  # what a file that loads must load to; or "what it says", or "anything"


KINDS = {
    "config.json": Kind(make_lm, read_lm, "config.json"),
    "model.safetensors": Kind(make_lm, read_lm, "model.safetensors"),
    "baseline config.json": Kind(make_baseline, read_baseline, "config.json"),
    "baseline model.safetensors": Kind(make_baseline, read_baseline, "model.safetensors"),
    "Hugging Face model.safetensors": Kind(make_huggingface, read_huggingface, "model.safetensors"),
    "Hugging Face config.json": Kind(make_huggingface, read_huggingface, "config.json", "anything"),
    "state": Kind(make_state, read_state, "state.safetensors"),
    "run manifest": Kind(make_run, read_run, "manifest.json"),
    "record": Kind(make_record, read_record, "record.json", "what it says"),
    "corpus manifest": Kind(make_corpus, read_corpus, "manifest.json"),
    "shard": Kind(make_corpus, read_corpus, "train-00000.tokens"),
    "starts": Kind(make_corpus, read_corpus, "train.starts"),
    "corpus tokenizer": Kind(make_corpus, read_corpus, "tokenizer/characters.json"),
    "characters": Kind(make_characters, read_characters, "characters.json"),
    "hashes": Kind(make_characters, read_characters, "sha256.json"),
    "tokenizer.json": Kind(make_subwords, read_subwords, "tokenizer.json"),
    "tokenizer_config.json": Kind(make_subwords, read_subwords, "tokenizer_config.json"),
    "foreign tokenizer.json": Kind(make_unhashed_subwords, read_subwords, "tokenizer.json", "anything"),
    "pretraining config": Kind(make_config, read_pretraining, "config.json", "what it says"),
    "pretraining TOML": Kind(make_toml, read_toml, "config.toml", "anything"),
    "machine": Kind(make_machine, read_machine, "machine.json", "what it says"),
    "checkpoint note": Kind(make_checkpoint, read_checkpoint, "00000004/checkpoint.json"),
    "checkpoint model": Kind(make_checkpoint, read_checkpoint, "00000004/model.safetensors"),
    "checkpoint optimizer": Kind(make_checkpoint, read_checkpoint, "00000004/optimizer.safetensors"),
    "checkpoint plan": Kind(make_checkpoint, read_checkpoint, "00000004/plan.safetensors"),
    "monitor": Kind(make_monitor, read_monitor, "monitor.safetensors"),
    "trace": Kind(make_traces, read_traces("trace.csv"), "trace.csv", "anything"),
    "trace.parquet": Kind(make_traces, read_traces("trace.parquet"), "trace.parquet", "anything"),
    "jsonl": Kind(make_documents, read_documents("a.jsonl"), "a.jsonl", "anything"),
    "txt": Kind(make_documents, read_documents("a.txt"), "a.txt", "anything"),
    "jsonl.zst": Kind(make_documents, read_documents("a.jsonl.zst"), "a.jsonl.zst", "anything"),
    "txt.gz": Kind(make_documents, read_documents("a.txt.gz"), "a.txt.gz", "anything"),
    "parquet": Kind(make_documents, read_documents("a.parquet"), "a.parquet", "anything"),
}
