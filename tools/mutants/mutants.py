#!/usr/bin/python3
"""Shows which tests find planted faults:

    tools/mutants/mutants.py                  # all mutants
    tools/mutants/mutants.py --only optim/ -- --jobs=2     # those in these files, with options for Bazel
    tools/mutants/mutants.py --check          # only that each text to replace occurs once

A mutant replaces one text of a library file. Its tests are run, the file is restored, and the line of the table says which of the tests
failed; a mutant that no test fails for has survived, and the exit status is 1. The tree must have no uncommitted changes.
"""

import argparse
import os
import re
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
RECORDED = "//tests/nn:pytorch_layers_test"
LAYERS = "//tests/nn:layers_test"
OPTIMIZERS = "//tests/optim:optimizer_test //tests/optim:optimizer_pytorch_test"
OPERATIONS = "//tests/ops:fixtures_test //tests/ops:op_cases_test //tests/ops:families_test"
PINS = "//tests/pins:pins_test"
# File, text, the text that replaces it, tests, and the gtest_filter of the tests ("": all).
MUTANTS = [
    ("optim/sgd.cc", "direction = is_nesterov ? direction + f.momentum * next : next;", "direction = next;", OPTIMIZERS, "*SGD*"),
    ("optim/sgd.cc", "is_first ? direction : f.momentum", "f.momentum", OPTIMIZERS, "*SGD*"),
    ("optim/adam.cc", ".root_scale = 1 / std::sqrt(1 - std::pow(beta2, t))", ".root_scale = 1", OPTIMIZERS, "*Adam*"),
    ("optim/optimizer.cc", "made.emplace_back(&tensor, zeros(shape", "tensor = zeros({0}); made.emplace_back(&tensor, zeros(shape",
     OPTIMIZERS, ""),
    ("optim/optimizer.cc", "autograd::end_in_place(\"step\", parameter);", "", OPTIMIZERS, ""),
    ("optim/optimizer.cc", '!name.empty()) own.set("name", name);', "false) own.set(\"name\", name);", OPTIMIZERS, "Optimizer.*"),
    ("optim/optimizer.h", "sizeof groups_.front());", "sizeof groups_.front()), std::swap(groups_.back().parameters.front(), groups_.back().parameters.back());",
     OPTIMIZERS, "*Groups*"),
    ("nn/activation.cc", "softplus(x, beta, threshold)", "softplus(x, beta)", RECORDED, ""),
    ("nn/activation.cc", "hardtanh(x, min_val, max_val)", "hardtanh(x, min_val)", LAYERS, ""),
    ("nn/activation.cc", "log_softmax(x, dim)", "log_softmax(x, -1)", LAYERS, ""),
    ("nn/activation.h", "double threshold = 20", "double threshold = 2", LAYERS, ""),
    ("nn/activation.h", "double max_val = 1", "double max_val = 2", LAYERS, ""),
    ("nn/conv.cc", "conv2d_relu(x, weight, bias, options)", "conv2d_relu(x, weight, bias, {.groups = options.groups})", LAYERS, ""),
    ("nn/resize.h", "{.size = options.size, .scale_factor", "{.scale_factor", LAYERS, ""),
    ("nn/pool.cc", "Tensor MaxPool2d::forward(const Tensor& input) { return max_pool2d(input, kernel_size_, options_); }",
     "Tensor MaxPool2d::forward(const Tensor& input) { return max_pool2d(input, kernel_size_); }", RECORDED, ""),
    ("nn/norm.cc", "return 1 / (num_batches_tracked.item<double>() + 1);", "return 0.1;", RECORDED + " //tests/nn:norm_test", ""),
    ("nn/attention.cc", ".is_causal = options_.is_causal || options.is_causal}", ".is_causal = options.is_causal}",
     RECORDED + " //tests/nn:attention_test", ""),
    ("nn/recurrent.cc", 'i % directions == 1 ? "_reverse" : ""', 'i % directions == 0 ? "_reverse" : ""', RECORDED, ""),
    ("nn/transformer.cc", "return options.norm_first ? add(x, added) : norm(add(x, added));", "return add(x, added);", RECORDED, ""),
    ("nn/loss.cc", "binary_cross_entropy(input, target, weight, reduction_)", "binary_cross_entropy(input, target, {}, reduction_)",
     RECORDED + " //tests/nn:loss_test", ""),
    ("ops/softmax/softmax.cc", "extents_around(y.shape(), dim), log,", "extents_around(y.shape(), dim), false,", OPERATIONS, "*oftmax*"),
    ("ops/common/extents.h", "d == dim ? extents.size : extents.inner", "d >= dim ? extents.size : extents.inner", OPERATIONS, "*oftmax*"),
    ("ops/reduce/extremum.cc", "bitwise_or(eq(values, best), bitwise_and(ne(values, values), ne(best, best)))", "eq(values, best)",
     OPERATIONS, "Reduce.*:*amax*:*reduce*"),
    # One bit of initial weights, of an averaged gradient and of dropout's seed, and the order of a sum.
    ("nn/init.cc", "const double bound = std::sqrt(3.0) * std;", "const double bound = std::nextafter(static_cast<float>(std::sqrt(3.0) * std), 9.0F);",
     PINS, ""),
    ("distributed/ddp/comm_hooks.cc", "primitives::copy(sent, values);", "primitives::copy(sent, values), values.data<float>()[0] *= 1 + 0x1p-23F;",
     PINS, ""),
    ("tensor/reduce.cc", "const size_t split = tree_split(inputs.size());", "const size_t split = inputs.size() - 1;", PINS, ""),
    ("ops/random/random.cc", "static_cast<uint64_t>(std::llround(p * 0x1p32)),", "static_cast<uint64_t>(std::llround(p * 0x1p32)) ^ 0x10000000,", PINS, ""),
]


def occurrences():
    """The mutants whose text does not occur exactly once."""
    wrong = []
    for path, old, *_ in MUTANTS:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            if (count := file.read().count(old)) != 1:
                wrong.append(f"{path}: {old!r} occurs {count} times, expected once")
    return wrong


def failed_tests(targets, filters, options):
    """Runs the tests and returns the names of those that failed."""
    command = [os.path.join(ROOT, "bazelw"), "test", "--keep_going", *options, *targets.split()]
    done = subprocess.run(command + ([f"--test_filter={filters}"] if filters else []), cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    results = dict(re.findall(r"^(//\S+) +(?:\([^)]*cached\) )?([A-Z ]+?) in ", done.stdout, re.M))
    if set(results) != set(targets.split()):
        sys.exit(f"{done.stdout[-4000:]}\nmutants: not all tests were run")
    return [name for name, result in results.items() if result != "PASSED"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check the table")
    parser.add_argument("--only", default="", metavar="PATH", help="mutants of files whose path contains this")
    parser.add_argument("options", nargs="*", help="options for Bazel, after --")
    args = parser.parse_args()
    if wrong := occurrences():
        sys.exit("mutants: " + "\n".join(wrong))
    if args.check:
        return 0
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE)
    if changed.stdout:
        sys.exit(f"mutants: uncommitted changes, commit them first\n{changed.stdout}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # restores the file
    num_survived = 0
    for path, old, new, targets, filters in [m for m in MUTANTS if args.only in m[0]]:
        full = os.path.join(ROOT, path)
        with open(full, encoding="utf-8") as file:
            text = file.read()
        try:
            with open(full, "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
            failed = failed_tests(targets, filters, args.options)
        finally:
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        num_survived += not failed
        print(f"{'killed' if failed else 'SURVIVED'}  {path}: {new or 'without ' + old}  {' '.join(failed)}", flush=True)
    return 1 if num_survived else 0


if __name__ == "__main__":
    sys.exit(main())
