"""What a trained or fresh model does, measured."""

from latchwork.evaluation.diagnostics import LatchReport, latch_report, latch_states

__all__ = ["LatchReport", "latch_report", "latch_states"]
