"""A lock on five independent servers, two of which swallow every packet."""

import time

from distance import FAR, build_link
from figures import median, spread

WHAT, GOAL = "5 servers, 2 of them black-holed", "<= 1.1 x all five up"
# In the network of the link's far end, and nobody's.
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


def measure(stage, _, report, quick):
    spaces = build_link(stage)
    if spaces is None:
        return report.skip(WHAT, GOAL, "needs root, TUN devices and nsenter")
    near, far = spaces
    servers = [stage.redis("--protected-mode", "no", space=far, host="0.0.0.0") for _ in range(5)]
    for redis in servers:
        make_trusted(redis)
    ports = [redis.port for redis in servers]
    kinds = {"all five up": [FAR] * 5, "two black-holed": [FAR, NOBODY, FAR, NOBODY, FAR]}
    times = {name: [] for name in kinds}
    try:
        for _ in range(5 if quick else 20):
            for name, hosts in kinds.items():
                begun = time.monotonic()
                stage.run(argv(stage, near, hosts, ports))
                times[name].append((time.monotonic() - begun) * 1000)
    except RuntimeError as error:
        return report.skip(WHAT, GOAL, str(error)[-60:])
    finally:
        for redis in servers:
            redis.end()
    up, holes = times.values()
    found = median(holes) / median(up)
    report.add("Acquire and release on five servers over a true 50 ms link",
               ["", "ms (p10..p90)"], [(name, spread(each, 0)) for name, each in times.items()])
    return report.judge(WHAT, GOAL, f"{found:.2f}", found <= 1.1)
