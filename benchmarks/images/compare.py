#!/usr/bin/python3
"""Times decoding and augmenting JPEG files by tandem and by torchvision with Pillow, alternating, on one thread each.

    ./bazelw run //benchmarks:images -- --python /path/to/python [--data FOLDER] [--rounds N]

Both read the same files, crop a random window, resize it to 224x224, flip half of the images, and normalize. Without --data the
files are drawn. Prints microseconds of processor time per image: the median of the rounds, and the least.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

PEER = """
import json, sys, time
import torch
from torchvision import datasets, transforms
torch.set_num_threads(1)
transform = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
folder = datasets.ImageFolder(sys.argv[1], allow_empty=True)
torch.manual_seed(1)
folder[0], transform(folder[0][0])
result = {}
for name, f in (("decode_us", lambda i: folder[i]), ("all_us", lambda i: transform(folder[i][0]))):
    begin = time.process_time()
    for i in range(len(folder)):
        f(i)
    result[name] = 1e6 * (time.process_time() - begin) / len(folder)
print(json.dumps(result))
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (command[0], done.stderr[-500:]))
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter with torchvision and Pillow")
    parser.add_argument("--data", help="folder with a subfolder of JPEG files per class")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data
        if data is None:
            run("tools/draw_images/draw_images", folder, "--train", "500", "--val", "1", "--size", "256")
            data = os.path.join(folder, "train")
        times = {"tandem": [], "torchvision": []}
        for _ in range(args.rounds):
            times["tandem"].append(json.loads(run("benchmarks/images/images", "--data", os.path.abspath(data))))
            times["torchvision"].append(json.loads(run(args.python, "-c", PEER, data)))
    for name, rounds in times.items():
        for part in ("decode_us", "all_us"):
            values = [result[part] for result in rounds]
            print("%-11s %-9s median %.0f, least %.0f" % (name, part, statistics.median(values), min(values)))


if __name__ == "__main__":
    main()
