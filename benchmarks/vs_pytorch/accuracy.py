"""Prints the table of docs/accuracy.md with a column of PyTorch's worst errors for float32, in units in the last place.

    python benchmarks/vs_pytorch/accuracy.py [STRIDE]

needs PyTorch. Inputs are every STRIDE-th float32 (default: 257th), or pairs of 1021 numbers, as in
//tests/ops:accuracy_test; PyTorch's float64 function is the exact one.
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
PAIRS = {name: getattr(torch, name) for name in ("atan2", "pow", "remainder", "xlogy")}
SIDE = 1021


def numbers(index, stride: int):
    return (index * stride).to(torch.int32).view(torch.float32)


def inputs(stride: int, operands: int, piece: int = 1 << 22):
    for begin in range(0, 2**32 // stride if operands == 1 else SIDE**2, piece):
        if operands == 1:
            x = [numbers(torch.arange(begin, min(begin + piece, 2**32 // stride)), stride)]
        else:
            index = torch.arange(begin, min(begin + piece, SIDE**2))
            x = [numbers(i, 2**32 // SIDE | 1) for i in (index % SIDE, index // SIDE)]
        finite = torch.stack([t.isfinite() for t in x]).all(0)
        yield [t[finite] for t in x]


def worst_error(call, stride: int, operands: int = 1) -> float:
    worst = 0.0
    for x in inputs(stride, operands):
        for found, exact in zip(results(call, x), results(call, [t.double() for t in x])):
            exponent = torch.frexp(exact)[1].clamp(min=-125) - 1
            error = (found.double().clamp(-(2.0**128), 2.0**128) - exact).abs() * torch.ldexp(
                torch.ones_like(exact), 23 - exponent)
            error = error[(exact.abs() >= 2.0**-119) & (exact.abs() < 2.0**128)]
            worst = max(worst, error.nan_to_num(nan=torch.inf, posinf=torch.inf).max().item() if error.numel() else 0.0)
    return worst


def results(call, x):
    y = call(*x)
    return y if isinstance(y, list) else [y]


def main() -> None:
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 257
    page = pathlib.Path(__file__).parents[2] / "docs/accuracy.md"
    for line in page.read_text().splitlines():
        match = re.match(r"\| `(\w+)` ", line)
        if not match:
            continue
        name = match[1]
        one = CALLS.get(name) or (name not in PAIRS and (getattr(torch, name, None) or getattr(F, name)))
        errors = [worst_error(call, stride, n) for call, n in ((one, 1), (PAIRS.get(name), 2)) if call]
        print(line, f"{max(errors):.2f} |", flush=True)


if __name__ == "__main__":
    main()
