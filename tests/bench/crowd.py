"""Many waiters for one key: how fast, in which order and at what price it is handed over."""

import os
import time
from collections import namedtuple

from figures import Summary, median, spread
from plot import Panel
from stage import until

Crowd = namedtuple("Crowd", "gaps total out_of_order calls commands cpu pss rss")


def memory_of(pid):
    """(PSS, RSS) in MB."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        fields = dict(line.split(":")[:2] for line in file if ":" in line)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("Pss", "Rss"))


def read_log(path):
    """[(begun, ended, number)] in order of beginning, in milliseconds."""
    begun, ended = {}, {}
    with open(path) as file:
        for line in file:
            what, number, ns = line.split()
            (begun if what == "B" else ended)[int(number)] = int(ns) / 1e6
    return sorted((begun[number], ended[number], number) for number in begun)


def timed(stage, lock, wait=False):
    """Of one run with an empty command: its beginning, the command's, the command's end, and its end,
    in milliseconds."""
    def now():
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6
    log, begun = stage.fresh("log"), now()
    stage.run(lock.argv("far", [stage.tool("mark"), log, "1", "0"], wait))
    ended = now()
    first, last, _ = read_log(log)[0]
    return begun, first, last, ended


def one_by_one(stage, lock, rounds, wait=False):
    """Milliseconds up to the command's first instruction, and after its last: the medians."""
    runs = [timed(stage, lock, wait) for _ in range(rounds)]
    return tuple(median([run[i + 1] - run[i] for run in runs]) for i in (0, 2))


def inversions(order):
    return sum(a > b for i, a in enumerate(order) for b in order[i + 1:])


def line_up(stage, lock, key, count, log, section_us):
    """A holder behind a gate, and who waits for it. (holder, gate, waiters)."""
    gate, ready = stage.fresh("gate"), stage.fresh("ready")
    os.mkfifo(gate)
    # We hold a write end from the start, so that the gate also opens when this process dies.
    opened = os.open(gate, os.O_RDWR)
    mark = stage.tool("mark")
    script = 'echo >"$1"; read -r line <"$0"; exec "$2" "$3" 0 0'
    holder = stage.start(lock.argv(key, ["sh", "-c", script, gate, ready, mark, log], wait=True))
    until(lambda: os.path.exists(ready), f"{lock.name} to hold")
    waiters = []
    for number in range(1, count + 1):
        waiters.append(stage.start(lock.argv(key, [mark, log, str(number), str(section_us)], True)))
        if lock.queued(key) is None:
            until(lambda n=number: clients(lock) >= n + 2, f"client {number} of {lock.name}")
        else:
            until(lambda n=number: lock.queued(key) >= n, f"waiter {number} of {lock.name}")
    return holder, opened, waiters


def clients(lock):
    text = lock.redis.client.ask("INFO", "clients")
    line = next(line for line in text.splitlines() if line.startswith("connected_clients"))
    return int(line.split(":")[1])


def run(stage, lock, count, section_us=1000):
    log = stage.fresh("log")
    holder, gate, waiters = line_up(stage, lock, "crowd", count, log, section_us)
    sample = waiters[:: max(1, count // 10)]
    memory = [memory_of(waiter.pid) for waiter in sample]
    redis = lock.redis
    before = (redis.script_calls(), all_calls(lock), redis.cpu_seconds()) if redis else (0, 0, 0)
    os.write(gate, b"\n")
    for process in [holder, *waiters]:
        process.wait(timeout=120)
        stage.end(process)
    os.close(gate)
    after = (redis.script_calls(), all_calls(lock), redis.cpu_seconds()) if redis else (0, 0, 0)
    runs = read_log(log)
    if len(runs) != count + 1:
        raise RuntimeError(f"{lock.name}: {len(runs) - 1} of {count} waiters ran")
    # The first hand-over comes from the gate's shell, which takes longer to end.
    gaps = [later[0] - earlier[1] for earlier, later in zip(runs[1:], runs[2:])] or [
        runs[1][0] - runs[0][1]]
    order = [number for _, _, number in runs]
    pairs = count * (count - 1) / 2 or 1
    calls, commands, cpu = (b - a for a, b in zip(before, after))
    # The last release has no next waiter.
    return Crowd(gaps, runs[-1][1] - runs[0][1], 100 * inversions(order) / pairs,
                 (calls - 1) / count, (commands - 1) / count, 1e6 * cpu / count,
                 *(median([m[i] for m in memory]) for i in (0, 1)))


def all_calls(lock):
    """Commands of clients, without those that measure, and without those that scripts make."""
    stats = lock.redis.calls()
    of_clients = ("eval", "evalsha", "subscribe", "unsubscribe", "multi", "exec", "blpop",
                  "client|setname", "auth", "select", *lock.commands)
    return sum(stats.get(name, {}).get("calls", 0) for name in of_clients)


def measure(stage, locks, report, quick):
    waiting = [lock for lock in locks if lock.waits]
    sizes = (10, 50) if quick else (10, 50, 100, 1000)
    found = {}
    for size in sizes:
        for _ in range({10: 3, 50: 3, 100: 2, 1000: 1}[size] if not quick else 2):
            for lock in waiting:
                if size <= lock.most:
                    found.setdefault((lock.name, size), []).append(run(stage, lock, size))
    tell(report, waiting, sizes, found)
    return found


def joined(crowds, name):
    return median([getattr(crowd, name) for crowd in crowds])


def tell(report, waiting, sizes, found):
    rows = []
    for size in sizes:
        for lock in waiting:
            crowds = found.get((lock.name, size))
            if not crowds:
                continue
            gaps = [gap for crowd in crowds for gap in crowd.gaps]
            on_redis = lock.redis is not None
            rows.append((size, lock.name, spread(gaps), f"{joined(crowds, 'total'):.0f}",
                         f"{joined(crowds, 'out_of_order'):.0f} %",
                         f"{joined(crowds, 'calls'):.2f}" if on_redis else "-",
                         f"{joined(crowds, 'commands'):.2f}" if on_redis else "-",
                         f"{joined(crowds, 'cpu'):.0f}" if on_redis else "-",
                         f"{joined(crowds, 'pss'):.2f} / {joined(crowds, 'rss'):.1f}"))
    report.add("Waiters with sections of 1 ms: end of one command to first instruction of the next",
               ["waiters", "", "hand-over ms (p10..p90)", "total ms", "out of order",
                "script calls", "commands", "server CPU us", "PSS / RSS MB"], rows)
    judge(report, sizes, found)
    report.summaries["crowd"] = summary(waiting, found)
    title = "Hand-over to the next waiter"
    report.panels[title] = Panel(title, "ms", "waiters", {
        lock.name: {size: [gap for crowd in found[lock.name, size] for gap in crowd.gaps]
                    for size in sizes if (lock.name, size) in found} for lock in waiting})
    title = "Memory of a waiter among 10 (PSS)"
    report.panels[title] = Panel(title, "MB", "", {
        lock.name: {0: [crowd.pss for crowd in found[lock.name, 10]]} for lock in waiting})


def summary(waiting, found):
    rows, flock = {}, None
    for lock in waiting:
        crowds = found.get((lock.name, 50))
        if not crowds:
            continue
        gap = median([gap for crowd in crowds for gap in crowd.gaps])
        flock = flock or gap  # the first of all
        rows[lock.name] = (gap, gap / flock, joined(crowds, "calls") if lock.redis else None,
                           joined(crowds, "pss"))
    return Summary(["A hand-over among 50 waiters", "ms", "x flock", "script calls",
                    "PSS of a waiter"], ["", "", "", " MB"], rows)


def judge(report, sizes, found):
    def gaps(name, size):
        return [gap for crowd in found[name, size] for gap in crowd.gaps]
    for name in ("dlock, Redis", "dlock, local"):
        factor = median(gaps(name, 50)) / median(gaps("flock", 50))
        report.judge(f"{name}: hand-over on loopback", "<= 1.3 x flock", f"{factor:.2f}",
                     factor <= 1.3)
        total = joined(found[name, 50], "total") / joined(found["flock", 50], "total")
        report.judge(f"{name}: 50 waiters, total", "<= 1.3 x flock", f"{total:.2f}", total <= 1.3)
        worst = max(joined(found[name, size], "out_of_order") for size in sizes)
        report.judge(f"{name}: order", "FIFO", f"{worst:.2f} % of pairs out of order", worst == 0)
    calls = max(joined(found["dlock, Redis", size], "calls") for size in sizes)
    report.judge(f"script calls a hand-over, up to {sizes[-1]} waiters", "<= 2", f"{calls:.2f}",
                 calls <= 2)
