#!/usr/bin/env python3
"""The training of //examples/gan in PyTorch, on one process: same digits, networks, initial distributions and optimizers.

    ./bazelw run //tools/draw_images -- DIGITS --draw digits --train 20000 --val 2000 --format safetensors --seed N
    python3 examples/gan/torch_gan.py --data DIGITS --seed N [--epochs N] [--out FILE] [--channels-last]

Prints the mean probability that the discriminator gives to real and to generated digits, and the CPU seconds of the training, and
saves both networks for score_digits.py.
"""

import argparse
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks/vs_pytorch"))
from torch_step import Dcgan  # noqa: E402


class Gan(Dcgan):
    def __init__(self):
        super().__init__(width=16, channels=1, levels=3)
        for parameter in self.parameters():  # as in PyTorch's example dcgan
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1, 0.02)


def to_images(digits):
    return F.pad(digits, (2, 2, 2, 2)) * 2 - 1


def noise(count):
    return torch.randn(count, 100, 1, 1)


def loss_of(logits, target):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="torch_gan.safetensors")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    digits = load_file(args.data + "/train.safetensors")["images"]
    test_digits = load_file(args.data + "/val.safetensors")["images"][:256]

    gan = Gan()
    if args.channels_last:
        gan = gan.to(memory_format=torch.channels_last)
    generator, discriminator = gan.generator, gan.discriminator
    generator_adam = torch.optim.Adam(generator.parameters(), args.lr, (0.5, 0.999))
    discriminator_adam = torch.optim.Adam(discriminator.parameters(), args.lr, (0.5, 0.999))
    begin = time.process_time()
    for epoch in range(args.epochs):
        order = torch.randperm(len(digits))
        for batch in order[:len(order) // args.batch_size * args.batch_size].split(args.batch_size):
            discriminator.requires_grad_(True)
            with torch.no_grad():
                fake = generator(noise(len(batch)))
            loss_d = loss_of(discriminator(to_images(digits[batch])), 1) + loss_of(discriminator(fake), 0)
            discriminator_adam.zero_grad()
            loss_d.backward()
            discriminator_adam.step()
            discriminator.requires_grad_(False)
            loss_g = loss_of(discriminator(generator(noise(len(batch)))), 1)
            generator_adam.zero_grad()
            loss_g.backward()
            generator_adam.step()
        print("epoch %d: discriminator loss %.4f, generator loss %.4f" % (epoch + 1, loss_d.item(), loss_g.item()), flush=True)
    seconds = time.process_time() - begin
    gan.eval()
    with torch.no_grad():
        real = discriminator(to_images(test_digits)).sigmoid().mean().item()
        generated = discriminator(generator(noise(64))).sigmoid().mean().item()
    print("probability of real digits %.4f, probability of generated digits %.4f; %.1f s of CPU time" % (real, generated, seconds))
    save_file({key: value.contiguous() for key, value in gan.state_dict().items()}, args.out)


if __name__ == "__main__":
    main()
