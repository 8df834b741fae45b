"""Times one collective with PyTorch's gloo. //benchmarks:collectives --python starts one process per rank.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 peer_torch.py OP DTYPE STEP_BYTES SIZE...

Rank 0 prints one line per size: "SIZE in|out MEAN P50 P99 WRONG", in microseconds. Each operation is timed in the one form
that PyTorch has for it.
"""
import sys
import time

import torch
import torch.distributed as dist

HAS_ROW_PER_RANK = ("gather", "all_gather", "scatter", "reduce_scatter", "all_to_all")


def make_call(op, x, rank, world):
    """Returns a function that runs the operation on tensors like x (one row), and its form, "in" or "out"."""
    rows = [torch.zeros_like(x) for _ in range(world)]
    if op == "all_reduce":
        return lambda: dist.all_reduce(x), "in"
    if op == "reduce":
        return lambda: dist.reduce(x, 0), "in"
    if op == "broadcast":
        return lambda: dist.broadcast(x, 0), "in"
    if op == "gather":
        return lambda: dist.gather(x, rows if rank == 0 else None, 0), "out"
    if op == "all_gather":
        return lambda: dist.all_gather(rows, x), "out"
    if op == "scatter":
        return lambda: dist.scatter(x, rows if rank == 0 else None, 0), "out"
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter(x, rows), "out"
    if op == "all_to_all":
        flat, out = torch.cat(rows), torch.cat(rows)
        return lambda: dist.all_to_all_single(out, flat), "out"
    if op == "barrier":
        return dist.barrier, "out"

    def ping_pong():
        if rank == 0:
            dist.send(x, 1)
            dist.recv(rows[0], 1)
        elif rank == 1:
            dist.recv(rows[0], 0)
            dist.send(x, 0)
    return ping_pong, "out"


def main():
    op, dtype, step_bytes = sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    element = torch.tensor([], dtype=dtype).element_size()
    for size in map(int, sys.argv[4:]):
        rows = world if op in HAS_ROW_PER_RANK else 1
        row = max(size // element // rows, 1)
        x = torch.zeros(row, dtype=dtype)
        call, form = make_call(op, x, rank, world)
        wrong = 0
        if op == "all_reduce":
            i = torch.arange(row)
            x.copy_((i + 3 * rank) % 7 + 1)
            call()
            wrong = int((x.double() != sum((i + 3 * r) % 7 + 1 for r in range(world))).sum())
            x.zero_()
        steps = min(max(step_bytes // (row * element * rows), 5), 500)
        for _ in range(steps // 4 + 1):
            call()
        dist.barrier()
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            call()
            times.append((time.perf_counter() - begin) * (0.5e6 if op == "sendrecv" else 1e6))
        totals = torch.tensor([sum(times) / steps, float(wrong)], dtype=torch.float64)
        slowest = totals.clone()
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.sort()
        if rank == 0:
            print(size, form, "%.3f" % slowest[0], "%.3f" % times[steps // 2], "%.3f" % times[(steps - 1) * 99 // 100],
                  int(slowest[1]), flush=True)
    dist.destroy_process_group()


main()
