"""Pretraining of language models: tokens from disk, configurations, the loop, and what a run leaves."""
