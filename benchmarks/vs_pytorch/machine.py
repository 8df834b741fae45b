"""Detects other load on the machine that would disturb measurements."""

import os
import time


class Cpu:
    """CPU seconds of the machine so far, summed over its processors: busy, stolen by the host, and used by this process and
    its children (own); `wall` is the clock."""

    def __init__(self, busy, steal, wall, own):
        self.busy, self.steal, self.wall, self.own = busy, steal, wall, own

    @staticmethod
    def parse(line, wall, own):
        """Parses the line "cpu user nice system idle iowait irq softirq steal ..." of /proc/stat, in clock ticks."""
        fields = [int(field) / os.sysconf("SC_CLK_TCK") for field in line.split()[1:]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (fields + [0] * 8)[:8]
        return Cpu(user + nice + system + irq + softirq, steal, wall, own)

    @staticmethod
    def now():
        with open("/proc/stat", encoding="ascii") as file:
            line = file.readline()
        spent = os.times()
        own = spent.user + spent.system + spent.children_user + spent.children_system
        return Cpu.parse(line, time.monotonic(), own)


def other_load(before, after):
    """Mean number of processors used between two readings by other processes, and taken by the host (steal)."""
    seconds = max(after.wall - before.wall, 1e-9)
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, others) / seconds, (after.steal - before.steal) / seconds


def describe_load(before, after, limit):
    """Describes other load above `limit` processors between two readings; "" if there was none."""
    others, steal = other_load(before, after)
    found = []
    if others > limit:
        found.append(f"other processes kept {others:.2f} processors busy")
    if steal > limit:
        found.append(f"the host took {steal:.2f} processors away")
    return " and ".join(found)


def observe(seconds, limit):
    """Sleeps, and returns describe_load() of that time."""
    before = Cpu.now()
    time.sleep(seconds)
    return describe_load(before, Cpu.now(), limit)
