"""dlock in a Kubernetes API and in a bucket, beside what people write for want of it: time,
hand-over, and requests, which a cloud counts, limits, and charges for."""

import random
import shutil
import time
from pathlib import Path

import crowd
from cloud_locks import IMPORTS, SERVERS, Client, Gateway, Kubernetes
from figures import Summary, median, spread
from locks import DEBIAN_PYTHON
from stage import until
from start import TRUE

HAND_OVER_GOAL_MS = 40


def requests_of(server, lock):
    """How many the server has heard of from clients of this lock."""
    with open(server.log, encoding="utf-8") as log:
        return sum(server.each in line and lock.logged in line for line in log)


def alone(stage, server, locks, rounds):
    """{name: ([ms to the command], [ms after it], requests)} of locks with one client, by turns."""
    for lock in locks:
        crowd.timed(stage, lock, wait=True)  # the first makes the object, and fills kubectl's cache
    before = [requests_of(server, lock) for lock in locks]
    runs = [[crowd.timed(stage, lock, wait=True) for lock in locks] for _ in range(rounds)]
    return {lock.name: ([first - begun for begun, first, _, _ in of_lock],
                        [ended - last for _, _, last, ended in of_lock],
                        (requests_of(server, lock) - asked) / rounds)
            for lock, asked, of_lock in zip(locks, before, zip(*runs))}


def hand_overs(stage, lock, rounds):
    """Milliseconds from the end of one command to the beginning of the next, with one waiter."""
    log, clients = stage.fresh("log"), []
    for number in range(rounds + 1):
        # Sections of uneven length: those who poll wait for any part of a second.
        us = random.randint(1_500_000, 2_500_000)
        clients.append(stage.start(lock.argv("handed", [stage.tool("mark"), log, str(number),
                                                        str(us)], wait=True)))
        until(lambda n=number: f"B {n} " in text_of(log), lock.name, seconds=30, pause=0.02)
    for client in clients:
        client.wait(timeout=30)
        stage.end(client)
    runs = crowd.read_log(log)
    return [later[0] - earlier[1] for earlier, later in zip(runs, runs[1:])]


def text_of(path):
    return Path(path).read_text() if Path(path).exists() else ""


def idle(stage, server, locks, seconds):
    """{name: requests a minute} of one waiter each, whose holder sends none."""
    waiters = []
    for number, lock in enumerate(locks):
        lock.hold(stage, f"idle-{number}")
        waiters.append(stage.start(lock.argv(f"idle-{number}", TRUE, wait=True)))
    time.sleep(5)  # until all that a start brings is over
    before = [requests_of(server, lock) for lock in locks]
    time.sleep(seconds)
    after = [requests_of(server, lock) for lock in locks]
    stage.end(*waiters)
    return {lock.name: 60 * (b - a) / seconds for lock, a, b in zip(locks, before, after)}


def beside(stage, report, quick, server, place):
    """Compares the locks at one server; returns the median hand-over of the first, and its waiter's
    requests a minute."""
    locks = server.locks(report)
    times = alone(stage, server, locks, 7 if quick else 25)
    handed = {lock.name: hand_overs(stage, lock, 5 if quick else 15) for lock in locks}
    # A waiter of dlock confirms its place every 25 s.
    asked = idle(stage, server, locks, 25 if quick else 50)
    rows, summary = [], {}
    for name, (before, after, requests) in times.items():
        rows.append((name, spread(before), spread(after), spread(handed[name]), f"{requests:.1f}",
                     f"{asked[name]:.1f}"))
        summary[name] = (median(before), median(handed[name]), requests, asked[name])
    report.add(f"A lock in {place}", ["", "ms to the command (p10..p90)", "ms after it",
               "hand-over to one waiter, ms", "requests", "waiting: requests a minute"], rows)
    report.summaries[place] = Summary([f"A lock in {place}", "ms", "hand-over, ms", "requests",
                                       "waiting: requests a minute"], ["", "", "", ""], summary)
    return median(handed[locks[0].name]), asked[locks[0].name]


def are_here(report, place, server, *programs):
    missing = [program for program in programs if not shutil.which(program)]
    if not (SERVERS / server).exists():
        missing.append(f"{server} (scripts/cloud-servers)")
    if missing:
        report.notes.append(f"{place}: skipped, not here: {', '.join(missing)}")
    return not missing


def measure(stage, _, report, quick):
    if are_here(report, "Kubernetes", "kube-apiserver", "etcd", "openssl", "curl"):
        measure_kubernetes(stage, report, quick)
    if not are_here(report, "S3", "versitygw", "curl"):
        return
    gateway = Gateway(stage)
    if gateway.is_known_to_dlock():
        beside(stage, report, quick, gateway, "S3 (versitygw)")
    else:
        report.notes.append("S3: skipped, this dlock does not know s3://")


def measure_kubernetes(stage, report, quick):
    server = Kubernetes(stage)
    hand_over, asked = beside(stage, report, quick, server, "Kubernetes")
    script = [DEBIAN_PYTHON, stage.script("imports.py", IMPORTS)]
    start = median(alone(stage, server, [Client("imports", script, "no requests")],
                         7 if quick else 25)["imports"][0])
    report.notes.append(f"of the Lease client's ms to the command, {start:.0f} are Python's start")
    report.judge("hand-over in Kubernetes, one waiter", f"< {HAND_OVER_GOAL_MS} ms",
                 f"{hand_over:.1f} ms", hand_over < HAND_OVER_GOAL_MS)
    report.judge("an idle waiter in Kubernetes", "no request a minute", f"{asked:.1f}", asked == 0)
