"""A small model with weights large enough for its outputs to differ."""

import pytest
import torch

from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig

VOCABULARY = 14
KINDS = {  # what a model may be, as far as saving, state and padding can tell
    "plain": {},
    "degree 2, gated convolution": {"degree": 2, "conv_type": "gated"},
    "untied, learnt x0": {"tie_weights": False, "train_init": True},
    "feed-forward at the end": {"use_postlayers_ffn": True, "norm": "rmsnorm", "levels": 5},
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def make_model(seed=18, **changes):
    """Its matrices are drawn here, so that no test depends on the order in which a model draws its own."""
    config = MinMaxRNCLMConfig.small(**{"d_model": 12, "d_state": 10, "n_layers": 3, **changes})
    model = MinMaxRNC_LM(VOCABULARY, config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=draw)
            if parameter.dim() > 1:
                parameter.copy_(drawn * (4 if "neuron.output" in name else 2) / parameter.shape[1] ** 0.5)
            else:
                parameter.add_(drawn, alpha=0.2)
    return model.eval()


def tokens(*shape, seed=1):
    return torch.randint(2, 14, shape, generator=torch.Generator().manual_seed(seed))


def pad(rows, masks, filling):
    """The tokens of each row at the ones of its mask, `filling` elsewhere."""
    mask = torch.tensor(masks)
    padded = torch.full(mask.shape, filling)
    for number, row in enumerate(rows):
        padded[number, mask[number].bool()] = row
    return padded, mask


PADDINGS = {
    "left": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]],
    "right": [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]],
    "holes": [[0, 1, 0, 0, 1, 1], [1, 0, 1, 0, 1, 0], [0, 1, 1, 1, 1, 0]],
}
paddings = pytest.mark.parametrize("masks", PADDINGS.values(), ids=PADDINGS)
