"""What a waiter and a holder cost while nothing happens."""

import os
import shutil
import time

from crowd import memory_of
from locks import Dlock, DlockLocal, Etcd, Etcdctl
from stage import until

SLEEP = ["/usr/bin/sleep", "600"]


def activity(pid):
    """(voluntary context switches, nanoseconds of processor time) of all threads."""
    switches = nanoseconds = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as file:
            switches += next(int(line.split()[1]) for line in file
                             if line.startswith("voluntary_ctxt_switches"))
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            nanoseconds += int(file.read().split()[0])
    return switches, nanoseconds


class Resting:
    """A process at rest, and what its server was asked since it is."""

    def __init__(self, name, pid, redis=None):
        self.name, self.pid, self.redis = name, pid, redis

    def begin(self):
        self.begun = self.state()

    def state(self):
        return (*activity(self.pid), self.redis.script_calls() if self.redis else 0)

    def row(self, seconds):
        switches, nanoseconds, calls = (b - a for a, b in zip(self.begun, self.state()))
        pss, rss = memory_of(self.pid)
        return [self.name, calls if self.redis else "-", switches, f"{nanoseconds / 1e6:.2f}",
                f"{seconds:.0f}", f"{pss:.2f}", f"{rss:.1f}"]


def certificate(stage, name):
    """Files of a key and its self-signed certificate."""
    key, file = stage.path(f"{name}.key"), stage.path(f"{name}.crt")
    stage.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
               "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", file])
    return key, file


def tls_redis(stage):
    """A server that speaks TLS, and its authority's file; None without openssl."""
    if shutil.which("openssl") is None:
        return None
    key, file = certificate(stage, "tls")
    redis = stage.redis("--tls-cert-file", file, "--tls-key-file", key,
                        "--tls-ca-cert-file", file, "--tls-auth-clients", "no", tls=True)
    stage.environment["DLOCK_TLS_CA"] = file
    return redis


def waiter(stage, lock, name):
    """One that waits for a holder whose lease lasts and is not renewed."""
    stage.run([stage.dlock, "acquire", "-q", "-t", "1h", "-n", "--server", lock.redis.url,
               "-k", "rest"])
    process = stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: lock.queued("rest") == 1, name)
    return Resting(name, process.pid, lock.redis)


def holder(stage, lock, name):
    process = stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: lock.redis.client.ask("EXISTS", "dlock:{rest}"), name)
    return Resting(name, process.pid, lock.redis)


def local_pair(stage):
    lock = DlockLocal(stage, "resting")
    first = stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: os.listdir(lock.folder), "a local holder")
    time.sleep(0.3)
    second = stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: lock.queued("rest") == 1, "a local waiter")
    return [Resting("holder, local:", first.pid), Resting("waiter, local:", second.pid)]


def etcd_waiter(stage):
    if not Etcd.is_here():
        return []
    etcd = Etcd(stage)
    lock = Etcdctl(etcd)
    stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: etcd.count(b"rest/") == 1, "a holder of etcd")
    process = stage.start(lock.argv("rest", SLEEP, wait=True))
    until(lambda: etcd.count(b"rest/") == 2, "a waiter of etcd")
    return [Resting("waiter, etcdctl", process.pid)]


def measure(stage, _, report, quick):
    seconds = 10 if quick else 60
    plain = [Dlock(stage, stage.redis()) for _ in range(2)]
    resting = [waiter(stage, plain[0], "waiter, Redis"), holder(stage, plain[1], "holder, Redis")]
    secure = tls_redis(stage)
    if secure:
        resting.append(waiter(stage, Dlock(stage, secure), "waiter, Redis, TLS"))
    resting += local_pair(stage) + etcd_waiter(stage)
    time.sleep(1)  # until all that a start brings is over
    for each in resting:
        each.begin()
    begun = time.monotonic()
    time.sleep(seconds)
    rows = {each.name: each.row(time.monotonic() - begun) for each in resting}
    report.add("At rest, ttl 30 s", ["", "script calls", "wake-ups", "CPU ms", "in s", "PSS MB",
                                      "RSS MB"], list(rows.values()))
    judge(report, rows, seconds)


def judge(report, rows, seconds):
    _, calls, wakes, cpu, _, pss, rss = rows["waiter, Redis"]
    # The waiter asks every 25 s; a window may begin just before a request.
    enough = seconds >= 60
    good = calls <= 0.05 * seconds and float(pss) <= 1 and float(rss) <= 3
    what, goal = "an idle waiter", "<= 0.05 script calls/s, PSS <= 1 MB, RSS <= 3 MB"
    text = f"{calls} in {seconds} s, {wakes} wake-ups, {cpu} ms CPU, PSS {pss}, RSS {rss}"
    if enough or not good:
        report.judge(what, goal, text, good)
    else:
        report.skip(what, goal, text + ": too short to tell the calls")
    _, calls, _, _, _, _, rss = rows["holder, Redis"]
    report.judge("a holder", "one renewal each 10 s, RSS <= 3 MB",
                 f"{calls} in {seconds} s, RSS {rss}",
                 calls <= seconds / 10 + 1 and float(rss) <= 3)
    if "waiter, Redis, TLS" in rows:
        rss = rows["waiter, Redis, TLS"][6]
        report.judge("an idle waiter under TLS", "RSS <= 8 MB", f"RSS {rss}", float(rss) <= 8)
