"""dlock beside `etcdctl lock` on the same etcd: requests, hand-over, memory, and a lease that ends."""

import json
import os
import shutil
import time
import urllib.request
from base64 import b64encode

import crowd
from figures import median, spread
from locks import Etcd, Lock
from relay import Relay

ONE_WAY_MS = 25


def post(url, path, fields):
    with urllib.request.urlopen(f"{url}/v3/{path}", json.dumps(fields).encode(), timeout=5) as answer:
        return json.load(answer)


def handled(url):
    """Requests of clients; those through the gateway count once."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("grpc_server_started_total") or
               line.startswith("grpc_server_msg_received_total") and "bidi_stream" in line)


class Etcdctl(Lock):
    name = "etcdctl lock"

    def __init__(self, etcd, url=None):
        self.etcd, self.url = etcd, url or etcd.url

    def argv(self, key, command, wait):
        return ["etcdctl", "--endpoints", self.url, "lock", key, "--", *command]

    def queued(self, key):
        return (self.etcd.count(key) or 1) - 1


class DlockEtcd(Lock):
    name = "dlock, etcd"

    def __init__(self, stage, etcd, url=None):
        self.binary, self.etcd, self.url = stage.dlock, etcd, url or etcd.url

    def argv(self, key, command, wait):
        return [self.binary, "run", "-q", "--server", "etcd" + self.url[len("http"):],
                *([] if wait else ["-n"]), "-k", key, "--", *command]

    def queued(self, key):
        first = f"dlock:k:{key}\n".encode()
        found = post(self.etcd.url, "kv/range", {
            "key": b64encode(first).decode(),
            "range_end": b64encode(first[:-1] + b"\x0b").decode(), "count_only": True})
        return int(found.get("count", 0)) - 1


def far_start(stage, lock, rounds):
    """Milliseconds up to the command's first instruction, and after its last."""
    log, found = stage.path("log"), []
    for _ in range(rounds):
        if os.path.exists(log):
            os.unlink(log)
        begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        stage.run(lock.argv("far", [stage.tool("mark"), log, "1", "0"], wait=True))
        ended = time.clock_gettime(time.CLOCK_BOOTTIME)
        first, last, _ = crowd.read_log(log)[0]
        found.append((first - begun * 1000, ended * 1000 - last))
    return [median(values) for values in zip(*found)]


def far_hand_overs(stage, lock):
    """Milliseconds from the end of one command to the beginning of the next, of six in a row."""
    log = stage.path("log")
    if os.path.exists(log):
        os.unlink(log)
    clients = []
    for number in range(1, 7):
        clients.append(stage.start(lock.argv("far", [stage.tool("mark"), log, str(number),
                                                     "1500000"], wait=True)))
        time.sleep(0.4)
    for client in clients:
        client.wait(timeout=30)
        stage.end(client)
    runs = crowd.read_log(log)
    return [later[0] - earlier[1] for earlier, later in zip(runs, runs[1:])]


def lost_lease(stage, lock, etcd):
    """Whether the command runs on for 15 s after the lease of its lock has ended."""
    beats, stop = (stage.path(f"{what}-{type(lock).__name__}") for what in ("beats", "stop"))
    open(beats, "w", encoding="ascii").close()
    process = stage.start(lock.argv("lost", [
        "sh", "-c", f"until [ -e '{stop}' ]; do echo x >>'{beats}'; sleep 0.2; done"],
        wait=True))
    time.sleep(2)
    begun = time.monotonic()
    for lease in post(etcd.url, "lease/leases", {}).get("leases", []):
        post(etcd.url, "lease/revoke", {"ID": lease["ID"]})
    stopped, size = None, os.path.getsize(beats)
    last = begun
    while time.monotonic() < begun + 15:
        time.sleep(0.1)
        if os.path.getsize(beats) != size:
            size, last = os.path.getsize(beats), time.monotonic()
        elif time.monotonic() > last + 2:
            stopped = last - begun
            break
    open(stop, "w", encoding="ascii").close()
    time.sleep(1)
    stage.end(process)
    return "runs on" if stopped is None else f"stopped after {stopped:.1f} s"


def measure(stage, _, report, quick):
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        report.notes.append("etcd: skipped, not here (scripts/bench --install-peers)")
        return
    etcd = Etcd(stage)
    rows, gaps = [], {}
    for make in (lambda url=None: DlockEtcd(stage, etcd, url), lambda url=None: Etcdctl(etcd, url)):
        near = make()
        relay = Relay(int(etcd.url.rsplit(":", 1)[1]), hold_ms=ONE_WAY_MS)
        far = make(f"http://127.0.0.1:{relay.port}")
        before, after = far_start(stage, far, 3 if quick else 9)
        handed = far_hand_overs(stage, far)
        relay.end()
        gaps[near.name] = median(handed)
        count = 20 if quick else 50
        requests = handled(etcd.url)
        crowded = crowd.run(stage, near, count)
        requests = (handled(etcd.url) - requests) / (count + 1)
        rows.append((near.name, f"{before:.0f}", f"{after:.0f}", spread(handed),
                     spread(crowded.gaps), f"{crowded.out_of_order:.0f} %", f"{requests:.1f}",
                     f"{crowded.pss:.1f} / {crowded.rss:.1f}", lost_lease(stage, near, etcd)))
    report.add(f"On one etcd; far: over a link of {2 * ONE_WAY_MS} ms, whose handshakes cost nothing",
               ["", "far: ms to the command", "ms after it", "far: hand-over ms",
                f"hand-over ms, {20 if quick else 50} waiters", "out of order",
                "requests a lock, its waiting included", "waiter MB PSS / RSS",
                "lease revoked: the command"], rows)
    report.judge("hand-over in etcd at 50 ms", "faster than etcdctl lock",
                 f"{gaps['dlock, etcd']:.0f} ms, {gaps['etcdctl lock']:.0f} ms",
                 gaps["dlock, etcd"] < gaps["etcdctl lock"])
