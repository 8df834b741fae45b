#!/usr/bin/env python3
"""The training of //examples/mnist in PyTorch, on one process: same drawn digits, networks and optimizer.

    ./bazelw run //tools/draw_images -- DIGITS --draw digits --train 20000 --val 2000 --format safetensors --seed N
    python3 examples/mnist/torch_mnist.py --data DIGITS --model mlp|lenet --seed N [--epochs N] [--channels-last]

Prints loss and accuracy on the digits of val after each epoch, and the CPU seconds of the training.
"""

import argparse
import time

import torch
from safetensors.torch import load_file
from torch import nn


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                             nn.Linear(1024, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=("mlp", "lenet"), default="mlp")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train, val = (load_file("%s/%s.safetensors" % (args.data, split)) for split in ("train", "val"))
    model = make_model(args.model)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    begin = time.process_time()
    for epoch in range(args.epochs):
        order = torch.randperm(len(train["images"]))
        for batch in order[:len(order) // args.batch_size * args.batch_size].split(args.batch_size):
            loss = nn.functional.cross_entropy(model(train["images"][batch]), train["labels"][batch])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        with torch.no_grad():
            logits = torch.cat([model(images) for images in val["images"].split(256)])
        print("epoch %d: test loss %.4f, test accuracy %.2f %%" %
              (epoch + 1, nn.functional.cross_entropy(logits, val["labels"]).item(),
               100 * (logits.argmax(1) == val["labels"]).double().mean().item()), flush=True)
    print("%.1f s of CPU time" % (time.process_time() - begin))


if __name__ == "__main__":
    main()
