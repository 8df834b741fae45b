#!/usr/bin/env python3
"""The training of //examples/imagenet --model resnet18 in PyTorch and torchvision, on one process: same images, transforms, network,
optimizer, schedule and averaged weights.

    ./bazelw run //tools/draw_images -- IMAGES --train 5000 --val 1000 --size 64
    python3 examples/imagenet/torch_imagenet.py --data IMAGES [--size N] [--epochs N] [--batch-size N] [--lr X] [--seed N] [--channels-last]

Prints loss and accuracy of the averaged weights on the validation images, and the CPU seconds of the training and of the process
that reads images.
"""

import argparse
import math
import os
import resource

import torch
import torchvision
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.transforms import v2

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def cpu_seconds():
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    train = torchvision.datasets.ImageFolder(
        os.path.join(args.data, "train"),
        v2.Compose([v2.RandomResizedCrop(args.size, scale=(0.25, 1)), v2.RandomHorizontalFlip(), *last]))
    val = torchvision.datasets.ImageFolder(
        os.path.join(args.data, "val"), v2.Compose([v2.Resize(args.size * 256 // 224), v2.CenterCrop(args.size), *last]))
    classes = len(train.classes)
    loader = torch.utils.data.DataLoader(train, args.batch_size, shuffle=True, num_workers=1, drop_last=True)
    mixup = v2.MixUp(alpha=0.2, num_classes=classes)

    model = torchvision.models.resnet18(num_classes=classes)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    steps = args.epochs * len(loader)
    warmup = steps // 20

    def rate(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    begin = cpu_seconds()
    for epoch in range(args.epochs):
        model.train()
        total = 0
        for images, labels in loader:
            images, labels = mixup(images, labels)
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            averaged.update_parameters(model)
            total += loss.item()
        averaged.eval()
        right = loss = 0
        with torch.no_grad():
            for images, labels in torch.utils.data.DataLoader(val, 256):
                logits = averaged(images)
                loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
                right += (logits.argmax(1) == labels).sum().item()
        print("epoch %d: loss %.4f, validation loss %.4f, validation accuracy %.2f %%" %
              (epoch + 1, total / len(loader), loss / len(val), 100 * right / len(val)), flush=True)
    print("%.1f s of CPU time" % (cpu_seconds() - begin))


if __name__ == "__main__":
    main()
