"""Text and tokens: documents, tokenizers, and corpora of token shards on disk."""
