"""Reads, from a kernel's machine code, how many instructions its loops need per memory access."""

import collections
import re

# global_: width in bytes -> (instructions, accesses) of the loops that access global memory; loads: width -> loads of one
# iteration, which are in flight together; shared: (instructions, words of 4 bytes) of the other loops; straight:
# instructions outside of loops.
Mix = collections.namedtuple("Mix", "global_ loads shared straight")

_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+ )?\s*([A-Z][\w.]*)(.*);")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_MOST_IN_FLIGHT = 8


def width_of(opcode):
    """Bytes that an access of this opcode moves per thread."""
    for suffix, width in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".S8", 1)):
        if suffix in opcode:
            return width
    return 4


def parse(code):
    """Opcodes, and branches as (from, to) of instruction indices, of nvdisasm's text of one kernel."""
    opcodes, labels, jumps = [], {}, []
    for line in code.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line):
            target = _TARGET.search(instruction[3])
            if instruction[2].startswith("BRA") and target:
                jumps.append((len(opcodes), target[1]))
            opcodes.append(instruction[2])
    return opcodes, [(at, labels[label]) for at, label in jumps if label in labels]


def mix_of(code):
    """The Mix of a kernel. Code that a forward branch skips counts only if it accesses memory: the rest are slow paths of
    divisions and special cases."""
    opcodes, branches = parse(code)
    is_access = [op.startswith(("LDG", "STG", "LDS", "STS")) for op in opcodes]
    counted = [True] * len(opcodes)
    for at, to in branches:
        if to > at and not any(is_access[at + 1:to]):
            counted[at + 1:to] = [False] * (to - at - 1)
    loop_ends = {}
    for at, to in branches:
        if to <= at:
            loop_ends[to] = max(at, loop_ends.get(to, at))
    loop_of = [None] * len(opcodes)
    for begin, end in sorted(loop_ends.items(), key=lambda loop: loop[0] - loop[1]):  # the largest first
        loop_of[begin:end + 1] = [begin] * (end + 1 - begin)
    members = collections.defaultdict(list)
    for op, loop, is_counted in zip(opcodes, loop_of, counted):
        if is_counted:
            members[loop].append(op)
    straight = len(members.pop(None, []))

    global_ = collections.defaultdict(lambda: [0, 0])
    loads = collections.defaultdict(lambda: [0, 0])
    shared = [0, 0]
    for ops in members.values():
        widths = [width_of(op) for op in ops if op.startswith(("LDG", "STG"))]
        load_widths = [width_of(op) for op in ops if op.startswith("LDG")]
        words = sum(max(4, width_of(op)) // 4 for op in ops if op.startswith(("LDS", "STS")))
        for width in widths:
            global_[width][0] += len(ops) / len(widths)
            global_[width][1] += 1
        for width in load_widths:
            loads[width][0] += min(len(load_widths), _MOST_IN_FLIGHT)
            loads[width][1] += 1
        if not widths and words:
            shared[0] += len(ops)
            shared[1] += words
        elif not widths:
            straight += len(ops)
    return Mix({w: tuple(v) for w, v in global_.items()}, {w: total / n for w, (total, n) in loads.items()}, tuple(shared), straight)
