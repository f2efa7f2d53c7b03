"""Learn to multiply the six permutations of S3, with a proof for words of any length: python examples/demo.py FOLDER

Training and proving take turns: a word on which the network is wrong goes back into its training data. The network is
written to FOLDER/s3.
"""

import sys
from pathlib import Path

import torch

from latchwork.experiments.zoo import make

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    if (folder / "s3" / "proof.json").exists():
        sys.exit(print(f"{folder / 's3'} is proved already"))
    torch.set_num_threads(1)
    print("learning word_problem(S3): a line for each round of training and proving", flush=True)
    if not make("s3", folder):
        sys.exit("the training ended without a proof")
