#!/usr/bin/python3
"""Times what goes between two hosts: network namespaces joined by a link of limited speed.  Needs root, ip and tc.

    ./bazelw run //benchmarks/two_hosts -- [--case CASE,..] [--rate 1gbit] [--ranks-per-host N] [--python /path/to/python]

Each job first measures the payload rate of a plain TCP stream in each direction at once.  An all_reduce is compared with its
bytes at that rate; a training step with the larger of the step without communication and

    t(first bucket ready) + bytes / link rate + last update

with the same where the link waits for each bucket until its gradients are there, and with a step without communication beside
plain TCP streams of as many bytes: what the streams take of the core on which the step computes nobody can give back.  Of
each step the slower rank's time counts, as ranks that exchange gradients wait for it.
What the first log line says of the group and what the interface counted must agree with that.  With --python, PyTorch's DDP
runs the same steps from the same weights in turns with them, at several bucket sizes of which the best counts.

Exit status: 0 done, 1 a job failed or the link was not used as it should, 2 wrong arguments, 3 no namespaces here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import namespaces

CASES = ("mlp", "gpt-384", "resnet18")
HEADERS = 1.12  # what headers, acknowledgements and control records may add to the payload
BUCKET_CAPS_MB = (1, 4, 10, 25)


class Failure(Exception):
    pass


def find(program):
    """bazel run starts us in the folder of our runfiles."""
    for path in (program, os.path.join(os.path.dirname(sys.argv[0]), "..", "..", program)):
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failure(f"{program} was not found: start this with ./bazelw run //benchmarks/two_hosts")


def run_job(hosts, command, ranks_per_host, timeout, environment=()):
    """What rank 0 printed: objects, one a line, and its stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        ranks = [hosts.start_rank(rank, command, ranks_per_host, environment, stdout=out, stderr=log,
                                  stdin=subprocess.DEVNULL) for rank in range(2 * ranks_per_host)]
        try:
            codes = [rank.wait(timeout) for rank in ranks]
        except subprocess.TimeoutExpired:
            codes = ["too long"]
        for rank in ranks:
            rank.kill()
            rank.wait()
        for file in (out, log):
            file.seek(0)
        text = log.read()
        if any(codes):
            raise Failure(f"{os.path.basename(command[0])} failed ({codes}):\n" + text[-3000:])
        return [json.loads(line) for line in out if line.startswith("{")], text


def check_link_was_used(log, lines, ranks_per_host):
    """The grouping that the group chose, and what the interface counted."""
    if ranks_per_host == 1:
        wanted = f"2 hosts x 1: gloo over {namespaces.INTERFACE}"
    else:
        wanted = (f"2 hosts x {ranks_per_host}: shm inside, gloo over {namespaces.INTERFACE} across "
                  f"({ranks_per_host} flows)")
    if wanted not in log:
        raise Failure(f"the group was to be '{wanted}', and its log says:\n{log}")
    for line in lines:
        if "bytes_on_link" not in line:
            continue
        # The hosts' partial sums of half types travel in float32.
        half = line.get("dtype") == "bfloat16" or line.get("compress", "none") != "none"
        widened = 2 if half and ranks_per_host > 1 else 1
        payload = line["payload_bytes"] * widened
        if not payload <= line["bytes_on_link"] <= HEADERS * payload + (64 << 10):
            raise Failure(f"{line}: each host was to send {payload} bytes and a little more")


def show(line):
    if line["what"] == "link":
        print(f"link  {line['mbit_per_s']:.1f} Mbit/s of payload in each direction, both at once", flush=True)
    elif line["what"] == "all_reduce":
        print(f"all_reduce {line['dtype']} {line['bytes'] / 2**20:.0f} MiB  {line['ms']:.1f} ms = {line['ratio']:.3f} of "
              f"{line['link_ms']:.1f} ms at the link's rate", flush=True)
    elif line["what"] == "ddp":
        compress = f" {line['compress']}" if line["compress"] != "none" else ""
        beside = line["during_plain_ms"]
        plain = f"{line['step_ms'] / beside:.3f} of {beside:.1f} ms for a local step beside plain streams, " if beside else ""
        print(f"{line['case']}{compress}  step {line['step_ms']:.1f} ms = {line['ratio']:.3f} of max(local step "
              f"{line['local_ms']:.1f}, first bucket {line['first_ready_ms']:.1f} + link {line['link_ms']:.1f} + update "
              f"{line['update_ms']:.1f} = {line['first_ready_ms'] + line['link_ms'] + line['update_ms']:.1f} ms), "
              f"{plain}{line['buckets_ratio']:.3f} of {line['buckets_ms']:.1f} ms with each bucket sent once it is ready; the link "
              f"carried {line['bytes_on_link'] / 2**20:.1f} MiB a step", flush=True)


class Tandem:
    def __init__(self, hosts, args):
        self.hosts, self.args, self.rank = hosts, args, find("benchmarks/two_hosts/rank")

    def measure(self, *flags):
        args = self.args
        command = [self.rank, "--interface", namespaces.INTERFACE, "--link-port", "29600", "--steps", str(args.steps),
                   "--rounds", str(args.rounds), *(["--least"] if args.least else []), *flags]
        lines, log = run_job(self.hosts, command, args.ranks_per_host, args.timeout, {"TANDEM_LOG": "info"})
        check_link_was_used(log, lines, args.ranks_per_host)
        for line in lines:
            show(line)
        return lines


class Torch:
    """PyTorch's DDP over gloo, from the same weights and data."""

    def __init__(self, hosts, args, folder):
        self.hosts, self.args, self.folder = hosts, args, folder

    def measure(self, case):
        state = os.path.join(self.folder, case + ".safetensors")
        if not os.path.exists(state):
            subprocess.run([find("benchmarks/train_step"), "--case", case, "--save", state], check=True,
                           stdout=subprocess.DEVNULL)
        command = [self.args.python, "-W", "ignore", os.path.join(HERE, "torch_ddp.py"), case, state, "--steps",
                   str(max(self.args.steps // 2, 4)), "--caps", ",".join(map(str, BUCKET_CAPS_MB))]
        command += ["--compress", self.args.compress]
        lines, _ = run_job(self.hosts, command, self.args.ranks_per_host, self.args.timeout,
                           {"GLOO_SOCKET_IFNAME": namespaces.INTERFACE, "OMP_NUM_THREADS": "1"})
        best = min(lines, key=lambda line: line["step_ms"])
        all_caps = ", ".join(f"{line['cap_mb']:g} MB {line['step_ms']:.1f}" for line in lines)
        print(f"{case}  PyTorch {best['version']} DDP: step {best['step_ms']:.1f} ms, local step {best['local_ms']:.1f} "
              f"({all_caps})", flush=True)
        return best


def append(path, lines):
    if not path:
        return
    with open(os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path), "a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def measure(hosts, args, folder):
    tandem, torch = Tandem(hosts, args), Torch(hosts, args, folder)
    if args.all_reduce:
        append(args.json, tandem.measure("--all-reduce", ",".join(args.all_reduce)))
    for case in args.case:
        compress = ["--compress", args.compress]
        sizes = ["--bucket-mib", str(args.bucket_mib)] if args.bucket_mib else []
        lines = tandem.measure("--case", case, *compress, *sizes)
        if args.python:
            theirs = torch.measure(case)
            again = tandem.measure("--case", case, *compress, *sizes)
            ours = min(lines[-1]["step_ms"], again[-1]["step_ms"])
            print(f"{case}  {theirs['step_ms'] / ours:.2f} times as fast as PyTorch", flush=True)
            lines += again + [theirs]
        append(args.json, lines)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="two_hosts", description="Times what goes between two hosts")
    parser.add_argument("--case", default=",".join(CASES), help="training steps, separated by commas; '' for none")
    parser.add_argument("--all-reduce", default="float32,bfloat16", help="dtypes, separated by commas; '' for none")
    parser.add_argument("--rate", default="1gbit", help="of the link in each direction, in tc's words; none: no limit")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--compress", default="none", choices=("none", "fp16", "bf16"), help="the gradients")
    parser.add_argument("--bucket-mib", type=float, help="size of tandem's buckets")
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="in which they alternate")
    parser.add_argument("--least", action="store_true",
                        help="the least of many times counts, not the median: for a machine that others use")
    parser.add_argument("--python", help="a Python that has torch: run PyTorch's DDP too")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one job")
    parser.add_argument("--json", help="append the lines to this file")
    args = parser.parse_args(arguments)
    args.case, args.all_reduce = ([word for word in text.split(",") if word] for text in (args.case, args.all_reduce))
    args.rate = None if args.rate == "none" else args.rate
    return args


def main(arguments):
    args = parse(arguments)
    namespaces.exit_on_signals()
    try:
        with tempfile.TemporaryDirectory() as folder, namespaces.TwoHosts(args.rate, args.mtu) as hosts:
            measure(hosts, args, folder)
    except namespaces.Unavailable as trouble:
        print(f"two_hosts: {trouble}", file=sys.stderr)
        return 3
    except Failure as failure:
        print(f"two_hosts: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
