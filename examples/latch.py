"""Replace nn.LSTM by Latch: the digits of scikit-learn, read pixel by pixel, in about ten seconds.

python examples/latch.py          # Latch
python examples/latch.py lstm     # nn.LSTM in the same lines
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

from latchwork import Latch


def main(kind: str = "latch", epochs: int = 15) -> float:
    """Train, print and return the share of test images that are read right."""
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x).float().div(16).unsqueeze(-1), torch.tensor(y)  # (1797, 64 steps, 1 number)
    layer = nn.LSTM(1, 40, 2, batch_first=True) if kind == "lstm" else Latch(1, 40, 2, batch_first=True)
    head = nn.Linear(40, 10)
    parameters = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=epochs)
    for _ in range(epochs):
        for rows in torch.randperm(1350).split(32):
            output, _ = layer(x[rows])  # the state, the second result, can be given to the next call
            loss = nn.functional.cross_entropy(head(output.mean(1)), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        output, _ = layer(x[1350:])
        right = (head(output.mean(1)).argmax(-1) == y[1350:]).float().mean().item()
    print(f"{kind}: {right:.1%} of the test images are right")
    return right


if __name__ == "__main__":
    main(*sys.argv[1:2])
