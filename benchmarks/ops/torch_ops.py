"""Times calls of PyTorch on one thread for //benchmarks/ops, which starts this program and sends one request per line.

    {"expression": "torch.add(a, b)", "inputs": [{"dtype": "float32", "shape": [2, 3], "requires_grad": true}, ...]}

is followed by the row-major bytes of the inputs, which the expression names a, b, c, ...; the answer is {}. Then

    {"both": false, "seconds": 0.1}

times the call (with "both": and its backward); the answer is {"ms": time of the fastest call}. An answer {"error": text}
ends the program. The first line that the program writes is {"version": PyTorch's version}.
"""

import json
import sys
import time


def answer(**fields):
    print(json.dumps(fields), flush=True)


def read_inputs(torch, inputs):
    tensors = []
    for entry in inputs:
        dtype = getattr(torch, entry["dtype"])
        count = 1
        for size in entry["shape"]:
            count *= size
        data = sys.stdin.buffer.read(count * torch.empty((), dtype=dtype).element_size())
        tensors.append(torch.frombuffer(bytearray(data), dtype=dtype).view(entry["shape"]).clone())
        tensors[-1].requires_grad_(entry["requires_grad"])
    return tensors


def min_ms(call, seconds):
    call()
    begin, best, runs = time.perf_counter(), float("inf"), 0
    while runs < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return 1e3 * best


def serve(torch):
    function = torch.nn.functional
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "expression" in request:
            tensors = read_inputs(torch, request["inputs"])
            names = ", ".join("abcdefghijklmnop"[:len(tensors)])
            run = eval(f"lambda {names}: {request['expression']}", {"torch": torch, "F": function})
            cotangent = torch.randn_like(run(*tensors).detach()) if any(t.requires_grad for t in tensors) else None
            answer()
            continue

        def both():
            for tensor in tensors:
                tensor.grad = None
            run(*tensors).backward(cotangent)

        answer(ms=min_ms(both if request["both"] else lambda: run(*tensors), request["seconds"]))


def main():
    try:
        import torch
    except ImportError as error:
        return answer(error=f"ImportError: {error}")
    torch.set_num_threads(1)
    answer(version=torch.__version__)
    try:
        serve(torch)
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
