#!/usr/bin/python3
"""Times training steps beside PyTorch's, in turns on this machine.

    ./bazelw run //benchmarks:vs_pytorch -- --python /path/to/python [--case CASE,..] [--threads N]

For each case: both sides load the same weights and data; short runs find PyTorch's fastest configuration (eager or compiled,
channels-last, fused optimizer, huge pages); then pairs of runs alternate.  The losses of the first ten steps must agree.
Results go to a JSON file, where other cases' stay, and a chart of it.

Exit status: 0 done, 1 a side cannot run, 2 wrong arguments, 3 the machine is too busy to judge, 4 losses differ.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import chart
import machine
import results

BUSY, DIFFER = 3, 4
CONVOLUTIONS = ("lenet", "resnet18")
SHORT_SECONDS, LONG_SECONDS = 1.0, 2.5  # of timed steps in one run
SPARE_PAIRS = 5  # that may be lost to a disturbance before it is called busy


class Failure(Exception):
    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def run(command, **environment):
    """What a program printed; its last lines of errors if it failed."""
    done = subprocess.run(command, env=dict(os.environ, **environment), capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure("\n  ".join([f"{os.path.basename(command[0])} failed:"] + done.stderr.strip().splitlines()[-5:]))
    return done.stdout


def last_json(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise Failure("no line of JSON in: " + output[-300:])
    return json.loads(lines[-1])


def find_train_step():
    """bazel run starts us in the folder of our runfiles."""
    for path in ("benchmarks/train_step", os.path.join(os.path.dirname(sys.argv[0]), "..", "train_step")):
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failure("benchmarks/train_step was not found: start this with ./bazelw run //benchmarks:vs_pytorch")


def check_torch(python):
    path = shutil.which(python)
    if path is None:
        raise Failure(f"--python: there is no program '{python}'")
    done = subprocess.run([path, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise Failure(f"--python: {path} has no PyTorch ({last}); name a Python that has: --python /path/to/python")
    say(f"PyTorch {done.stdout.strip()} of {path}")
    return path


class Sides:
    """How each side runs a case."""

    def __init__(self, train_step, python, threads, folder):
        self.train_step, self.python, self.threads, self.folder = train_step, python, threads, folder

    def state(self, case):
        return os.path.join(self.folder, case + ".safetensors")

    def save_state(self, case):
        run([self.train_step, "--case", case, "--save", self.state(case)])

    def ours(self, case, steps):
        return last_json(run([self.train_step, "--case", case, "--load", self.state(case), "--losses", "--threads",
                              str(self.threads), "--steps", str(steps)]))

    def theirs(self, case, steps, options):
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
    """PyTorch's fastest options: the way to run first, then what may make it faster still.  `measure` gives milliseconds."""
    ways = [(), ("--compile",)]
    if case in CONVOLUTIONS:
        ways += [("--channels-last",), ("--channels-last", "--compile")]
    best = min((measure(way), way) for way in ways)
    for more in ("--fused", "huge-pages"):
        way = best[1] + (more,)
        best = min(best, (measure(way), way))
    return best


def measure_pairs(ours, theirs, wanted, watch, now, complain):
    """Pairs of runs that nothing disturbed.  `watch` looks on while nothing runs, `now` and `complain` around a pair."""
    pairs, lost = [], 0
    while len(pairs) < wanted:
        trouble = watch()
        if not trouble:
            before = now()
            pair = (ours(), theirs()) if len(pairs) % 2 == 0 else tuple(reversed((theirs(), ours())))
            trouble = complain(before, now())
        if not trouble:
            pairs.append(pair)
            continue
        lost += 1
        if lost > SPARE_PAIRS:
            raise Failure(f"the machine is too busy to judge: {trouble}", BUSY)
        say(f"  a pair is lost: {trouble}")
    return pairs


def judge(case, sides, args):
    say(f"{case}:")
    sides.save_state(case)
    guess = sides.ours(case, 5)["step_ms"]
    # What the configurations are compared by is disturbed now and then: the least counts.
    steps = steps_for(SHORT_SECONDS, guess)

    def measure(options):
        try:
            found = sides.theirs(case, steps, options)
        except Failure as failure:
            say(f"  PyTorch {' '.join(options) or 'eager'}: {failure}")
            return float("inf")
        say(f"  PyTorch {' '.join(options) or 'eager'}: {found['min_ms']:.2f} ms")
        return found["min_ms"]

    best_ms, options = find_best(case, measure)
    if best_ms == float("inf"):
        raise Failure(f"{case}: PyTorch runs in no configuration")
    steps = steps_for(LONG_SECONDS, guess)
    pairs = measure_pairs(lambda: sides.ours(case, steps), lambda: sides.theirs(case, steps, options), args.pairs,
                          lambda: machine.watch(0.5, args.busy_limit), machine.Cpu.now,
                          lambda before, after: machine.complaint(before, after, args.busy_limit))
    configuration = " ".join(option.removeprefix("--") for option in options) or "eager"
    try:
        entry = results.summarize(case, args.threads, configuration, pairs)
    except results.LossesDiffer as difference:
        raise Failure(str(difference), DIFFER) from None
    say(f"  {entry['times_faster']:.3f} times as fast as PyTorch ({entry['times_faster_least']:.3f} to "
        f"{entry['times_faster_most']:.3f} in {args.pairs} pairs): {entry['tandem_ms']:.2f} ms and {entry['tandem_mb']:.0f} MB "
        f"beside {entry['pytorch_ms']:.2f} ms and {entry['pytorch_mb']:.0f} MB ({configuration}); "
        f"losses within {entry['loss_difference']:.1e}")
    return entry


def in_users_folder(path):
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="vs_pytorch", description="Times training steps beside PyTorch's")
    parser.add_argument("--python", default="python3", help="a Python that has torch")
    parser.add_argument("--case", default=",".join(results.CASES), help="one or several, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--busy-limit", type=float, default=0.1,
                        help="processors that others may keep busy before the machine counts as busy")
    parser.add_argument("--json", default="vs_pytorch.json", help="results; other cases in it stay")
    parser.add_argument("--svg", default="vs_pytorch.svg", help="chart of all results in the JSON file")
    args = parser.parse_args(arguments)
    args.case = args.case.split(",")
    for case in args.case:
        if case not in results.CASES:
            parser.error(f"--case: '{case}' is none of {', '.join(results.CASES)}")
    if args.threads < 1 or args.pairs < 1:
        parser.error("--threads and --pairs are at least 1")
    return args


def main(arguments):
    args = parse(arguments)
    try:
        python = check_torch(args.python)
        trouble = machine.watch(1.0, args.busy_limit)
        if trouble:
            raise Failure(f"the machine is too busy to judge: {trouble}", BUSY)
        with tempfile.TemporaryDirectory() as folder:
            sides = Sides(find_train_step(), python, args.threads, folder)
            for case in args.case:
                entries = results.merge(in_users_folder(args.json), [judge(case, sides, args)])
                with open(in_users_folder(args.svg), "w", encoding="utf-8") as file:
                    file.write(chart.draw([entry for entry in entries if entry["threads"] == args.threads]))
    except (Failure, OSError) as failure:
        say(f"vs_pytorch: {failure}")
        return getattr(failure, "status", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
