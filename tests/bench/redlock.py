"""A lock on five independent servers, two of which swallow every packet or one of which is slow."""

import threading
import time
from contextlib import contextmanager, nullcontext

from distance import FAR, build_link
from figures import median, spread
from stage import Client

GOAL = "<= 1.1 x all five up"
HOLES, SLOW = "5 servers, 2 of them black-holed", "5 servers, 1 of them slow by 200 ms"
# An unused address in the network of the link's far end.
NOBODY = "10.77.0.99"


def argv(stage, near, hosts, ports):
    servers = [word for host, port in zip(hosts, ports)
               for word in ("--server", f"redis://{host}:{port}")]
    return ["nsenter", f"--net={near}", stage.dlock, "run", "-q", "-n", *servers, "-k", "many",
            "--", "/usr/bin/true"]


def make_trusted(redis):
    """As if it had been in use for long: a new member has no vote for two minutes."""
    info = redis.client.ask("INFO", "server")
    run_id = next(line[7:] for line in info.splitlines() if line.startswith("run_id:"))
    long_ago = int((time.time() - 3600) * 1e6)
    redis.client.ask("SET", "dlock:alive", f"{run_id} {long_ago} -")


@contextmanager
def slowed(redis):
    """It stands still for 200 ms, again and again, and answers in between."""
    over = threading.Event()
    client = Client(redis.socket)

    def stand_still():
        while not over.is_set():
            client.ask("DEBUG", "SLEEP", "0.2")

    thread = threading.Thread(target=stand_still)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        client.close()


def measure(stage, _, report, quick):
    spaces = build_link(stage)
    if spaces is None:
        for what in (HOLES, SLOW):
            report.skip(what, GOAL, "needs root, TUN devices and nsenter")
        return
    near, far = spaces
    options = ("--protected-mode", "no", "--enable-debug-command", "yes")
    servers = [stage.redis(*options, space=far, host="0.0.0.0") for _ in range(5)]
    for redis in servers:
        make_trusted(redis)
    ports = [redis.port for redis in servers]
    up, holes = [FAR] * 5, [FAR, NOBODY, FAR, NOBODY, FAR]
    kinds = {"all five up": (up, nullcontext), "two black-holed": (holes, nullcontext),
             "one slow by 200 ms": (up, lambda: slowed(servers[1]))}
    times = {name: [] for name in kinds}
    try:
        for _ in range(5 if quick else 20):
            for name, (hosts, trouble) in kinds.items():
                with trouble():
                    begun = time.monotonic()
                    stage.run(argv(stage, near, hosts, ports))
                    times[name].append((time.monotonic() - begun) * 1000)
    except RuntimeError as error:
        for what in (HOLES, SLOW):
            report.skip(what, GOAL, str(error)[-60:])
        return
    finally:
        for redis in servers:
            redis.end()
    report.add("Acquire and release on five servers over a true 50 ms link",
               ["", "ms (p10..p90)"], [(name, spread(each, 0)) for name, each in times.items()])
    all_up, *troubled = map(median, times.values())
    for what, found in zip((HOLES, SLOW), troubled):
        report.judge(what, GOAL, f"{found / all_up:.2f}", found <= 1.1 * all_up)
