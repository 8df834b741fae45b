"""Whether the machine is quiet enough for its times to mean something."""

import os
import time


class Cpu:
    """Seconds that all processors have spent, as /proc/stat counts them."""

    def __init__(self, busy, steal, wall, own):
        self.busy, self.steal, self.wall, self.own = busy, steal, wall, own

    @staticmethod
    def parse(line, wall, own):
        """From the line "cpu user nice system idle iowait irq softirq steal ..", in clock ticks."""
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


def disturbance(before, after):
    """How many processors others kept busy between two moments: processes that are not ours, and the host (steal)."""
    seconds = max(after.wall - before.wall, 1e-9)
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, others) / seconds, (after.steal - before.steal) / seconds


def complaint(before, after, limit):
    """What disturbed the machine between two moments, "" if nothing did; `limit` is in processors."""
    others, steal = disturbance(before, after)
    found = []
    if others > limit:
        found.append(f"other processes kept {others:.2f} processors busy")
    if steal > limit:
        found.append(f"the host took {steal:.2f} processors away")
    return " and ".join(found)


def watch(seconds, limit):
    """Looks on for a while; what complaint() says."""
    before = Cpu.now()
    time.sleep(seconds)
    return complaint(before, Cpu.now(), limit)
