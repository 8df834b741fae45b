"""Times training steps, kernels and collectives, and creates a tuning file for matrix products."""

import contextlib
import json
import math
import os
import re
import sys

from gpu_checks import smoke

CASES = ["mlp", "lenet", "resnet18", "gpt-small", "gpt-384", "lstm", "gpt2-124m-4", "gpt2-124m-64"]
TUNED = [("gpt2-124m-64", "--amp"), ("gpt2-124m-4", "--amp")]
LEADING = TUNED + [("resnet50-256", "--amp")]
# Without the largest case in float32, which takes a minute and is not realistic.
STEPS = LEADING + [(case, flag) for case in CASES for flag in ("", "--tf32", "--amp")
                   if (case, flag) not in LEADING and (case, flag) != ("gpt2-124m-64", "")]
# Allowed relative difference to PyTorch's losses over ten steps: matrix products in float32, TF32 (11 bits) and
# bfloat16 (8 bits).
TORCH_TOLERANCE = {"": 1e-3, "--tf32": 5e-3, "--amp": 3e-2}


def largest_difference(ours, theirs):
    """Largest difference of two lists, relative to the second; infinite if their lengths differ."""
    if len(ours) != len(theirs) or not ours:
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-12) if math.isfinite(a) and math.isfinite(b) else math.inf for a, b in zip(ours, theirs))


def is_large(case):
    return case.startswith(("gpt2", "resnet50"))


def seconds_of(case):
    return 120 if is_large(case) else 60


def weights_of(check, case):
    """Creates the file with a case's weights and data, unless it exists; returns its name, or None after an error."""
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
    """Times training steps with the time of each operation, PyTorch's steps with the same weights, and captured steps."""
    for case, flag in which:
        weights = weights_of(check, case)
        if weights is None:
            continue
        flags = [flag] if flag else []
        name = " ".join([case, *flags])
        command = ["./train_step", "--case", case, "--load", weights, "--device", "cuda", *flags]
        ours = check.lines(name, [*command, "--losses", "--operations"], seconds_of(case))
        check.report["train_step"] += ours
        order = ["--channels-last"] if case.startswith("resnet") else []
        for more in (["--fused", *order], ["--fused", *order, "--compile"]):
            if not with_torch or "--compile" in more and not is_large(case):
                continue  # compilation takes a minute
            for line in check.lines(f"{name} in PyTorch {' '.join(more)}",
                                    [sys.executable, "torch_step.py", case, weights, "--device", "cuda", *flags, *more], 150):
                check.report["torch"].append({"case": name, "flags": more, **line})
                if "losses" not in line or not ours or "losses" not in ours[-1]:
                    continue  # the failure is in the report already
                difference = largest_difference(ours[-1]["losses"], line["losses"])
                if not difference <= TORCH_TOLERANCE[flag]:
                    check.report_difference(f"{name}: relative difference of losses to PyTorch {' '.join(more)}: {difference:.1e}")
        check.report["train_step"] += check.lines(f"{name}, captured", [*command, "--graph"], seconds_of(case))


def speed(check):
    """Times the leading training steps, then kernels, several GPUs, and all other training steps."""
    check.report["train_step"], check.report["torch"] = [], []
    with_torch = has_torch()
    if not with_torch:
        check.report["not_run"].append("PyTorch: not installed, or without a GPU")
    steps(check, LEADING, with_torch)
    check.report["gpu_benchmark"] = check.lines("gpu_benchmark", ["./gpu_benchmark"], 120)
    several_gpus(check)
    steps(check, STEPS[len(LEADING):], with_torch)


def several_gpus(check):
    """Times collectives between all GPUs, and examples on one GPU and on all GPUs with the same batch per GPU."""
    num_gpus = len(check.report["gpus"])
    if num_gpus < 2:
        check.report["not_run"].append("bandwidth of collectives, and scaling: they need two GPUs")
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
    programs = {"language_model": ["--max-steps", "300", *smoke.text_for_gpt(check.folder)], "resnet_cifar": ["--max-steps", "150"]}
    for name, arguments in programs.items():
        for ranks in (1, num_gpus):
            done = check.run(f"{name} on {ranks} GPU(s)", [f"./{name}", *arguments, "--device", "cuda", "--nproc", str(ranks),
                                                           "--log-every", "50", "--out", f"out_{name}_on_{ranks}"], 60)
            if done is None:
                continue
            rates = re.findall(r" (\d+) (\w+)/s ", done.stdout)
            check.failed = check.failed or done.returncode != 0 or not rates
            row = {"name": name, "ranks": ranks, "status": done.returncode}
            if rates:
                row.update(rate=int(rates[-1][0]), unit=f"{rates[-1][1]}/s")
            else:
                row["output"] = done.stdout[-2000:]
            check.report["scaling"].append(row)


def tune(check):
    """Measures cuBLASLt's algorithms for the matrix products of all steps, saves the fastest in a tuning file next to the report,
    and times GPT-2's steps with it."""
    path = os.path.splitext(check.out)[0] + ".tuning"
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # entries of an existing file are kept
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
    for case, flag in TUNED:
        check.report["tuning"]["train_step"] += check.lines(
            f"{case} {flag}, tuned", ["./train_step", "--case", case, "--device", "cuda", flag], seconds_of(case), {"TANDEM_TUNING_FILE": path})
