"""How fast training steps, kernels and collectives are, and the tuning file that makes products faster."""

import contextlib
import json
import math
import os
import re
import sys

from gpu_checks import smoke

CASES = ["mlp", "lenet", "resnet18", "gpt-small", "gpt-384", "gpt2-124m-4", "gpt2-124m-64"]
LEADING = [("gpt2-124m-64", "--amp"), ("gpt2-124m-4", "--amp")]
# In float32 the largest case takes a minute, and nobody trains so.
STEPS = LEADING + [(case, flag) for case in CASES for flag in ("", "--tf32", "--amp")
                   if (case, flag) not in LEADING and (case, flag) != ("gpt2-124m-64", "")]
# How far ten steps' losses may be from PyTorch's, relatively, where products are exact and where they are rounded to 11 and to 8 bits.
FROM_TORCH = {"": 1e-3, "--tf32": 5e-3, "--amp": 3e-2}


def largest_difference(ours, theirs):
    """Of two lists, relative to the second; infinite where they are not as long."""
    if len(ours) != len(theirs) or not ours:
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-12) if math.isfinite(a) and math.isfinite(b) else math.inf for a, b in zip(ours, theirs))


def seconds_of(case):
    return 120 if case.startswith("gpt2") else 60


def weights_of(check, case):
    """The file of a case's weights and data, from which both sides start; None where there is none."""
    name = f"{case}.safetensors"
    if os.path.exists(os.path.join(check.folder, name)):
        return name
    saved = check.run(f"{case}: weights", ["./train_step", "--case", case, "--save", name], 60)
    if saved is None:
        return None
    if saved.returncode != 0:
        check.failed = True
        check.report["not_run"].append(f"{case}: no weights; {saved.stdout[-500:]}")
        return None
    return name


def has_torch():
    try:
        import torch  # pylint: disable=import-outside-toplevel
        return torch.cuda.is_available()
    except ImportError:
        return False


def steps(check, which, with_torch):
    """Training steps, with the time of each operation, and PyTorch's from the same weights; then captured."""
    for case, flag in which:
        weights = weights_of(check, case)
        if weights is None:
            continue
        flags = [flag] if flag else []
        name = " ".join([case, *flags])
        command = ["./train_step", "--case", case, "--load", weights, "--device", "cuda", *flags]
        ours = check.lines(name, [*command, "--losses", "--operations"], seconds_of(case))
        check.report["train_step"] += ours
        for more in (["--fused"], ["--fused", "--compile"]):
            if not with_torch or "--compile" in more and not case.startswith("gpt2"):
                continue  # compiling takes a minute
            for line in check.lines(f"{name} in PyTorch {' '.join(more)}",
                                    [sys.executable, "torch_step.py", case, weights, "--device", "cuda", *flags, *more], 150):
                check.report["torch"].append({"case": name, "flags": more, **line})
                if "losses" not in line or not ours or "losses" not in ours[-1]:
                    continue  # the report has that failure already
                difference = largest_difference(ours[-1]["losses"], line["losses"])
                if not difference <= FROM_TORCH[flag]:
                    check.differ(f"{name}: losses are {difference:.1e} from PyTorch's {' '.join(more)}")
        check.report["train_step"] += check.lines(f"{name}, captured", [*command, "--graph"], seconds_of(case))


def speed(check):
    """The steps that everybody asks for, rows, several GPUs, then all other steps."""
    check.report["train_step"], check.report["torch"] = [], []
    with_torch = has_torch()
    if not with_torch:
        check.report["not_run"].append("PyTorch: not installed, or without a GPU")
    steps(check, LEADING, with_torch)
    check.report["rows"] = check.lines("rows", ["./rows"], 120)
    many(check)
    steps(check, STEPS[len(LEADING):], with_torch)


def many(check):
    """Collectives between all GPUs, and what examples do in a second on one of them and on all, with as much work for each."""
    num_gpus = len(check.report["gpus"])
    if num_gpus < 2:
        check.report["not_run"].append("bandwidth of collectives, and scaling: they take two GPUs")
        return
    rows = os.path.join(check.folder, "collectives.json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(rows)
    done = check.run("collectives", ["./collectives", "--backend", "nccl", "--world", str(num_gpus), "--op",
                                     "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all", "--dtype", "float32,bfloat16",
                                     "--min", "1K", "--max", "256M", "--factor", "16", "--rounds", "1", "--json", rows], 120)
    if done is not None:
        check.failed = check.failed or done.returncode != 0
        check.report["collectives"] = {"status": done.returncode, "table": done.stdout.splitlines()}
        if os.path.exists(rows):
            with open(rows, encoding="utf-8") as file:
                check.report["collectives"]["rows"] = [json.loads(line) for line in file]
    check.report["scaling"] = []
    trained = {"gpt_char": ["--max-steps", "300", *smoke.text_for_gpt(check.folder)], "resnet_cifar": ["--max-steps", "150"]}
    for name, arguments in trained.items():
        for ranks in (1, num_gpus):
            done = check.run(f"{name} on {ranks} GPU(s)", [f"./{name}", *arguments, "--device", "cuda", "--nproc", str(ranks),
                                                           "--log-every", "50", "--out", f"out_{name}_on_{ranks}"], 60)
            if done is None:
                continue
            rates = re.findall(r" (\d+) (\w+)/s ", done.stdout)
            check.failed = check.failed or done.returncode != 0 or not rates
            row = {"name": name, "ranks": ranks, "status": done.returncode}
            if rates:
                row.update(rate=int(rates[-1][0]), of=rates[-1][1])
            else:
                row["output"] = done.stdout[-2000:]
            check.report["scaling"].append(row)


def tune(check):
    """Measures cuBLASLt's algorithms for the products of all steps into a tuning file next to the report, and times steps with it."""
    path = os.path.splitext(check.out)[0] + ".tuning"
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # its choices would be kept
    check.report["tuning"] = {"file": os.path.basename(path), "products": 0, "train_step": []}
    for case, flag in STEPS:
        command = ["./train_step", "--case", case, "--device", "cuda", "--steps", "1", *([flag] if flag else [])]
        check.lines(" ".join(["tune", case, flag]).rstrip(), command, seconds_of(case), {"TANDEM_TUNING_WRITE": path})
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                check.report["tuning"]["products"] = sum(" = " in line for line in file)
    if check.report["tuning"]["products"] == 0:
        check.failed = True
        check.report["not_run"].append("tune: no product was measured")
        return
    for case, flag in LEADING:
        check.report["tuning"]["train_step"] += check.lines(
            f"{case} {flag}, tuned", ["./train_step", "--case", case, "--device", "cuda", flag], seconds_of(case), {"TANDEM_TUNING_FILE": path})
