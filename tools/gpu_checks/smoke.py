"""Checks the GPU's results: tests, examples, and compute-sanitizer."""

import concurrent.futures
import os
import re
import shutil

# Test programs of groups of GPUs, in the order in which they run.
GROUP_TESTS = [f"gpu_{name}_test" for name in (
    "ops", "ddp", "ddp_failure", "ddp_graph", "ddp_graph_failure", "group", "nccl_backend", "messages", "messages_failure")]
# NCCL settings for two ranks that share one GPU: they communicate by sockets, as if they were on two hosts.
SHARED_GPU = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0",
              "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
# The most important suites run first, one by one: copies, matrix products, convolutions, collectives of two processes.
FIRST = [("gpu_tests", "Cuda"), ("gpu_tests", "Matmul"), ("gpu_tests", "Linear"), ("gpu_tests", "Conv2d"), ("gpu_ops_test", "World/GpuOps")]
SUITE_SECONDS = 60
LONG_SUITE_SECONDS = {"World/GpuOps": 120, "Reduce": 120, "All/OpCaseTest": 300, "All/OpTest": 300}
MAX_CONCURRENT = 8  # suites that run at the same time
# Suites with more tests run in several processes. The names of the tests must fit into one argument, whose limit on Linux
# is 128 KiB.
MAX_TESTS = 300
SANITIZED = ["LayerNorm", "Reduce", "CrossEntropy", "NllLoss", "MseLoss", "Attention"]
# Families of operations whose registered cases are sanitized too: the tests of values (forward) and of thread counts
# (backward).
SANITIZED_FAMILIES = ["attention", "loss", "norm", "reduce", "softmax"]
SANITIZED_SECONDS = 120
# Allowed difference of an example's result between GPU and CPU: accuracy in percent, loss.
CPU_TOLERANCE = {"mnist": 1.0, "language_model": 0.05}


def test_filters(num_gpus):
    """The gtest filter of each test program, which selects the tests that need at most `num_gpus` GPUs.

    Test names contain the number: TwoGpus needs two GPUs, Of4 four, Of1 one. Tests with Processes can share one GPU. All other
    tests of groups need two. Emulated needs the emulation.
    """
    of_groups = "*" if num_gpus >= 4 else "-*Of4*" if num_gpus >= 2 else "*Of1*:*Processes*-*Of4*"
    of_backend = "-*Emulated*" if num_gpus >= 2 else "*Of1*"
    return {"gpu_tests": "*" if num_gpus >= 2 else "-TwoGpus*",
            **{name: of_backend if name == "gpu_nccl_backend_test" else of_groups for name in GROUP_TESTS}}


def tests_of_suites(listing):
    """Parses the output of --gtest_list_tests: returns the full names of the tests by suite."""
    suites = {}
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if re.fullmatch(r"[\w/]+\.", name):
            suite = name[:-1]
        elif re.fullmatch(r"  [\w/]+", name):
            suites.setdefault(suite, []).append(f"{suite}.{name.strip()}")
    return suites


def split(suites):
    """Splits the suites that have more than MAX_TESTS tests: 'All/OpCaseTest' into 'All/OpCaseTest 1 of 9', ... Each part gets
    every ninth test, because neighbours take similar times."""
    found = {}
    for suite, names in suites.items():
        count = -(-len(names) // MAX_TESTS)
        if count == 1:
            found[suite] = names
        else:
            found.update({f"{suite} {i + 1} of {count}": names[i::count] for i in range(count)})
    return found


def messages_of(output):
    """The beginning of each failed test's output, by test."""
    found = {}
    for name, text in re.findall(r"^\[ RUN      \] (\S+)\n(.*?)(?=^\[ RUN      \]|\Z)", output, re.M | re.S):
        if not re.search(r"^\[       OK \]", text, re.M):
            found[name] = text[:1500]
    return found


def text_for_gpt(folder):
    """Creates a training text, unless it exists; returns language_model's flags for it."""
    path = os.path.join(folder, "text.txt")
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(f"{i} times {j} is {i * j}.\n" for i in range(60) for j in range(60)))
    return ["--data", "text.txt"]


def result_of(output):
    """The final accuracy, else the final loss, in the output of an example."""
    lines = [line for line in output.splitlines() if re.search(r" after \d+ steps$", line)]
    found = re.search(r"accuracy ([\d.]+)", lines[-1]) or re.search(r"loss ([\d.]+)", lines[-1]) if lines else None
    return float(found.group(1)) if found else None


def properties(check):
    """Reports the properties of the first GPU and the versions of the libraries."""
    found = check.lines("properties", ["./gpu_benchmark", "--properties"], 60)
    if found:
        check.report["properties"] = found[-1]


def run_suite(check, program, suite, tests):
    """Runs a suite, or a part of a long one, in its own process: a sticky CUDA error fails all later tests of the process, but no
    other suite."""
    done = check.run(f"{program} {suite}", [f"./{program}", "--gtest_color=no", f"--gtest_filter={':'.join(tests)}"],
                     LONG_SUITE_SECONDS.get(suite.split()[0], SUITE_SECONDS), SHARED_GPU if len(check.report["gpus"]) == 1 else None)
    if done is None:
        return
    passed = re.search(r"^\[  PASSED  \] (\d+) test", done.stdout, re.M)
    failures = re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", done.stdout, re.M)
    result = {"passed": int(passed.group(1)) if passed else 0, "failed": sorted(set(failures)), "status": done.returncode}
    if done.returncode != 0 or result["passed"] == 0:
        check.failed = True
        result["messages"] = messages_of(done.stdout)
        result["output"] = done.stdout[-8000:]
    of_program = check.report["tests"][program]
    with check.lock:
        of_program["suites"][suite] = result
        of_program["passed"] += result["passed"]
        of_program["failed"] = sorted(of_program["failed"] + result["failed"])
        of_program["status"] = of_program["status"] or result["status"]


def run_concurrently(check, suites):
    with concurrent.futures.ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        for future in [pool.submit(run_suite, check, *key, names) for key, names in suites.items()]:
            future.result()


def tests(check):
    """Runs the test suites: operations, memory, copies, collectives and data-parallel training."""
    num_gpus = len(check.report["gpus"])
    if num_gpus < 4:
        check.report["not_run"].append(f"tests that need more than {num_gpus} GPU(s)")
    check.report["tests"] = {}
    found = {}
    for program, tests_filter in test_filters(num_gpus).items():
        command = [f"./{program}", "--gtest_list_tests", f"--gtest_filter={tests_filter}"]
        done = check.run(f"{program}: list", command, SUITE_SECONDS)
        if done is None:
            continue
        check.report["tests"][program] = {"filter": tests_filter, "passed": 0, "failed": [], "status": done.returncode, "suites": {}}
        suites = split(tests_of_suites(done.stdout)) if done.returncode == 0 else {}
        if not suites:
            check.failed = True
            check.report["tests"][program]["output"] = done.stdout[-8000:]
        found.update({(program, suite): names for suite, names in suites.items()})
    for key in FIRST:
        if key in found:
            run_suite(check, *key, found.pop(key))
        elif check.selects(" ".join(key)) and check.report["tests"].get(key[0], {}).get("status") == 0:
            check.failed = True
            check.report["not_run"].append(f"{key[0]} {key[1]}: suite not found")
    parts = [key for key in found if " of " in key[1]]  # they take longest, so they run last
    groups = [key for key in found if key[0] != "gpu_tests"]
    run_concurrently(check, {key: names for key, names in found.items() if key not in parts + groups})
    for key in groups:
        run_suite(check, *key, found[key])
    run_concurrently(check, {key: found[key] for key in parts})


def examples(check):
    """Trains examples on the GPU and on the CPU, and compares the results."""
    check.report["examples"] = []
    for name, arguments in {"mnist": ["--epochs", "2"], "language_model": ["--max-steps", "500", *text_for_gpt(check.folder)]}.items():
        results = {}
        for device in ("cuda", "cpu"):
            done = check.run(f"{name} on {device}", [f"./{name}", *arguments, "--device", device, "--out", f"out_{name}_{device}"], 60)
            if done is None:
                continue
            check.failed = check.failed or done.returncode != 0
            check.report["examples"].append({"name": name, "device": device, "status": done.returncode,
                                             "end": done.stdout.splitlines()[-6:]})
            results[device] = result_of(done.stdout)
            if results[device] is None:
                check.report_difference(f"{name} on {device}: no result")
        if None not in results.values() and len(results) == 2 and abs(results["cuda"] - results["cpu"]) > CPU_TOLERANCE[name]:
            check.report_difference(f"{name}: {results['cuda']} on cuda, {results['cpu']} on cpu")


def sanitize(check):
    """Runs compute-sanitizer on suites of kernels with shared memory, each in its own process."""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None:
        check.report["not_run"].append("compute-sanitizer: not installed")
        return
    findings = check.report["compute_sanitizer"] = {}
    for kind in ("memcheck", "racecheck"):
        filters = {suite: f"{suite}.*" for suite in SANITIZED}
        filters.update({f"cases of {family}": f"*/{family}_*_values:*/{family}_*_threads" for family in SANITIZED_FAMILIES})
        for suite, tests_filter in filters.items():
            done = check.run(f"{kind} {suite}", [tool, "--tool", kind, "--error-exitcode", "9", "./gpu_tests", "--gtest_color=no",
                                                 f"--gtest_filter={tests_filter}"], SANITIZED_SECONDS)
            if done is None:
                continue
            result = findings.setdefault(kind, {"status": 0, "suites": {}})
            passed = done.returncode == 0 and re.search(r"^\[  PASSED  \] [1-9]", done.stdout, re.M)
            result["suites"][suite] = {"status": done.returncode} if passed else {"status": done.returncode, "output": done.stdout[-1500:]}
            result["status"] = result["status"] or done.returncode
            check.failed = check.failed or not passed
