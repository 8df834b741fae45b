#!/usr/bin/env python3
"""The training of //examples/finetune_gpt2 in PyTorch and transformers, on one process: same folder, text, windows, optimizer and
schedule.

    python3 examples/finetune_gpt2/torch_finetune_gpt2.py --model FOLDER --data FILE [--context N] [--epochs N] [--lr X] [--seed N]

Prints the validation loss before the training and after each epoch, and the CPU seconds of the training.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = transformers.GPT2Tokenizer(args.model + "/vocab.json", args.model + "/merges.txt")
    model = transformers.GPT2LMHeadModel.from_pretrained(args.model)
    with open(args.data, encoding="utf-8") as file:
        tokens = torch.tensor(tokenizer.encode(file.read()))
    split = len(tokens) // 10 * 9
    # Disjoint windows, each with the tokens that follow.
    training, validation = (part.unfold(0, args.context + 1, args.context) for part in (tokens[:split], tokens[split:]))

    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], lr=args.lr)
    total = args.epochs * (len(training) // args.batch_size)
    warmup = total // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adamw, lambda step: (step + 1) / (warmup + 1) if step < warmup else
        0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))))

    def loss_of(windows, reduction="mean"):
        return F.cross_entropy(model(windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)

    @torch.no_grad()
    def evaluate():
        model.eval()
        sum_of_losses = sum(loss_of(batch, "sum").item() for batch in validation.split(args.batch_size))
        model.train()
        return sum_of_losses / (len(validation) * args.context)

    print("%d tokens; validation loss %.4f before the training" % (len(tokens), evaluate()), flush=True)
    begin = time.process_time()
    for epoch in range(args.epochs):
        order = torch.randperm(len(training))
        for batch in order[:len(order) // args.batch_size * args.batch_size].split(args.batch_size):
            loss = loss_of(training[batch])
            adamw.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adamw.step()
            schedule.step()
        print("epoch %d: loss %.4f, validation loss %.4f" % (epoch + 1, loss.item(), evaluate()), flush=True)
    print("%.1f s of CPU time" % (time.process_time() - begin))


if __name__ == "__main__":
    main()
