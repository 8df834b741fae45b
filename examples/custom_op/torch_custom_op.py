#!/usr/bin/env python3
"""The training of //examples/custom_op in PyTorch, on one process: the same operation of PyTorch's own operations.

    python3 examples/custom_op/torch_custom_op.py [--seed N]

Prints the mean squared error beyond the training data, and the CPU seconds of the training.
"""

import argparse
import time

import torch
from torch import nn


class Snake(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x = x * self.scale
        return x + torch.sin(x) ** 2


def wave(x):
    return torch.sin(2 * x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    x = torch.linspace(-5, 5, 8192)[:, None]
    net = nn.Sequential(nn.Linear(1, 64), Snake(64), nn.Linear(64, 1))
    adamw = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    begin = time.process_time()
    for _ in range(30):
        for batch in torch.randperm(len(x)).split(128):
            loss = nn.functional.mse_loss(net(x[batch]), wave(x[batch]))
            adamw.zero_grad()
            loss.backward()
            adamw.step()
    seconds = time.process_time() - begin
    shown = torch.linspace(-10, 10, 401)[:, None]
    unseen = shown[shown.abs() > 5][:, None]
    with torch.no_grad():
        error = nn.functional.mse_loss(net(unseen), wave(unseen)).item()
    print("squared error beyond the training data %.4g; %.1f s of CPU time" % (error, seconds))


if __name__ == "__main__":
    main()
