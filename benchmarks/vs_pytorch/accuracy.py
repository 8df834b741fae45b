"""Prints the table of docs/accuracy.md with a column of PyTorch's worst errors for float32, in units in the last place.

    python benchmarks/vs_pytorch/accuracy.py [STRIDE]

needs PyTorch. Inputs are every STRIDE-th float32 (default: 257th), as in //tests/ops:accuracy_test; PyTorch's float64
function is the exact one.
"""

import pathlib
import re
import sys

import torch
from torch.nn import functional as F

CALLS = {  # with other arguments than the defaults, as in tests/ops
    "celu": lambda x: F.celu(x, 0.75),
    "elu": lambda x: F.elu(x, 0.75),
    "gelu": lambda x: [F.gelu(x), F.gelu(x, approximate="tanh")],
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "pow": lambda x: [torch.pow(x, e) for e in (2, 3, -1, -2, 4)],
    "round": lambda x: [torch.round(x), torch.round(x, decimals=1)],
    "softplus": lambda x: F.softplus(x, 2, 4),
}


def worst_error(call, stride: int, piece: int = 1 << 22) -> float:
    worst = 0.0
    for begin in range(0, 2**32 // stride, piece):
        bits = torch.arange(begin, min(begin + piece, 2**32 // stride), dtype=torch.int64) * stride
        x = bits.to(torch.int32).view(torch.float32)
        x = x[x.isfinite()]
        for found, exact in zip(results(call, x), results(call, x.double())):
            exponent = torch.frexp(exact)[1].clamp(min=-125) - 1
            error = (found.double().clamp(-(2.0**128), 2.0**128) - exact).abs() * torch.ldexp(
                torch.ones_like(exact), 23 - exponent)
            error = error[(exact.abs() >= 2.0**-119) & (exact.abs() < 2.0**128)]
            worst = max(worst, error.nan_to_num(nan=torch.inf, posinf=torch.inf).max().item() if error.numel() else 0.0)
    return worst


def results(call, x):
    y = call(x)
    return y if isinstance(y, list) else [y]


def main() -> None:
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 257
    page = pathlib.Path(__file__).parents[2] / "docs/accuracy.md"
    for line in page.read_text().splitlines():
        name = re.match(r"\| `(\w+)` ", line)
        call = name and (CALLS.get(name[1]) or getattr(torch, name[1], None) or getattr(F, name[1], None))
        if call:
            print(line, f"{worst_error(call, stride):.2f} |", flush=True)


if __name__ == "__main__":
    main()
