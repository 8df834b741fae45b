#!/usr/bin/env python3
"""The training of //examples/reinforce in PyTorch, on one process: same simulation, network, optimizer and batches.

    python3 examples/reinforce/torch_reinforce.py [--max-steps N] [--batch-size N] [--seed N]

Prints the mean return of the likeliest actions in 64 test episodes, and the CPU seconds of the training.
"""

import argparse
import math
import time

import torch
from torch import nn
import torch.nn.functional as F

MAX_LENGTH = 500  # of an episode


def starts(episodes, generator=None):
    return torch.rand(episodes, 4, generator=generator) * 0.1 - 0.05


def move(states, actions):
    """One step of the simulation, as in cart_pole.cc."""
    x, velocity, angle, angular_velocity = states.unbind(1)
    force = torch.where(actions == 1, 10.0, -10.0)
    sine, cosine = angle.sin(), angle.cos()
    push = (force + 0.05 * angular_velocity ** 2 * sine) / 1.1
    angular_acceleration = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine ** 2 / 1.1))
    acceleration = push - 0.05 * angular_acceleration * cosine / 1.1
    return torch.stack([x + 0.02 * velocity, velocity + 0.02 * acceleration, angle + 0.02 * angular_velocity,
                        angular_velocity + 0.02 * angular_acceleration], 1)


@torch.no_grad()
def play(policy, first, gamma, is_greedy):
    """States, actions and discounted returns of all steps of an episode from each start, and the episodes' lengths."""
    states = first.double()
    is_balanced = torch.ones(len(states), dtype=torch.bool)
    all_states, all_actions, masks = [], [], []
    while is_balanced.any() and len(masks) < MAX_LENGTH:
        logits = policy(states.float())
        actions = logits.argmax(1) if is_greedy else torch.multinomial(logits.softmax(1), 1).squeeze(1)
        all_states.append(states.float())
        all_actions.append(actions)
        masks.append(is_balanced)
        states = move(states, actions)
        is_balanced = is_balanced & (states[:, 0].abs() <= 2.4) & (states[:, 2].abs() <= 12 * math.pi / 180)
    mask = torch.stack(masks)
    lengths = mask.sum(0)
    remaining = lengths - torch.arange(len(mask))[:, None]  # steps until the end, each with reward 1
    returns = (1 - gamma ** remaining.double()) / (1 - gamma)
    return torch.stack(all_states)[mask], torch.stack(all_actions)[mask], returns[mask], lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    adam = torch.optim.Adam(policy.parameters(), lr=args.lr)
    begin = time.process_time()
    for step in range(args.max_steps):
        states, actions, returns, lengths = play(policy, starts(args.batch_size), args.gamma, False)
        advantages = ((returns - returns.mean()) / (returns.std(unbiased=False) + 1e-8)).float()
        loss = (F.cross_entropy(policy(states), actions, reduction="none") * advantages).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if (step + 1) % 20 == 0:
            print("step %d: return %.1f" % (step + 1, lengths.double().mean().item()), flush=True)
    lengths = play(policy, starts(64, torch.Generator().manual_seed(1)), args.gamma, True)[3]
    print("test return %.4f; %.1f s of CPU time" % (lengths.double().mean().item(), time.process_time() - begin))


if __name__ == "__main__":
    main()
