#!/usr/bin/python3 -B
"""Times training steps of tandem and PyTorch, alternating on this machine.

    ./bazelw run //benchmarks:vs_pytorch -- --python /path/to/python [--case CASE,..] [--threads N]

For each case both load the same weights and data. Short runs find PyTorch's fastest configuration (eager or compiled,
channels-last, fused optimizer, huge pages); then pairs of runs alternate. The losses of the first ten steps must agree. The
results replace those of the same case in a JSON file, and a chart of the file is drawn.

Exit status: 0 success, 1 tandem or PyTorch cannot run, 2 wrong arguments, 3 the machine has too much other load, 4 losses
differ.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import chart
import machine
import results

STATUS_BUSY, STATUS_LOSSES_DIFFER = 3, 4
CONVOLUTION_CASES = ("lenet", "resnet18", "mobilenet-v2", "dcgan", "unet")
SHORT_SECONDS, LONG_SECONDS = 1.0, 2.5  # duration of the timed steps of one run
MAX_DISCARDED_PAIRS = 5  # pairs that may be discarded because of other load


class Failure(Exception):
    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def log(*words):
    print(*words, file=sys.stderr, flush=True)


def run(command, **environment):
    """Runs a program and returns its stdout. Raises Failure with the last lines of its stderr."""
    done = subprocess.run(command, env=dict(os.environ, **environment), capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure("\n  ".join([f"{os.path.basename(command[0])} failed:"] + done.stderr.strip().splitlines()[-5:]))
    return done.stdout


def last_json(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise Failure("no JSON line in the output: " + output[-300:])
    return json.loads(lines[-1])


def find_train_step():
    """Path of benchmarks/train_step in the runfiles, which are the current folder under `bazel run`."""
    for path in ("benchmarks/train_step", os.path.join(os.path.dirname(sys.argv[0]), "..", "train_step")):
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failure("benchmarks/train_step not found; start this by ./bazelw run //benchmarks:vs_pytorch")


def check_torch(python):
    path = shutil.which(python)
    if path is None:
        raise Failure(f"--python: program '{python}' not found")
    done = subprocess.run([path, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise Failure(f"--python: {path} cannot import torch ({last}); give an interpreter with PyTorch: "
                      "--python /path/to/python")
    log(f"PyTorch {done.stdout.strip()} ({path})")
    return path


class Runner:
    """Runs a case with tandem or with PyTorch."""

    def __init__(self, train_step, python, threads, folder):
        self.train_step, self.python, self.threads, self.folder = train_step, python, threads, folder

    def state(self, case):
        return os.path.join(self.folder, case + ".safetensors")

    def save_state(self, case):
        run([self.train_step, "--case", case, "--save", self.state(case)])

    def run_tandem(self, case, steps):
        return last_json(run([self.train_step, "--case", case, "--load", self.state(case), "--losses", "--threads",
                              str(self.threads), "--steps", str(steps)]))

    def run_pytorch(self, case, steps, options):
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "torch_step.py")
        flags = [option for option in options if option.startswith("--")]
        environment = {"OMP_NUM_THREADS": str(self.threads)}
        if "huge-pages" in options:
            environment["THP_MEM_ALLOC_ENABLE"] = "1"
        command = [self.python, "-W", "ignore", script, case, self.state(case), "--threads", str(self.threads),
                   "--steps", str(steps)]
        return last_json(run(command + flags, **environment))


def steps_for(seconds, step_ms):
    return max(5, min(500, round(1e3 * seconds / step_ms)))


def find_best(case, measure):
    """Returns (milliseconds, options) of PyTorch's fastest configuration. `measure` returns the milliseconds for options.

    First the execution modes are compared, then the options that may make the fastest mode faster.
    """
    modes = [(), ("--compile",)]
    if case in CONVOLUTION_CASES:
        modes += [("--channels-last",), ("--channels-last", "--compile")]
    best = min((measure(mode), mode) for mode in modes)
    for option in ("--fused", "huge-pages"):
        options = best[1] + (option,)
        best = min(best, (measure(options), options))
    return best


def busy(load):
    return Failure(f"too much other load for reliable times: {load}; stop it, or raise --busy-limit", STATUS_BUSY)


def measure_pairs(run_tandem, run_pytorch, count, observe, now, describe_load):
    """Returns `count` pairs of results without other load. `observe()` describes the load before a pair, and
    describe_load(before, after) during it, where `now()` returned before and after; "" means no load."""
    pairs, discarded = [], 0
    while len(pairs) < count:
        load = observe()
        if not load:
            before = now()
            pair = (run_tandem(), run_pytorch()) if len(pairs) % 2 == 0 else tuple(reversed((run_pytorch(), run_tandem())))
            load = describe_load(before, now())
        if not load:
            pairs.append(pair)
            continue
        discarded += 1
        if discarded > MAX_DISCARDED_PAIRS:
            raise busy(load)
        log(f"  pair discarded: {load}")
    return pairs


def compare_case(case, runner, args):
    log(f"{case}:")
    runner.save_state(case)
    estimate_ms = runner.run_tandem(case, 5)["step_ms"]
    # Short runs are compared by their minimum, which other load affects least.
    steps = steps_for(SHORT_SECONDS, estimate_ms)

    def measure(options):
        try:
            found = runner.run_pytorch(case, steps, options)
        except Failure as failure:
            log(f"  PyTorch {' '.join(options) or 'eager'}: {failure}")
            return float("inf")
        log(f"  PyTorch {' '.join(options) or 'eager'}: {found['min_ms']:.2f} ms")
        return found["min_ms"]

    best_ms, options = find_best(case, measure)
    if best_ms == float("inf"):
        raise Failure(f"{case}: PyTorch failed in every configuration")
    steps = steps_for(LONG_SECONDS, estimate_ms)
    pairs = measure_pairs(lambda: runner.run_tandem(case, steps), lambda: runner.run_pytorch(case, steps, options), args.pairs,
                          lambda: machine.observe(0.5, args.busy_limit), machine.Cpu.now,
                          lambda before, after: machine.describe_load(before, after, args.busy_limit))
    configuration = " ".join(option.removeprefix("--") for option in options) or "eager"
    try:
        entry = results.summarize(case, args.threads, configuration, pairs)
    except results.LossesDiffer as difference:
        raise Failure(str(difference), STATUS_LOSSES_DIFFER) from None
    log(f"  speedup {entry['speedup']:.3f} ({entry['speedup_min']:.3f} to {entry['speedup_max']:.3f} in {args.pairs} pairs): "
        f"tandem {entry['tandem_ms']:.2f} ms, {entry['tandem_mb']:.0f} MB; "
        f"PyTorch {entry['pytorch_ms']:.2f} ms, {entry['pytorch_mb']:.0f} MB ({configuration}); "
        f"losses within {entry['loss_difference']:.1e}")
    return entry


def user_path(path):
    """The path, relative to the folder in which the user typed the command."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="vs_pytorch", description="Times training steps of tandem and PyTorch")
    parser.add_argument("--python", default="python3", help="a Python interpreter with PyTorch")
    parser.add_argument("--case", default=",".join(results.CASES), help="training cases, separated by commas")
    parser.add_argument("--threads", type=int, default=1, help="threads of operations")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of alternating runs per case")
    parser.add_argument("--busy-limit", type=float, default=0.1,
                        help="other load, in processors, above which a pair of runs is discarded")
    parser.add_argument("--json", default="vs_pytorch.json", help="results file; results of other cases are kept")
    parser.add_argument("--svg", default="vs_pytorch.svg", help="chart of the results file")
    args = parser.parse_args(arguments)
    args.case = args.case.split(",")
    for case in args.case:
        if case not in results.CASES:
            parser.error(f"--case: unknown case '{case}'; expected one of {', '.join(results.CASES)}")
    if args.threads < 1 or args.pairs < 1:
        parser.error("--threads and --pairs must be at least 1")
    return args


def main(arguments):
    args = parse(arguments)
    try:
        python = check_torch(args.python)
        load = machine.observe(1.0, args.busy_limit)
        if load:
            raise busy(load)
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(find_train_step(), python, args.threads, folder)
            for case in args.case:
                entries = results.merge(user_path(args.json), [compare_case(case, runner, args)])
                with open(user_path(args.svg), "w", encoding="utf-8") as file:
                    file.write(chart.draw([entry for entry in entries if entry["threads"] == args.threads]))
    except (Failure, OSError) as failure:
        log(f"vs_pytorch: {failure}")
        return getattr(failure, "status", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
