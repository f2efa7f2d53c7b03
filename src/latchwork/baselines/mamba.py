"""Mamba: the weights of transformers' MambaForCausalLM, run so that a state goes in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.causal_conv import last_inputs
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mamba_mixer import MixerWeights, mamba_mixer
from latchwork.baselines.packages import load


class MambaState(NamedTuple):
    """Of one layer: conv (B, 3, 2 width), the last inputs of the convolution; x (B, 16, 2 width)."""

    conv: Tensor
    x: Tensor


class Mamba(Baseline):
    """Mamba with a state of 16 for each channel, a convolution of 4 and an expansion of 2; the head is the embedding.

    `network` is transformers' own model and gives the same logits; ours is the faster on a CPU, takes a state with
    chunks of any length, and has a backward pass linear in T. On CUDA with mamba_ssm installed its kernel runs. The
    weights start as in mamba_ssm.
    """

    def __init__(self, vocabulary: int, n_layers: int = 2, *, width: int) -> None:
        super().__init__(vocabulary, n_layers)
        transformers = load("transformers")
        config = transformers.MambaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=n_layers,
            state_size=16,
            conv_kernel=4,
            expand=2,
            tie_word_embeddings=True,
            initializer_range=0.02,
            rescale_prenorm_residual=True,
            use_cache=False,
        )
        self.network: Any = transformers.MambaForCausalLM(config)
        for block in self.network.backbone.layers:
            for part in (block.mixer.in_proj, block.mixer.x_proj, block.mixer.conv1d):
                part.reset_parameters()  # torch's own start, as mamba_ssm leaves it

    def initial_state(self, batch_size: int) -> tuple[MambaState, ...]:
        """Zeros."""
        mixers = [block.mixer for block in self.network.backbone.layers]
        return tuple(
            MambaState(
                mixer.D.new_zeros(batch_size, mixer.conv_kernel_size - 1, mixer.intermediate_size),
                mixer.D.new_zeros(batch_size, mixer.ssm_state_size, mixer.intermediate_size),
            )
            for mixer in mixers
        )

    def _run(self, tokens: Tensor, state: tuple[MambaState, ...]) -> tuple[Tensor, tuple[MambaState, ...]]:
        backbone = self.network.backbone
        first, after = backbone.layers[0], []
        u, mapped = self._embed_and_map(
            backbone.embeddings, tokens, lambda each: linear(each, first.mixer.in_proj.weight, norm=_norm(first.norm))
        )
        for block, before in zip(backbone.layers, state, strict=True):
            mapped = mapped if block is first else linear(u, block.mixer.in_proj.weight, norm=_norm(block.norm))
            u, now = _mix(block.mixer, u, mapped, before)
            after.append(now)
        return linear(u, self.network.lm_head.weight, norm=_norm(backbone.norm_f)), tuple(after)


def _norm(norm: Any) -> Norm:
    """transformers' MambaRMSNorm, which computes in float32 whatever its input is; ours in the input's own dtype."""
    return Norm(norm.weight, norm.variance_epsilon, centred=False)


def _mix(mixer: Any, u: Tensor, mapped: Tensor, state: MambaState) -> tuple[Tensor, MambaState]:
    """u and what transformers' MambaMixer computes after its in_proj, going on from a state."""
    conv = mixer.conv1d
    weights = MixerWeights(
        conv.weight,
        conv.bias,
        mixer.x_proj.weight,
        mixer.dt_proj.weight,
        mixer.dt_proj.bias,
        -mixer.A_log.exp().T,
        mixer.D,
    )
    y, x = mamba_mixer(mapped, state.conv, weights, state.x)
    inputs = mapped[..., : mixer.intermediate_size]
    return linear(y, mixer.out_proj.weight, residual=u), MambaState(last_inputs(inputs, state.conv), x)
