"""Emulates two hosts on one machine: two network namespaces and a rate-limited link. Needs root, ip and tc."""

import os
import shutil
import signal
import subprocess
import time

INTERFACE = "eth0"  # name of the link's interface in both namespaces
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # Bazel's test PATH lacks ip and tc


class Unavailable(Exception):
    """This machine or user cannot create network namespaces."""


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def exit_on_signals():
    """Turns signals into SystemExit, so that `with` blocks and `finally` clauses clean up."""

    def handler(number, _frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def host_sizes(ranks_per_host):
    """Ranks of each host: `ranks_per_host` is their number on both hosts, or a pair."""
    return ranks_per_host if isinstance(ranks_per_host, tuple) else (ranks_per_host, ranks_per_host)


class TwoHosts:
    """with TwoHosts(rate="1gbit") as hosts: hosts.start(0, [...]); ...

    `rate` limits each direction (in tc's syntax; None: no limit). At exit all processes in the namespaces are killed.
    """

    def __init__(self, rate="1gbit", mtu=1500):
        self.rate, self.mtu = rate, mtu
        self.names = [f"tandem-{os.getpid()}-{host}" for host in (0, 1)]

    def __enter__(self):
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise Unavailable(f"program '{tool}' not found; install Debian's package iproute2")
        try:
            self._create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            if not os.path.exists(f"/run/netns/{name}"):
                continue
            deadline = time.monotonic() + 5
            while (pids := ip("netns", "pids", name).split()) and time.monotonic() < deadline:
                for pid in pids:
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                time.sleep(0.01)
            ip("netns", "delete", name)

    def _create(self):
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", INTERFACE, "netns", self.names[0], "type", "veth", "peer", "name", INTERFACE, "netns",
           self.names[1])
        for host, name in enumerate(self.names):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", self.address(host) + "/24", "dev", INTERFACE)
            ip("-n", name, "link", "set", INTERFACE, "mtu", str(self.mtu), "up")
            if self.rate is not None:
                limit = subprocess.run(self.inside(host, ["tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate",
                                                          self.rate, "burst", "256kb", "latency", "50ms"]),
                                       capture_output=True, text=True)
                if limit.returncode != 0:
                    raise Unavailable(f"tc: {limit.stderr.strip()}")

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def inside(self, host, command):
        return ["ip", "netns", "exec", self.names[host], *command]

    def start(self, host, command, **options):
        """Starts the command on the host; returns its Popen."""
        return subprocess.Popen(self.inside(host, command), **options)

    def start_rank(self, rank, command, ranks_per_host=1, environment=(), **options):
        """Starts one rank of a job; returns its Popen. Host 0 has the first ranks; the ranks of a host share one core."""
        sizes = host_sizes(ranks_per_host)
        host = int(rank >= sizes[0])
        variables = {"RANK": rank, "WORLD_SIZE": sum(sizes), "LOCAL_RANK": rank - host * sizes[0],
                     "LOCAL_WORLD_SIZE": sizes[host], "MASTER_ADDR": self.address(0), "MASTER_PORT": 29500}
        variables.update(environment)
        cores = sorted(os.sched_getaffinity(0))
        on_core = ["taskset", "--cpu-list", str(cores[host % len(cores)])]
        return self.start(host, on_core + command,
                          env={**os.environ, **{name: str(value) for name, value in variables.items()}}, **options)

    def bytes_sent(self, host):
        """Bytes that the host's interface has sent, including headers."""
        path = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
        return int(subprocess.run(self.inside(host, ["cat", path]), capture_output=True, text=True, check=True).stdout)

    def kill(self, host):
        """Kills all processes of the host."""
        for pid in ip("netns", "pids", self.names[host]).split():
            os.kill(int(pid), signal.SIGKILL)

    def cut(self, host):
        """Disconnects the host from the link."""
        ip("-n", self.names[host], "link", "set", INTERFACE, "down")
