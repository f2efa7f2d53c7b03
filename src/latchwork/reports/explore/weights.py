"""A network as data that the page computes its steps from (network.js)."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.models import MinMaxRNC_LM
from latchwork.modules.cells import Cell, MatrixCell, ScalarCell, SelectionCell, TransformationCell
from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import MinMaxNeuron

MOST_PARAMETERS = 4_000_000  # of a page of about 20 MB
CELLS: dict[type[Cell], str] = {
    ScalarCell: "scalar",
    MatrixCell: "matrix",
    SelectionCell: "selection",
    TransformationCell: "transformation",
}


def network_data(model: MinMaxRNC_LM) -> dict[str, Any]:
    """The parts of a network and their weights, float32 in base64."""
    if (size := model.parameter_count()) > MOST_PARAMETERS:
        raise ValueError(f"model must have at most {MOST_PARAMETERS:,} parameters to be put in a page; got {size:,}")
    backbone = model.backbone
    after = backbone.config.use_postlayers_ffn
    return {
        "embedding": numbers(model.embedding.weight),
        "layers": [_layer(layer) for layer in backbone.layers],  # type: ignore[arg-type]
        "normPostFfn": _norm(backbone.norm_postlayers_ffn) if after else None,
        "postFfn": _feed_forward(backbone.postlayers_ffn) if after else None,
        "normPost": _norm(backbone.norm_postlayers),
        "head": numbers(model.head.weight),
    }


def numbers(tensor: Tensor) -> dict[str, Any]:
    """A tensor as its shape and the bytes of its float32 numbers."""
    values = tensor.detach().to("cpu", torch.float32).contiguous()
    return {"shape": list(values.shape), "float32": b64encode(values.numpy().astype("<f4").tobytes()).decode("ascii")}


def _layer(layer: MinMaxLayer) -> dict[str, Any]:
    return {
        "normConv": _norm(layer.norm_conv),
        "conv": _conv(layer.conv),
        "normFfn": _norm(layer.norm_ffn),
        "ffn": _feed_forward(layer.ffn),
        "normNeuron": _norm(layer.norm_neuron),
        "neuron": _neuron(layer.neuron),
    }


def _linear(linear: nn.Linear) -> dict[str, Any]:
    return {"weight": numbers(linear.weight), "bias": None if linear.bias is None else numbers(linear.bias)}


def _norm(norm: nn.Module) -> dict[str, Any]:
    if isinstance(norm, nn.Identity):
        return {"kind": "none"}
    if isinstance(norm, nn.LayerNorm):
        return {"kind": "layernorm", "eps": norm.eps, "weight": numbers(norm.weight), "bias": numbers(norm.bias)}
    if isinstance(norm, nn.RMSNorm):
        eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
        return {"kind": "rmsnorm", "eps": eps, "weight": numbers(norm.weight)}
    raise ValueError(f"the page knows no norm {type(norm).__name__}")


def _conv(conv: BasicConv | GatedConv) -> dict[str, Any]:
    if isinstance(conv, BasicConv):
        return {"kind": "basic", "weight": numbers(conv.weight), "bias": numbers(conv.bias)}
    return {"kind": "gated", "g": numbers(conv.g)}


def _feed_forward(ffn: FeedForward | GatedFeedForward) -> dict[str, Any]:
    kind = "gated" if isinstance(ffn, GatedFeedForward) else "basic"
    return {"kind": kind, "act": ffn.act_fn, "up": _linear(ffn.up), "down": _linear(ffn.down)}


def _neuron(neuron: MinMaxNeuron) -> dict[str, Any]:
    cells = []
    for cell in neuron.cells:
        if type(cell) not in CELLS:
            raise ValueError(f"the page knows no cell {type(cell).__name__}; it knows {', '.join(CELLS.values())}")
        degree, levels = getattr(cell, "degree", 1), getattr(cell, "levels", None)
        cells.append({"kind": CELLS[type(cell)], "size": cell.size, "degree": degree, "levels": levels})  # type: ignore[index]
    return {
        "cells": cells,
        "projection": _linear(neuron.projection),
        "output": _linear(neuron.output),
        "gate": neuron.output_gate,
        "start": numbers(neuron.start()),
    }
