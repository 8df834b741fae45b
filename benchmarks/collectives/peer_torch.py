"""The same operations by PyTorch's gloo, for //benchmarks:collectives, which starts one of these per rank.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 peer_torch.py OP DTYPE STEP_BYTES SIZE...

One line for each size and form on rank 0: "SIZE in|out MEAN P50 P99 WRONG", in microseconds.  What gloo does not have, or
has out of place only by a copy, is left out.
"""
import sys
import time

import torch
import torch.distributed as dist

PARTS = ("gather", "all_gather", "scatter", "reduce_scatter", "all_to_all")


def make_call(op, x, rank, world):
    """The operation on tensors like x, a row; and whether it is in place."""
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
        row = max(size // element // (world if op in PARTS else 1), 1)
        x = torch.zeros(row, dtype=dtype)
        call, form = make_call(op, x, rank, world)
        wrong = 0
        if op == "all_reduce":
            i = torch.arange(row)
            x.copy_((i + 3 * rank) % 7 + 1)
            call()
            wrong = int((x.double() != sum((i + 3 * r) % 7 + 1 for r in range(world))).sum())
            x.zero_()
        steps = min(max(step_bytes // (row * element * (world if op in PARTS else 1)), 5), 500)
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
