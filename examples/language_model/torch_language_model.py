#!/usr/bin/env python3
"""The training of //examples/language_model in PyTorch, on one process: same text, windows, networks, optimizer and schedule.

    python3 examples/language_model/torch_language_model.py --data FILE --model gpt|lstm [--max-steps N] [--batch-size N] [--seed N]

Prints the validation loss every 100 steps, and the CPU seconds of the training.
"""

import argparse
import math
import time

import torch
from torch import nn
import torch.nn.functional as F

CONTEXT = 128


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.attn_c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width=128, layers=4, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if "c_proj" in name else 0.02)

    def forward(self, tokens):
        return self.ln_f(self.h(self.wte(tokens) + self.wpe.weight[:tokens.size(1)])) @ self.wte.weight.t()


class Lstm(nn.Module):
    def __init__(self, vocabulary, width=256, layers=2):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


def windows(text, starts):
    return torch.stack([text[i:i + CONTEXT] for i in starts]), torch.stack([text[i + 1:i + CONTEXT + 1] for i in starts])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=("gpt", "lstm"), default="gpt")
    parser.add_argument("--max-steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with open(args.data, "rb") as file:
        text = file.read()
    index = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([index[character] for character in text])
    training, validation = tokens.split([len(tokens) * 9 // 10, len(tokens) - len(tokens) * 9 // 10])

    model = Gpt(len(index)) if args.model == "gpt" else Lstm(len(index))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                              lr=args.lr, betas=(0.9, 0.99))
    total, warmup = args.max_steps, args.max_steps // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adamw, lambda step: (step + 1) / (warmup + 1) if step < warmup else
        0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))))

    @torch.no_grad()
    def evaluate():
        sum_of_losses = count = 0
        for starts in torch.arange(0, len(validation) - CONTEXT, CONTEXT).split(32):
            x, y = windows(validation, starts.tolist())
            sum_of_losses += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
            count += y.numel()
        return sum_of_losses / count

    starts = torch.randperm(len(training) - CONTEXT)
    begin = time.process_time()
    for step in range(total):
        x, y = windows(training, starts[step * args.batch_size:(step + 1) * args.batch_size].tolist())
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        if (step + 1) % 100 == 0 or step + 1 == total:
            print("step %d: loss %.4f, validation loss %.4f" % (step + 1, loss.item(), evaluate()), flush=True)
    print("%.1f s of CPU time" % (time.process_time() - begin))


if __name__ == "__main__":
    main()
