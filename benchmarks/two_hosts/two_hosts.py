#!/usr/bin/python3 -B
"""Times collectives and training steps between two emulated hosts: two network namespaces and a rate-limited link. Needs root,
ip and tc.

    ./bazelw run //benchmarks/two_hosts -- [--case CASE,..] [--rate 1gbit] [--ranks-per-host N] [--python /path/to/python]

Each job first measures the payload rate of one plain TCP stream in each direction at the same time. A collective is compared
with the time of its bytes at that rate. A training step is compared with

1. the larger of the step without communication and t(first bucket ready) + bytes / link rate + last update;
2. the step without communication while plain TCP streams transfer as many bytes. It includes the CPU time of the transfer on
   the core of the rank, which no transport can avoid.

Each step has the time of its slower rank, because ranks that exchange gradients wait for each other. The group's log line and
the interface's byte counter must prove that the link was used. With --python, PyTorch's DDP alternates with tandem on the same
weights and data, with several bucket sizes; the fastest is reported. With --mpi, so does the backend mpi, under mpirun.

Exit status: 0 success, 1 a job failed or did not use the link as expected, 2 wrong arguments, 3 cannot create namespaces.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import namespaces

CASES = ("mlp", "gpt-384", "resnet18")
MAX_OVERHEAD = 1.12  # bytes on the link, with headers, acknowledgements and control records, relative to the payload
BUCKET_CAPS_MB = (1, 4, 10, 25)


class Failure(Exception):
    pass


def find(program):
    """Path of a program in the runfiles, which are the current folder under `bazel run`."""
    for path in (program, os.path.join(os.path.dirname(sys.argv[0]), "..", "..", program)):
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failure(f"{program} not found; start this by ./bazelw run //benchmarks/two_hosts")


def start_by_mpirun(hosts, command, folder, environment, **options):
    """Starts mpirun with one rank on each host; returns its Popen."""
    agent = os.path.join(folder, "agent")  # in place of ssh
    with open(agent, "w", encoding="utf-8") as file:
        enter = " ".join(hosts.inside(1, ["unshare", "--uts"]))
        file.write(f'#!/bin/sh\nshift\nexec {enter} sh -c "hostname tandem-1; $*"\n')
    os.chmod(agent, 0o755)
    settings = {"plm_rsh_agent": agent, "btl": "self,tcp", "btl_tcp_if_include": namespaces.INTERFACE,
                "oob_tcp_if_include": namespaces.INTERFACE}
    variables = {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": 29501, **environment}
    return hosts.start(0, [
        "unshare", "--uts", "sh", "-c", 'hostname tandem-0; exec "$@"', "sh", "mpirun", "--allow-run-as-root", "-np", "2",
        "--bind-to", "none", "-H", f"{hosts.address(0)}:1,{hosts.address(1)}:1",
        *(word for name, value in settings.items() for word in ("--mca", name, value)),
        *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
        "sh", "-c", 'exec taskset --cpu-list $OMPI_COMM_WORLD_RANK "$@"', "sh", *command], **options)


def run_job(hosts, command, ranks_per_host, timeout, environment=(), mpi_folder=None):
    """Runs a job; returns the JSON objects that rank 0 printed, and the stderr of all ranks."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        files = {"stdout": out, "stderr": log, "stdin": subprocess.DEVNULL}
        if mpi_folder:
            ranks = [start_by_mpirun(hosts, command, mpi_folder, environment, **files)]
        else:
            ranks = [hosts.start_rank(rank, command, ranks_per_host, environment, **files)
                     for rank in range(sum(namespaces.host_sizes(ranks_per_host)))]
        try:
            codes = [rank.wait(timeout) for rank in ranks]
        except subprocess.TimeoutExpired:
            codes = [f"not finished after {timeout:g} s"]
        for rank in ranks:
            rank.kill()
            rank.wait()
        for file in (out, log):
            file.seek(0)
        text = log.read()
        if any(codes):
            raise Failure(f"{os.path.basename(command[0])} failed ({codes}):\n" + text[-3000:])
        return [json.loads(line) for line in out if line.startswith("{")], text


def check_link_was_used(log, lines, ranks_per_host, by_mpi=False):
    """Checks the hosts and interfaces in the group's log line, and the interface's byte counters."""
    if by_mpi:
        expected = f"calls compared on 2 hosts x 1: gloo over {namespaces.INTERFACE}"
    elif ranks_per_host == 1:
        expected = f"2 hosts x 1: gloo over {namespaces.INTERFACE}"
    else:
        first, second = namespaces.host_sizes(ranks_per_host)
        sizes, flows = (first, f"{first} flows") if first == second else (f"{first} + {second}", "1 flow")
        expected = f"2 hosts x {sizes}: shm inside, gloo over {namespaces.INTERFACE} across ({flows})"
    if expected not in log:
        raise Failure(f"expected the group '{expected}'; the log is:\n{log}")
    for line in lines:
        if "bytes_on_link" not in line:
            continue
        # Partial sums of half types, and with mpi all of them, are exchanged between hosts in float32.
        half = line.get("dtype") == "bfloat16" or line.get("compress", "none") != "none"
        reduces = line.get("kind") not in ("all_gather", "broadcast")
        widened = 2 if half and reduces and (ranks_per_host != 1 or by_mpi) else 1
        payload = line["payload_bytes"] * widened
        least = payload * 0.99 if by_mpi else payload  # MPI may complete before the link has carried the last bytes
        if not least <= line["bytes_on_link"] <= MAX_OVERHEAD * payload + (64 << 10):
            raise Failure(f"{line}: expected {payload} bytes from each host, plus at most {MAX_OVERHEAD - 1:.0%} and 64 KiB")


def show(line):
    if line["kind"] == "link":
        print(f"link  {line['mbit_per_s']:.1f} Mbit/s of payload in each direction, both at once", flush=True)
    elif "dtype" in line:
        print(f"{line['kind']} {line['dtype']} {line['bytes'] / 2**20:.0f} MiB  {line['ms']:.1f} ms = {line['ratio']:.3f} of "
              f"{line['link_ms']:.1f} ms at the link's rate; host 0 sent {line['bytes_on_link'] / 2**20:.2f} MiB", flush=True)
    elif line["kind"] == "ddp":
        compress = f" {line['compress']}" if line["compress"] != "none" else ""
        loaded_ms = line["local_with_traffic_ms"]
        loaded = (f"{line['step_ms'] / loaded_ms:.3f} of {loaded_ms:.1f} ms for a local step with plain TCP streams, "
                  if loaded_ms else "")
        print(f"{line['case']}{compress}  step {line['step_ms']:.1f} ms = {line['ratio']:.3f} of max(local step "
              f"{line['local_ms']:.1f}, first bucket {line['first_ready_ms']:.1f} + link {line['link_ms']:.1f} + update "
              f"{line['update_ms']:.1f} = {line['first_ready_ms'] + line['link_ms'] + line['update_ms']:.1f} ms), "
              f"{loaded}the link carried {line['bytes_on_link'] / 2**20:.1f} MiB a step", flush=True)


class Tandem:
    def __init__(self, hosts, args, mpi_folder=None):
        self.hosts, self.args, self.rank = hosts, args, find("benchmarks/two_hosts/rank")
        self.mpi_folder = mpi_folder

    def measure(self, *flags):
        args = self.args
        command = [self.rank, "--interface", namespaces.INTERFACE, "--link-port", "29600", "--steps", str(args.steps),
                   "--rounds", str(args.rounds), *(["--minimum"] if args.minimum else []), *flags]
        lines, log = run_job(self.hosts, command, args.ranks_per_host, args.timeout, {"TANDEM_LOG": "info"},
                             self.mpi_folder)
        check_link_was_used(log, lines, args.ranks_per_host, bool(self.mpi_folder))
        if self.mpi_folder:
            print("backend mpi:", flush=True)
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
                   str(max(self.args.steps // 2, 4)), "--bucket-cap-mb", ",".join(map(str, BUCKET_CAPS_MB))]
        command += ["--compress", self.args.compress]
        lines, _ = run_job(self.hosts, command, self.args.ranks_per_host, self.args.timeout,
                           {"GLOO_SOCKET_IFNAME": namespaces.INTERFACE, "OMP_NUM_THREADS": "1"})
        best = min(lines, key=lambda line: line["step_ms"])
        all_caps = ", ".join(f"{line['bucket_cap_mb']:g} MB {line['step_ms']:.1f}" for line in lines)
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
    mpi = Tandem(hosts, args, folder) if args.mpi else None
    if args.collectives:
        for tool in (tandem, mpi) if mpi else (tandem,):
            append(args.json, tool.measure("--collectives", args.collectives, "--dtypes", args.dtypes, "--mib", str(args.mib)))
    for case in args.case:
        compress = ["--compress", args.compress]
        sizes = ["--bucket-mib", str(args.bucket_mib)] if args.bucket_mib else []
        lines = tandem.measure("--case", case, *compress, *sizes)
        if args.python:
            torch_line = torch.measure(case)
            more_lines = tandem.measure("--case", case, *compress, *sizes)
            tandem_ms = min(lines[-1]["step_ms"], more_lines[-1]["step_ms"])
            print(f"{case}  {torch_line['step_ms'] / tandem_ms:.2f} times as fast as PyTorch", flush=True)
            lines += more_lines + [torch_line]
        if mpi:
            lines += mpi.measure("--case", case, *compress, *sizes)
        append(args.json, lines)


def parse_sizes(text):
    sizes = tuple(int(size) for size in text.split("+"))
    return sizes[0] if len(sizes) == 1 else sizes


def parse(arguments):
    parser = argparse.ArgumentParser(prog="two_hosts", description="Times collectives and training steps between two emulated hosts")
    parser.add_argument("--case", default=",".join(CASES), help="training cases, separated by commas; '' for none")
    parser.add_argument("--collectives", default="all_reduce", help="timed collectives, separated by commas; '' for none: "
                        "all_reduce, reduce_scatter, all_gather, broadcast, reduce")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="dtypes of the collectives, separated by commas")
    parser.add_argument("--mib", type=float, default=25, help="size of the collectives")
    parser.add_argument("--rate", default="1gbit", help="rate of the link per direction, in tc's syntax; none: no limit")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--ranks-per-host", type=parse_sizes, default=1, help="N, or N+M")
    parser.add_argument("--compress", default="none", choices=("none", "fp16", "bf16"), help="communication hook")
    parser.add_argument("--bucket-mib", type=float, help="size of tandem's buckets")
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the kinds of steps alternate in each")
    parser.add_argument("--minimum", action="store_true",
                        help="report the minimum of the times instead of the median, for a machine with other load")
    parser.add_argument("--python", help="a Python interpreter with PyTorch: also time PyTorch's DDP")
    parser.add_argument("--mpi", action="store_true", help="also time the backend mpi, under mpirun, with one rank per host")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one job may take")
    parser.add_argument("--json", help="append the lines to this file")
    args = parser.parse_args(arguments)
    args.case = [word for word in args.case.split(",") if word]
    args.rate = None if args.rate == "none" else args.rate
    return args


def main(arguments):
    args = parse(arguments)
    namespaces.exit_on_signals()
    try:
        with tempfile.TemporaryDirectory() as folder, namespaces.TwoHosts(args.rate, args.mtu) as hosts:
            measure(hosts, args, folder)
    except namespaces.Unavailable as reason:
        print(f"two_hosts: cannot create namespaces: {reason}", file=sys.stderr)
        return 3
    except Failure as failure:
        print(f"two_hosts: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
