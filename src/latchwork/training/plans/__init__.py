"""The plans of the engine: epochs (the paper's protocol), by length, until proved, and steps (language models)."""
