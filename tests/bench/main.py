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

import clouds
import cost
import crowd
import databases
import distance
import idle
import locks
import peers
import plot
import redlock
import start
import trouble
from figures import Report, summary_text
from stage import Stage

PARTS = {
    "start": (start.measure,
              "one uncontended lock around `true`, beside flock, etcdctl, redis-py and a floor"),
    "crowd": (crowd.measure, "hand-over, order and price with 10 to 1000 waiters"),
    "distance": (distance.measure, "round trips and hand-over over a true 50 ms link"),
    "etcd": (peers.measure_etcd,
             "beside etcdctl lock on the same etcd, and what becomes of a lost lease"),
    "zookeeper": (peers.measure_zookeeper, "beside kazoo's Lock on the same ZooKeeper"),
    "redlock": (redlock.measure, "five servers, two of them black-holed or one of them slow"),
    "cost": (cost.measure,
             "the server's time and memory for each operation, with up to 10 000 in the queue"),
    "idle": (idle.measure, "waiters and holders at rest"),
    "databases": (databases.measure,
                  "a lock and its hand-over in PostgreSQL and MariaDB, beside their own clients"),
    "cloud": (clouds.measure, "beside loops with kubectl and curl, in Kubernetes and S3"),
    "trouble": (trouble.measure, "waiters after a crash, and inspect of 10 000 locks"),
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
        return "at usual priority: numbers hold on a quiet machine only"
    return "at real-time priority"


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under two minutes, "
                        "and three more for clouds")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeatable")
    parser.add_argument("--runs", type=int, default=1, help="measure so often; summary.md then has "
                        "the lowest and the highest median")
    parser.add_argument("--list", action="store_true", help="name the parts, and end")
    parser.add_argument("--out", help="folder for report.md, summary.md and plot.svg")
    parser.add_argument("--dlock", help="the binary")
    parser.add_argument("--tools", help="folder with ticker, floor, mark and far")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error("--runs: at least 1")
    return given


def measure(stage, wanted, quick, report):
    all_locks = locks.gather(stage, stage.redis(), report)
    for name, (part, _) in PARTS.items():
        if name not in wanted:
            continue
        began = time.monotonic()
        try:
            part(stage, all_locks, report, quick)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            report.notes.append(f"{name}: broke off: {error}")
        print(f"({name}: {time.monotonic() - began:.0f} s)", file=sys.stderr)


def run_once(given):
    """One run of all that is wanted, on servers of its own."""
    report, directory = Report(), tempfile.mkdtemp(prefix="dlock-bench-")
    stage = Stage(directory, given.tools, given.dlock)
    try:
        measure(stage, given.only or PARTS, given.quick, report)
    finally:
        stage.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(report.goal_table())
    notes = "\n".join(f"- {note}" for note in report.notes)
    print(f"\n{notes}")
    report.tables += [report.goal_table(), "", notes, ""]
    return report


def write_out(reports, head, how, folder):
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(line for report in reports for line in report.tables)
    (folder / "report.md").write_text(f"{head}, {how}\n{text}")
    summaries = [summary_text([report.summaries[name] for report in reports
                               if name in report.summaries]) for name in reports[0].summaries]
    (folder / "summary.md").write_text("\n\n".join([*summaries, ""]))
    panels = plot.merged(report.panels for report in reports)
    if panels:
        how += "; dots are medians, bars go from the 10th to the 90th percentile"
        (folder / "plot.svg").write_text(plot.svg(panels, head, how))
    print(f"{folder}/report.md, summary.md (tables for dlock-comparison(7)), plot.svg")


def main():
    given = arguments()
    if given.list:
        for name, (_, what) in PARTS.items():
            print(f"{name:10}{what}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    head, how = f"dlock, measured {machine()}", hurry()
    print(f"{head}, {how}", flush=True)
    try:
        reports = [run_once(given) for _ in range(given.runs)]
    except KeyboardInterrupt:
        return 130
    runs = "1 run" if given.runs == 1 else f"{given.runs} runs"
    write_out(reports, head, f"{runs} {how}", Path(given.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
