"""Two hosts on one machine: network namespaces joined by a link of limited speed.  Needs root, ip and tc."""

import os
import shutil
import signal
import subprocess
import time

INTERFACE = "eth0"  # of the link, in both namespaces
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # where ip and tc are; a test's has neither


class Unavailable(Exception):
    """This machine or user cannot make namespaces."""


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def exit_on_signals():
    """So that `with` blocks and `finally` clauses run, which clean up."""

    def leave(number, _frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


class TwoHosts:
    """with TwoHosts(rate="1gbit") as hosts: hosts.start(0, [...]); ...

    `rate` limits each direction (tc's words; None for no limit).  Whatever runs in the namespaces at the end is killed.
    """

    def __init__(self, rate="1gbit", mtu=1500):
        self.rate, self.mtu = rate, mtu
        self.names = [f"tandem-{os.getpid()}-{host}" for host in (0, 1)]

    def __enter__(self):
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise Unavailable(f"there is no program '{tool}'")
        try:
            self._make()
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

    def _make(self):
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
        """A Popen of the command on that host."""
        return subprocess.Popen(self.inside(host, command), **options)

    def start_rank(self, rank, command, ranks_per_host=1, environment=(), **options):
        """A Popen of one rank of a job, where the first host has the lowest; each host's ranks share one core."""
        host, local = divmod(rank, ranks_per_host)
        variables = {"RANK": rank, "WORLD_SIZE": 2 * ranks_per_host, "LOCAL_RANK": local,
                     "LOCAL_WORLD_SIZE": ranks_per_host, "MASTER_ADDR": self.address(0), "MASTER_PORT": 29500}
        variables.update(environment)
        cores = sorted(os.sched_getaffinity(0))
        on_core = ["taskset", "--cpu-list", str(cores[host % len(cores)])]
        return self.start(host, on_core + command,
                          env={**os.environ, **{name: str(value) for name, value in variables.items()}}, **options)

    def bytes_sent(self, host):
        """By the interface, headers included."""
        path = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
        return int(subprocess.run(self.inside(host, ["cat", path]), capture_output=True, text=True, check=True).stdout)

    def kill(self, host):
        """Everything that runs there."""
        for pid in ip("netns", "pids", self.names[host]).split():
            os.kill(int(pid), signal.SIGKILL)

    def cut(self, host):
        """Nothing reaches the host from now on, nor leaves it."""
        ip("-n", self.names[host], "link", "set", INTERFACE, "down")
