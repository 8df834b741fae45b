"""One rank of PyTorch's DDP over gloo, the counterpart of benchmarks/two_hosts/rank.cc, with the same weights and data.

    python3 torch_ddp.py CASE STATE.safetensors [--bucket-cap-mb MB,..] [--steps N] [--compress bf16|fp16]

Rank 0 prints one line of JSON for each bucket size.
"""

import argparse
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "vs_pytorch"))

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
import torch_step

HOOKS = {"bf16": default_hooks.bf16_compress_hook, "fp16": default_hooks.fp16_compress_hook}


def median_step_ms(network, optimizer, data, target, steps):
    times = []
    for step in range(steps + 3):
        if step == 3:
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        scores = network(data)
        F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[3:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=torch_step.CASES)
    parser.add_argument("state")
    parser.add_argument("--bucket-cap-mb", default="25")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--compress", choices=("none", *HOOKS), default="none")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    state = torch_step.load_safetensors(args.state)
    data, target = state["input"], state["target"].reshape(-1)
    make_model, make_optimizer, _ = torch_step.CASES[args.case]

    def new_model():
        model = make_model()
        torch_step.load_model(model, state)
        return model

    local = new_model()
    local_ms = median_step_ms(local, make_optimizer(local.parameters()), data, target, args.steps)
    for cap in map(float, args.bucket_cap_mb.split(",")):
        network = DistributedDataParallel(new_model(), gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=cap)
        if args.compress != "none":
            network.register_comm_hook(None, HOOKS[args.compress])
        step_ms = median_step_ms(network, make_optimizer(network.parameters()), data, target, args.steps)
        if dist.get_rank() == 0:
            print(json.dumps({"kind": "torch_ddp", "case": args.case, "bucket_cap_mb": cap, "compress": args.compress,
                              "step_ms": step_ms, "local_ms": local_ms, "version": torch.__version__}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
