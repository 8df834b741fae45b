"""Whether what the GPU computes is right: tests, examples, and compute-sanitizer."""

import concurrent.futures
import os
import re
import shutil

# Two processes that share a GPU: NCCL takes them for two hosts.
ON_ONE_GPU = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0",
              "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
# The suites that say most come first, one after the other: copies, products, convolutions, collectives of two processes.
FIRST = [("gpu_tests", "Cuda"), ("gpu_tests", "Matmul"), ("gpu_tests", "Linear"), ("gpu_tests", "Conv2d"), ("gpu_ops_test", "World/GpuOps")]
SUITE_SECONDS = 60
LONGER = {"World/GpuOps": 120, "Reduce": 120, "All/OpCaseTest": 600, "All/OpTest": 300}  # seconds that a suite may take
AT_ONCE = 4  # suites that share the GPU
SANITIZED = ["LayerNorm", "Reduce", "Softmax", "CrossEntropy", "NllLoss", "MseLoss", "Attention"]
# Families whose cases of the registry of operations are sanitized too: forward, and backward in the check of thread counts.
SANITIZED_FAMILIES = ["attention", "loss", "norm", "reduce", "softmax"]
SANITIZED_SECONDS = 120
# How far an example's result on a GPU may be from the CPU's: per cent of accuracy, and loss.
FROM_CPU = {"mnist": 1.0, "gpt_char": 0.05}


def test_filters(num_gpus):
    """The filter of each test program: the tests that need at most that many GPUs.

    Their names say how many: TwoGpus takes two, Of4 four.  Of the other tests of groups Of1 takes one, and Processes share it; the
    rest take two.  Emulated takes what no GPU has.
    """
    of_groups = "*" if num_gpus >= 4 else "-*Of4*" if num_gpus >= 2 else "*Of1*:*Processes*-*Of4*"
    return {
        "gpu_tests": "*" if num_gpus >= 2 else "-TwoGpus*",
        "gpu_ops_test": of_groups,
        "gpu_ddp_test": of_groups,
        "gpu_ddp_failure_test": of_groups,
        "gpu_group_test": of_groups,
        "gpu_lane_test": "-*Emulated*" if num_gpus >= 2 else "*Of1*",
    }


def tests_of_suites(listing):
    """Names of tests by suite, of what --gtest_list_tests prints: suites end with a point, their tests are indented."""
    suites = {}
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if re.fullmatch(r"[\w/]+\.", name):
            suite = name[:-1]
        elif re.fullmatch(r"  [\w/]+", name):
            suites.setdefault(suite, []).append(f"{suite}.{name.strip()}")
    return suites


def text_for_gpt(folder):
    """A text to learn, where there is none yet, as gpt_char's flags name it."""
    path = os.path.join(folder, "text.txt")
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(f"{i} times {j} is {i * j}.\n" for i in range(60) for j in range(60)))
    return ["--data", "text.txt"]


def result_of(output):
    """The figure at an example's end."""
    found = re.findall(r"(?:accuracy|loss) ([\d.]+)(?: %)? after", output)
    return float(found[-1]) if found else None


def properties(check):
    """What the driver reports of the first GPU, and versions of the libraries."""
    found = check.lines("properties", ["./rows", "--properties"], 60)
    if found:
        check.report["properties"] = found[-1]


def run_suite(check, program, suite, tests):
    """A suite in a process of its own: what an illegal access leaves behind fails the rest of its process, and no more."""
    done = check.run(f"{program} {suite}", [f"./{program}", "--gtest_color=no", f"--gtest_filter={':'.join(tests)}"],
                     LONGER.get(suite, SUITE_SECONDS), ON_ONE_GPU if len(check.report["gpus"]) == 1 else None)
    if done is None:
        return
    passed = re.search(r"^\[  PASSED  \] (\d+) test", done.stdout, re.M)
    failures = re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", done.stdout, re.M)
    result = {"passed": int(passed.group(1)) if passed else 0, "failed": sorted(set(failures)), "status": done.returncode}
    if done.returncode != 0 or result["passed"] == 0:
        check.failed = True
        result["output"] = done.stdout[-8000:]
    of_program = check.report["tests"][program]
    with check.lock:
        of_program["suites"][suite] = result
        of_program["passed"] += result["passed"]
        of_program["failed"] = sorted(of_program["failed"] + result["failed"])
        of_program["status"] = of_program["status"] or result["status"]


def tests(check):
    """Operations, memory and copies; collectives and data-parallel training, on one GPU as two processes that share it."""
    num_gpus = len(check.report["gpus"])
    if num_gpus < 4:
        check.report["not_run"].append(f"tests that take more than {num_gpus} GPU(s)")
    check.report["tests"] = {}
    found = {}
    for program, tests_filter in test_filters(num_gpus).items():
        command = [f"./{program}", "--gtest_list_tests", f"--gtest_filter={tests_filter}"]
        done = check.run(f"{program}: list", command, SUITE_SECONDS)
        if done is None:
            continue
        check.report["tests"][program] = {"filter": tests_filter, "passed": 0, "failed": [], "status": done.returncode, "suites": {}}
        suites = tests_of_suites(done.stdout) if done.returncode == 0 else {}
        if not suites:
            check.failed = True
            check.report["tests"][program]["output"] = done.stdout[-8000:]
        found.update({(program, suite): names for suite, names in suites.items()})
    for key in FIRST:
        if key in found:
            run_suite(check, *key, found.pop(key))
        elif check.wants(" ".join(key)) and check.report["tests"].get(key[0], {}).get("status") == 0:
            check.failed = True
            check.report["not_run"].append(f"{key[0]} {key[1]}: there is no such suite")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(run_suite, check, *key, found[key]) for key in found if key[0] == "gpu_tests"]:
            future.result()
    for key in [key for key in found if key[0] != "gpu_tests"]:
        run_suite(check, *key, found[key])


def examples(check):
    """Trains on the GPU and on the CPU, which must end alike."""
    check.report["examples"] = []
    for name, arguments in {"mnist": ["--epochs", "2"], "gpt_char": ["--max-steps", "500", *text_for_gpt(check.folder)]}.items():
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
                check.differ(f"{name} on {device}: no result")
        if None not in results.values() and len(results) == 2 and abs(results["cuda"] - results["cpu"]) > FROM_CPU[name]:
            check.differ(f"{name}: {results['cuda']} on cuda, {results['cpu']} on cpu")


def sanitize(check):
    """compute-sanitizer on suites of kernels with shared memory, each in a process of its own."""
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
            is_well = done.returncode == 0 and re.search(r"^\[  PASSED  \] [1-9]", done.stdout, re.M)
            result["suites"][suite] = {"status": done.returncode} if is_well else {"status": done.returncode, "output": done.stdout[-1500:]}
            result["status"] = result["status"] or done.returncode
            check.failed = check.failed or not is_well
