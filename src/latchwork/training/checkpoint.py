"""Checkpoints: folders that appear whole or not at all, with the hashes of their files; the last few are kept.

checkpoints/00001000/checkpoint.json     the place reached, and the hash of each file
                     model.safetensors, optimizer.safetensors     as one process, or DDP, writes them
                     shard-*.safetensors     as FSDP writes them, one for each process (torch.distributed.checkpoint)
                     plan.safetensors     the tensors of the plan: best weights, or states carried on

Learning rate, weight decay, data and dropout are functions of the step and of the plan's state, so nothing else is
saved. Either form is read by any number of processes, under DDP or FSDP.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from latchwork.baselines.registry import own_tensors
from latchwork.files import check_hashes, file_hash, json_hash, read_json, write_json
from latchwork.tensor_files import open_tensors, read_tensors
from latchwork.training.distributed import Processes, copy_whole

NOTE, PLAN = "checkpoint.json", "plan.safetensors"
PARTS = ("model", "optimizer")
Tell = Callable[[str], None]


def save_checkpoint(
    folder: Path,
    place: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: Mapping[str, Tensor],
    here: Processes,
    keep: int,
) -> None:
    """Write the checkpoint of place["step"], and remove those before the last `keep`. All processes call it."""
    path = folder / f"{place['step']:08d}"
    temporary = folder / f".{path.name}.tmp"
    if here.first:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    here.wait()
    tensors = training_tensors(model, optimizer)
    if any(isinstance(each, DTensor) for each in tensors.values()):
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(temporary), save_distributed=True))
    elif here.first:
        for part in PARTS:
            mine = {name: each.detach() for name, each in tensors.items() if name.startswith(part)}
            save_file(mine, temporary / f"{part}.safetensors")
    if plan and here.first:
        save_file({name: each.detach().contiguous() for name, each in plan.items()}, temporary / PLAN)
    here.wait()
    if here.first:
        files = {each.name: file_hash(each) for each in sorted(temporary.iterdir())}
        note = {**place, "files": files}
        write_json(temporary / NOTE, {**note, "sha256": json_hash(note)})
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
        for old in steps_of(folder)[:-keep]:
            shutil.rmtree(folder / f"{old:08d}")
    here.wait()


def find_checkpoint(folder: Path, here: Processes, tell: Tell) -> Path | None:
    """The last checkpoint that is whole, or None if there is none at all. Each broken one is reported."""
    found: Path | None = None
    if here.first:
        steps = steps_of(folder)
        for step in reversed(steps):
            path = folder / f"{step:08d}"
            if (reason := why_broken(path)) is None:
                found = path
                break
            tell(f"{path} is broken ({reason}); the one before is tried")
        if steps and found is None:
            raise ValueError(f"no checkpoint in {folder} is whole: remove the folder to restart")
    path_or_none: Path | None = here.agree(found)
    return path_or_none


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, here: Processes
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Load model and optimizer, from whole or sharded files; returns the place and the plan's tensors."""
    make_state(optimizer)
    try:
        if (path / "model.safetensors").exists():
            _forget_unused(path, model, optimizer)
            _load_whole(path, training_tensors(model, optimizer))
        else:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                tensors = training_tensors(model, optimizer)
                load(tensors, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=here.world == 1)
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is of another model or optimizer: {error}") from error
    place = read_json(path / NOTE)
    assert place is not None
    own = read_tensors(path / PLAN)[0] if (path / PLAN).exists() else {}
    return {name: value for name, value in place.items() if name not in ("files", "sha256")}, own


def training_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that training changes, by the names of the model's parameters."""
    tensors = {f"model.{name}": each for name, each in own_tensors(model).items()}
    for name, parameter in model.named_parameters():
        for key, each in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{key}"] = each
    return tensors


def make_state(optimizer: torch.optim.Optimizer) -> None:
    """The state that the optimizer has after a step, so that a checkpoint can be read into it.

    An optimizer makes its state at its first step: this one has a rate and gradients of 0.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for each in group["params"]:
            each.grad = torch.zeros_like(each) if each.requires_grad else None
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def steps_of(folder: Path) -> list[int]:
    """The steps that have checkpoints, whole or not."""
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit()) if folder.is_dir() else []


def why_broken(path: Path) -> str | None:
    """What is wrong with a checkpoint, by the hashes of its files; None if it is whole."""
    try:
        if (note := read_json(path / NOTE)) is None:
            return f"{NOTE} is missing"
        if note.pop("sha256", None) != json_hash(note):
            return f"{NOTE} has changed"
        check_hashes(path, note.pop("files", None), path / NOTE)
        if note.get("step") != int(path.name) or not isinstance(note.get("plan"), dict):
            return f"{NOTE} must hold the step {int(path.name)} and the state of a plan"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def _forget_unused(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A parameter that never had a gradient has no state in the file, and shall have none here."""
    with open_tensors(path / "optimizer.safetensors") as file:
        known = set(file.keys())
    for name, parameter in model.named_parameters():
        if not any(each.startswith(f"optimizer.{name}.") for each in known):
            optimizer.state.pop(parameter, None)


def _load_whole(path: Path, tensors: Mapping[str, Tensor]) -> None:
    known: set[str] = set()
    for part in PARTS:
        with open_tensors(path / f"{part}.safetensors") as file:
            known |= set(file.keys())
            for name, target in tensors.items():
                if not name.startswith(part):
                    continue
                value = file.get_tensor(name) if name in known else None
                if value is None or value.shape != target.shape:
                    raise KeyError(f"{name} must be {tuple(target.shape)}")
                copy_whole(target, value)
    if known != set(tensors):
        raise KeyError(f"{min(known ^ set(tensors))} is in only one of them")
