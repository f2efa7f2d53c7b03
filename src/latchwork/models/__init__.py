"""The cascade and the language model."""

from latchwork.models.backbone import MinMaxRNC
from latchwork.models.config import MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.models.minmaxrnc import from_minmaxrnc

__all__ = ["MinMaxRNC", "MinMaxRNCConfig", "MinMaxRNCLMConfig", "MinMaxRNC_LM", "from_minmaxrnc"]
