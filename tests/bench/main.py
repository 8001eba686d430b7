#!/usr/bin/env python3
"""Measures dlock beside others on this machine, and judges its goals. Called by scripts/bench."""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import cost
import crowd
import distance
import idle
import locks
import plot
import redlock
import start
import trouble
from figures import Report
from stage import Stage

PARTS = {
    "start": "one uncontended lock around `true`, beside flock, etcdctl, redis-py and a floor",
    "crowd": "hand-over, order and price with 10 to 1000 waiters",
    "distance": "round trips and hand-over over a true 50 ms link",
    "cost": "the server's time and memory for each operation, with up to 10 000 in the queue",
    "idle": "waiters and holders at rest",
    "redlock": "five servers, two of them black-holed or one of them slow",
    "trouble": "waiters after a crash, and inspect of 10 000 locks",
}


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((l.split(":")[1].strip() for l in file if l.startswith("model name")), "?")
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    return (f"{date.today()}, {os.cpu_count()} x {model}, Linux {platform.release()}, "
            f"Redis {redis.split('v=')[1].split()[0]}")


def hurry():
    """Real time, where allowed: what else this machine does would be measured, too."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except OSError:
        return "at usual priority: numbers hold on a quiet machine alone"
    return "at real-time priority"


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under two minutes")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeatable")
    parser.add_argument("--list", action="store_true", help="name the parts, and end")
    parser.add_argument("--out", help="folder for report.md, readme.md and plot.svg")
    parser.add_argument("--dlock", help="the binary")
    parser.add_argument("--tools", help="folder with ticker, floor, mark and far")
    return parser.parse_args()


def measure(stage, wanted, quick, report):
    all_locks = locks.gather(stage, stage.redis(), report)
    for part in (start, crowd, distance, redlock, cost, idle, trouble):
        name = part.__name__
        if name not in wanted:
            continue
        began = time.monotonic()
        try:
            part.measure(stage, all_locks, report, quick)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            report.notes.append(f"{name}: broke off: {error}")
        print(f"({name}: {time.monotonic() - began:.0f} s)", file=sys.stderr)


def write_out(report, head, folder):
    folder.mkdir(parents=True, exist_ok=True)
    notes = "\n".join(f"- {note}" for note in report.notes)
    text = "\n".join([head, *report.tables, report.goal_table(), "", notes, ""])
    (folder / "report.md").write_text(text)
    (folder / "readme.md").write_text("\n\n".join([*report.readme, ""]))
    if report.plots:
        (folder / "plot.svg").write_text(plot.svg(list(report.plots.values())))
    print(f"\n{notes}\n\n{folder}/report.md, readme.md (tables for dlock-comparison(7)), plot.svg")


def main():
    given = arguments()
    if given.list:
        for name, what in PARTS.items():
            print(f"{name:8}{what}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    head = f"dlock, measured {machine()}, {hurry()}"
    print(head, flush=True)
    report = Report()
    directory = tempfile.mkdtemp(prefix="dlock-bench-")
    stage = Stage(directory, given.tools, given.dlock)
    try:
        measure(stage, given.only or PARTS, given.quick, report)
    except KeyboardInterrupt:
        report.notes.append("interrupted")
        return 130
    finally:
        stage.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(report.goal_table())
    write_out(report, head, Path(given.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
