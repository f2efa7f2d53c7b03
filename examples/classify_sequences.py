"""Classify sequences with Hugging Face's Trainer: does a string of brackets close every bracket it opens?

The strings have depth 3 at most, so a cascade of latches can learn them. About half a minute:
python examples/classify_sequences.py
"""

import random
import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments

from latchwork.models.huggingface import MinMaxRNCForSequenceClassification, MinMaxRNCHFConfig

PAD, OPEN, CLOSE, DEEPEST = 0, 1, 2, 3


def draw(rng: random.Random) -> dict[str, object]:
    """A string of 4 to 24 brackets and whether it is closed; half of the strings are spoilt at one place."""
    depth, tokens = 0, []
    for _ in range(rng.randrange(4, 25)):
        opens = depth == 0 or (depth < DEEPEST and rng.random() < 0.5)
        depth += 1 if opens else -1
        tokens.append(OPEN if opens else CLOSE)
    tokens += [CLOSE] * depth
    if spoilt := rng.random() < 0.5:
        place = rng.randrange(len(tokens))
        tokens[place] = OPEN + CLOSE - tokens[place]
    return {"input_ids": tokens, "label": int(not spoilt)}


def collate(rows: list[dict[str, object]]) -> dict[str, torch.Tensor]:
    """Strings of several lengths in one batch; the mask says what is padding."""
    tokens = [torch.tensor(row["input_ids"]) for row in rows]
    return {
        "input_ids": pad_sequence(tokens, batch_first=True, padding_value=PAD),
        "attention_mask": pad_sequence([torch.ones_like(each) for each in tokens], batch_first=True),
        "labels": torch.tensor([row["label"] for row in rows]),
    }


def main(strings: int = 20_000) -> float:
    """Train, print and return the share of new strings that are judged right."""
    rng = random.Random(0)
    torch.manual_seed(0)
    shape = {"d_model": 32, "n_layers": 4, "d_state": 32, "s_r_init": "spread", "ffn_dropout": 0.0}
    model = MinMaxRNCForSequenceClassification(MinMaxRNCHFConfig(vocab_size=3, num_labels=2, **shape))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=64,
            num_train_epochs=1,
            learning_rate=3e-3,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(model, arguments, train_dataset=[draw(rng) for _ in range(strings)], data_collator=collate)
        trainer.train()
        new = [draw(rng) for _ in range(500)]
        found = trainer.predict(new).predictions.argmax(-1)
    right = sum(int(answer) == row["label"] for answer, row in zip(found, new, strict=True)) / len(new)
    print(f"{right:.1%} of 500 new strings are judged right")
    return right


if __name__ == "__main__":
    main()
