#!/usr/bin/env python3
"""The training of //examples/diffusion in PyTorch, on one process: same images, network, optimizer, schedule and averaged weights.

    ./bazelw run //tools/draw_images -- SHAPES --draw plain_shapes --size 32 --train 10000 --val 500 --format safetensors --seed N
    python3 examples/diffusion/torch_diffusion.py --data SHAPES --seed N [--epochs N] [--width N] [--samples FILE] [--channels-last]
    python3 examples/diffusion/torch_diffusion.py --data SHAPES --evaluate results/averaged.safetensors

Prints the error of the averaged network on the images of val and the CPU seconds of the training, and writes a grid of images.
--evaluate prints that error, with the same times and noise, for the network that //examples/diffusion has trained.
"""

import argparse
import copy
import math
import re
import time

import torch
from safetensors.torch import load_file
from torch import nn
import torch.nn.functional as F

TIMES = 1000
SIGNAL = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64), 0)


def start_with_zeros(layer):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    def __init__(self, in_channels, out_channels, embedding, groups):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, in_channels), nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.time = nn.Linear(embedding, out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels)
        self.conv2 = start_with_zeros(nn.Conv2d(out_channels, out_channels, 3, padding=1))
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1) if in_channels != out_channels else nn.Identity()

    def forward(self, x, embedding):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(embedding))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(groups, channels), nn.Linear(channels, 3 * channels)
        self.proj = start_with_zeros(nn.Linear(channels, channels))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x).flatten(2).transpose(1, 2)).chunk(3, -1)
        return x + self.proj(F.scaled_dot_product_attention(q, k, v)).transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    def __init__(self, width, channels=3, multipliers=(1, 1, 2), groups=8, patch=2):
        super().__init__()
        self.width, self.patch, embedding = width, patch, 4 * width
        widths = [width * multiplier for multiplier in multipliers]
        self.time1, self.time2 = nn.Linear(width, embedding), nn.Linear(embedding, embedding)
        self.first = nn.Conv2d(channels * patch ** 2, width, 3, padding=1)
        before = [width] + widths[:-1]
        self.halve = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.down = nn.ModuleList(Block(b, w, embedding, groups) for b, w in zip(before, widths))
        self.middle1, self.middle2 = (Block(widths[-1], widths[-1], embedding, groups) for _ in range(2))
        self.attention = Attention(widths[-1], groups)
        self.up = nn.ModuleList(Block(2 * w, w, embedding, groups) for w in widths)
        self.twice = nn.ModuleList(nn.Conv2d(below, w, 3, padding=1) for w, below in zip(widths, widths[1:]))
        self.norm, self.last = nn.GroupNorm(groups, width), start_with_zeros(nn.Conv2d(width, channels * patch ** 2, 3, padding=1))

    def forward(self, images, times):
        half = self.width // 2
        angles = times[:, None] * torch.exp(torch.arange(half) * (-math.log(10000) / half))
        embedding = self.time2(F.silu(self.time1(torch.cat([angles.sin(), angles.cos()], 1))))
        x = self.first(F.pixel_unshuffle(images, self.patch))
        results = []
        for level, block in enumerate(self.down):
            x = block(self.halve[level - 1](x) if level else x, embedding)
            results.append(x)
        x = self.middle2(self.attention(self.middle1(x, embedding)), embedding)
        for level in reversed(range(len(self.up))):
            if level + 1 < len(self.up):
                x = self.twice[level](F.interpolate(x, scale_factor=2))
            x = self.up[level](torch.cat([x, results[level]], 1), embedding)
        return F.pixel_shuffle(self.last(F.silu(self.norm(x))), self.patch)


def loss_of(model, images, times, noise):
    """The error of the images without noise, weighted as in T. Hang et al., "Efficient diffusion training via min-SNR", ICCV 2023."""
    signal = SIGNAL[times][:, None, None, None]
    images = images * 2 - 1
    predicted = model(signal.sqrt().float() * images + (1 - signal).sqrt().float() * noise, times)
    weight = (signal / (1 - signal)).clamp(0.1, 5).flatten().float()
    return (weight * (predicted - images).square().mean((1, 2, 3))).mean()


@torch.no_grad()
def test_error(model, images):
    generator = torch.Generator().manual_seed(1)
    total = 0
    for batch in images.split(64):
        times = torch.randint(0, TIMES, (len(batch),), generator=generator)
        noise = torch.randn(batch.shape, generator=generator)
        total += loss_of(model, batch, times, noise).item() * len(batch)
    return total / len(images)


def load(model, path):
    """Loads weights of //examples/diffusion, whose names are in, out, halve1, down0 ... instead of first, last, halve.0, down.0 ..."""
    state = {}
    for name, value in load_file(path).items():
        name = re.sub(r"^halve(\d+)", lambda match: "halve.%d" % (int(match[1]) - 1), name)
        name = re.sub(r"^(down|up|twice)(\d+)", r"\1.\2", name)
        state[re.sub(r"^out\.", "last.", re.sub(r"^in\.", "first.", name))] = value
    model.load_state_dict(state)


@torch.no_grad()
def sample(model, x, steps=50):
    """Images from noise x without further noise: J. Song et al., "Denoising diffusion implicit models", ICLR 2021."""
    for step in range(steps, 0, -1):
        t, previous = step * TIMES // steps - 1, (step - 1) * TIMES // steps - 1
        signal, next_signal = SIGNAL[t].item(), SIGNAL[previous].item() if previous >= 0 else 1.0
        image = model(x, torch.full((len(x),), t)).clamp(-1, 1)
        noise = (x - image * signal ** 0.5) / (1 - signal) ** 0.5
        x = image * next_signal ** 0.5 + noise * (1 - next_signal) ** 0.5
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", help="weights of //examples/diffusion to evaluate instead of training")
    parser.add_argument("--samples", help="PNG file for a grid of images")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    images, test_images = (load_file("%s/%s.safetensors" % (args.data, split))["images"] for split in ("train", "val"))

    model = UNet(args.width)
    if args.evaluate:
        load(model, args.evaluate)
        print("test loss %.4f" % test_error(model, test_images))
        return
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    averaged = copy.deepcopy(model).requires_grad_(False)
    adam = torch.optim.Adam(model.parameters(), args.lr)
    total = args.epochs * (len(images) // args.batch_size)
    warmup = total // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: (step + 1) / (warmup + 1) if step < warmup else
        0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))))
    begin, steps = time.process_time(), 0
    for epoch in range(args.epochs):
        order = torch.randperm(len(images))
        for indices in order[:len(order) // args.batch_size * args.batch_size].split(args.batch_size):
            batch = images[indices]
            is_flipped = torch.rand(len(batch), 1, 1, 1) < 0.5
            batch = torch.where(is_flipped, batch.flip(3), batch)
            times, noise = torch.randint(0, TIMES, (len(batch),)), torch.randn_like(batch)
            loss = loss_of(model, batch, times, noise)
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            schedule.step()
            decay = min(args.ema, (1 + steps) / (10 + steps)) if steps else 0
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
            steps += 1
        print("epoch %d: loss %.4f, test loss %.4f" % (epoch + 1, loss.item(), test_error(averaged, test_images)), flush=True)
    print("%d steps, %.1f s of CPU time" % (steps, time.process_time() - begin))
    if args.samples:
        import torchvision
        torchvision.utils.save_image(sample(averaged, torch.randn(64, 3, 32, 32)), args.samples, normalize=True, value_range=(-1, 1))


if __name__ == "__main__":
    main()
