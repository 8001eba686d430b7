"""After a crash of the holder, and looking at ten thousand locks."""

import signal
import time

import crowd
from figures import median, spread
from locks import Dlock
from script import Requests
from stage import until


def after_crash(stage, redis, report, rounds):
    """From the end of a killed holder's lease to the first instruction of the next command."""
    lock, late, key = Dlock(stage, redis), [], "dlock:{crash}"
    for _ in range(rounds):
        log = stage.fresh("log")
        argv = lock.argv("crash", ["/usr/bin/sleep", "60"], wait=True)
        holder = stage.start([*argv[:2], "-t", "1s", *argv[2:]])
        until(lambda: redis.client.ask("EXISTS", key), "a holder")
        waiters = [stage.start(lock.argv("crash", [stage.tool("mark"), log, str(i), "0"], True))
                   for i in range(5)]
        until(lambda: lock.queued("crash") == 5, "five waiters")
        stage.end(holder, how=signal.SIGKILL)
        left = redis.client.ask("PTTL", key)
        end = time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6 + left
        for process in waiters:
            process.wait(timeout=20)
        stage.end(*waiters)
        late.append(crowd.read_log(log)[0][0] - end)
    report.add("From the end of a killed holder's lease to the next command's first instruction",
               ["", "ms (p10..p90)"], [("dlock, Redis", spread(late, 1))])
    report.judge("restart of a crashed holder's waiters", "within 100 ms of the lease's end",
                 f"{max(late):.0f} ms at most of {len(late)}", max(late) <= 100)


def inspect(stage, redis, report, rounds):
    make = Requests(stage, redis).make
    redis.client.pipeline([make("acquire", f"lock{i}", i) for i in range(10_000)])
    # In microseconds: logs everything that blocks other clients for longer than a millisecond.
    redis.client.ask("CONFIG", "SET", "slowlog-log-slower-than", "1000")
    redis.client.ask("SLOWLOG", "RESET")
    took = []
    for _ in range(rounds):
        begun = time.monotonic()
        stage.run([stage.dlock, "inspect", "--server", redis.url])
        took.append(time.monotonic() - begun)
    slow = [entry[2] for entry in redis.client.ask("SLOWLOG", "GET", "100")]
    longest = max(slow, default=0) / 1000
    text = f"{longest:.1f}" if slow else "< 1"
    report.add("inspect of 10 000 locks", ["", "s (p10..p90)", "longest command, ms"],
               [("dlock, Redis", spread(took), text)])
    report.judge("inspect of 10 000 locks", "< 1 s, no command above 5 ms",
                 f"{median(took):.2f} s, {text} ms", median(took) < 1 and longest <= 5)


def measure(stage, _, report, quick):
    redis = stage.redis()
    after_crash(stage, redis, report, 3 if quick else 10)
    inspect(stage, redis, report, 3 if quick else 10)
    redis.end()
