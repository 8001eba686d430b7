#!/usr/bin/env python3
"""Runs tests while some of their processes are stopped at random, as a busy host stops them.

    stall.py SEED LONGEST TEST_PRESET [CTEST ARGUMENTS]

One to three processes at a time, of all below ctest, stand for up to LONGEST seconds: a test, dlock, its
command, a server. Where processes stand in an order that nobody planned, requests and answers meet that
never meet on a quiet machine. A process that its test has stopped is not woken.
"""

import os
import random
import signal
import subprocess
import sys
import time

AT_ONCE = (1, 1, 2, 3)
PAUSE = 0.05


def processes():
    """Parent and state of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        found[int(name)] = (int(parent), state)
    return found


def below(root):
    """Those that run below this one, which is not among them."""
    found = processes()
    children = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    reached, left = [], [root]
    while left:
        more = children.get(left.pop(), [])
        reached += more
        left += more
    return [pid for pid in reached if found[pid][1] in "RSD"]


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stall(tests, chance, longest):
    """How many processes were stopped until the tests were over."""
    stops = 0
    while tests.poll() is None:
        candidates = below(tests.pid)
        chosen = chance.sample(candidates, min(len(candidates), chance.choice(AT_ONCE)))
        for pid in chosen:
            send(pid, signal.SIGSTOP)
        stops += len(chosen)
        time.sleep(chance.uniform(0.01, longest))
        for pid in chosen:
            send(pid, signal.SIGCONT)
        time.sleep(chance.uniform(0, PAUSE))
    return stops


def main():
    seed, longest, preset = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    tests = subprocess.Popen(
        ["ctest", "--preset", preset, "--schedule-random"] + sys.argv[4:], stdin=subprocess.DEVNULL)
    stops = stall(tests, random.Random(seed), longest)
    print(f"stall: {stops} stops, seed {seed}; {'no test failed' if tests.returncode == 0 else 'a test failed'}")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
