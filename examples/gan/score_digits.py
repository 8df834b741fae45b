#!/usr/bin/env python3
"""Scores the generators of //examples/gan (model.safetensors) and of torch_gan.py by a LeNet that was trained on the same digits.

    python3 examples/gan/score_digits.py --data DIGITS FILE...

DIGITS: as for torch_gan.py. For 2000 images of each generator, and for the digits of val:

score       exp(mean of KL(p(class | image) || p(class))), T. Salimans et al., "Improved techniques for training GANs", NeurIPS 2016:
            from 1 (one class, or none recognizable) to 10
confidence  mean probability of the likeliest class
distance    Frechet distance between the features of the images and of half of val, M. Heusel et al., "GANs trained by a two
            time-scale update rule converge to a local Nash equilibrium", NeurIPS 2017
"""

import argparse

import torch
from safetensors.torch import load_file
from torch import nn
import torch.nn.functional as F

from torch_gan import Gan, noise, to_images


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5)
        self.fc1, self.fc2 = nn.Linear(1600, 128), nn.Linear(128, 10)

    def features(self, images):
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.relu(self.fc1(x.flatten(1)))

    def forward(self, images):
        return self.fc2(self.features(images))


def train_classifier(digits, labels):
    net = LeNet()
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for batch in torch.randperm(len(digits)).split(64):
        adam.zero_grad()
        F.cross_entropy(net(to_images(digits[batch])), labels[batch]).backward()
        adam.step()
    return net.eval()


def frechet_distance(a, b):
    covariance_a, covariance_b = torch.cov(a.T), torch.cov(b.T)
    root = torch.linalg.eigvals(covariance_a @ covariance_b).real.clamp_min(0).sqrt().sum()
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + covariance_a.trace() + covariance_b.trace() - 2 * root


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    torch.manual_seed(0)
    train, val = (load_file("%s/%s.safetensors" % (args.data, split)) for split in ("train", "val"))
    net = train_classifier(train["images"], train["labels"])
    first, second = (to_images(half) for half in val["images"].chunk(2))
    with torch.no_grad():
        reference = net.features(second).double()

        def show(name, images):
            p = net(images).double().softmax(1)
            score = (p * (p.clamp_min(1e-12).log() - p.mean(0).clamp_min(1e-12).log())).sum(1).mean().exp()
            distance = frechet_distance(net.features(images).double(), reference)
            print("%s: score %.3f, confidence %.3f, distance %.1f" % (name, score, p.max(1).values.mean(), distance), flush=True)

        show("digits of val", first)
        for path in args.files:
            gan = Gan().eval()
            gan.load_state_dict(load_file(path))
            torch.manual_seed(7)
            show(path, torch.cat([gan.generator(noise(250)) for _ in range(8)]))


if __name__ == "__main__":
    main()
