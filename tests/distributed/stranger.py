#!/usr/bin/python3
"""Attacks every TCP port that listens in this network namespace, as another user, until its stdin closes.

    stranger.py garbage|close|silent|flood [UID]

Prints "ready", and at the end how many connections it made.
"""

import errno
import os
import select
import socket
import sys
import time

GARBAGE = b"\xa5" * 5000
LISTENING = "0A"
HELD = {"garbage": 32, "close": 0, "silent": 400, "flood": 900}  # connections open at once
BURST = {"garbage": 1, "close": 1, "silent": 1, "flood": 200}  # per port and look


def listening():
    """The addresses of the sockets that listen, by what the kernel shows to every user."""
    for family, path in ((socket.AF_INET, "/proc/net/tcp"), (socket.AF_INET6, "/proc/net/tcp6")):
        with open(path, encoding="ascii") as table:
            for line in list(table)[1:]:
                _, local, _, state = line.split()[:4]
                if state != LISTENING:
                    continue
                host, port = local.split(":")
                words = bytes.fromhex(host)  # each 32 bits as this host orders them
                address = b"".join(words[i:i + 4][::-1] for i in range(0, len(words), 4))
                if not any(address):
                    address = socket.inet_pton(family, "127.0.0.1" if family == socket.AF_INET else "::1")
                yield family, (socket.inet_ntop(family, address), int(port, 16))


def main(mode, uid):
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    print("ready", flush=True)
    held = []
    connections = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        found = list(listening())
        if not found:
            time.sleep(0.0002)
        for family, address in found * BURST[mode]:
            try:
                stranger = socket.socket(family, socket.SOCK_STREAM)
                stranger.setblocking(mode != "flood")
                stranger.settimeout(0 if mode == "flood" else 0.2)
                failed = stranger.connect_ex(address)
                if failed in (0, errno.EINPROGRESS):
                    connections += 1
                    held.append(stranger)
                    if mode == "garbage":
                        stranger.send(GARBAGE)
            except OSError:
                pass
            while len(held) > HELD[mode]:
                held.pop(0).close()
    print(connections, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
