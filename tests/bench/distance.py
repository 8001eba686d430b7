"""Round trips: over a link that holds every packet 25 ms each way, the handshake's too."""

import shutil
import subprocess

import crowd
from figures import median, quantile
from locks import Dlock, Floor, Flock
from relay import Relay

FAR = "10.77.0.2"
ONE_WAY_MS = 25
HAND_OVER, HAND_OVER_GOAL = "hand-over at 50 ms", "1.0 round trips + 1 ms"

PING = """
import socket, sys, time
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(5):
    begun = time.monotonic()
    server.sendall(b"PING\\r\\n")
    server.recv(100)
    print((time.monotonic() - begun) * 1000)
"""


class Placed:
    """A lock whose processes run in a network namespace."""

    def __init__(self, lock, space):
        self.lock, self.space, self.name, self.redis = lock, space, lock.name, lock.redis
        self.commands = lock.commands

    def argv(self, key, command, wait):
        return ["nsenter", f"--net={self.space}", *self.lock.argv(key, command, wait)]

    def queued(self, key):
        return self.lock.queued(key)


def build_link(stage):
    """(near, far): paths of two namespaces; None where that is not allowed."""
    if shutil.which("nsenter") is None:
        return None
    link = stage.start([stage.tool("far"), str(ONE_WAY_MS)], stdin=subprocess.PIPE,
                       stdout=subprocess.PIPE)
    words = link.stdout.readline().split()
    if len(words) != 2:
        return None
    return [f"/proc/{link.pid}/fd/{int(word)}" for word in words]


def measure(stage, _, report, quick):
    spaces = build_link(stage)
    if spaces is None:
        report.notes.append("no link of 50 ms here (it needs root, TUN devices and nsenter): round "
                            "trips were counted by a relay instead")
        return counted_rows(stage, report, 4 if quick else 12)
    near, far = spaces
    open_to_all = ("--protected-mode", "no")
    guarded = stage.redis(*open_to_all, "--requirepass", "secret", space=far, host="0.0.0.0",
                          login=":secret@")
    plain = stage.redis(*open_to_all, space=far, host="0.0.0.0")
    pings = stage.run(["nsenter", f"--net={near}", "python3", "-c", PING, FAR, str(plain.port)])
    trip = median([float(line) for line in pings.split()])
    report.notes.append(f"the link's round trip: {trip:.2f} ms")
    start_rows(stage, guarded, plain, spaces, trip, report, 4 if quick else 12)
    crowd_rows(stage, plain.at(FAR), near, trip, report, 5 if quick else 15)
    guarded.end()
    plain.end()


def counted_rows(stage, report, rounds):
    """Without a link: by what passes a relay."""
    guarded = stage.redis("--requirepass", "secret", login=":secret@")
    plain = stage.redis()
    relay, found = Relay(guarded.port), []
    lock = Dlock(stage, guarded.behind(relay, "/3"))
    for _ in range(rounds):
        begun, first, last, ended = (ms / 1000 for ms in crowd.timed(stage, lock))
        found.append((relay.round_trips(begun, first), relay.round_trips(last, ended)))
    relay.end()
    # The very first acquire has to send the script.
    acquire, release = (max(counts) for counts in zip(*found[1:]))
    judge_starts(report, acquire, release, " (counted)")
    slow = Relay(plain.port, hold_ms=ONE_WAY_MS)
    gaps = crowd.run(stage, Dlock(stage, plain.behind(slow)), 5, section_us=80_000).gaps
    slow.end()
    trips = median(gaps) / (2 * ONE_WAY_MS)
    # The relay itself adds a few milliseconds.
    report.judge(HAND_OVER, HAND_OVER_GOAL,
                 f"{trips:.2f} round trips, whole ones counted (relay of 50 ms)", trips < 1.5)
    guarded.end()
    plain.end()


def judge_starts(report, acquire, release, how=""):
    report.judge("round trips, AUTH and SELECT included", "acquire 2.0, release 1.0",
                 f"acquire {acquire:.2f}, release {release:.2f}{how}",
                 round(acquire, 1) <= 2 and round(release, 1) <= 1)


def start_rows(stage, guarded, plain, spaces, trip, report, rounds):
    near, far = spaces
    rows, found = [], {}
    for name, kind, redis, database in (
            ("dlock with AUTH and SELECT", Dlock, guarded, "/3"), ("floor", Floor, plain, "")):
        here = crowd.one_by_one(stage, Placed(kind(stage, redis.at("127.0.0.1", database)), far), rounds)
        away = crowd.one_by_one(stage, Placed(kind(stage, redis.at(FAR, database)), near), rounds)
        # The time that the distance adds, in round trips.
        found[name] = [(b - a) / trip for a, b in zip(here, away)]
        rows.append((name, *(f"{trips:.2f}" for trips in found[name])))
    report.add("One uncontended lock over a true 50 ms link, in round trips",
               ["", "acquire", "release"], rows)
    acquire, release = found["dlock with AUTH and SELECT"]
    judge_starts(report, acquire, release)


def crowd_rows(stage, redis, near, trip, report, count):
    rows, found = [], {}
    for lock in (Dlock(stage, redis), Floor(stage, redis)):
        # Sections longer than a round trip, so that dlock's confirming renewal is over by then.
        gaps = crowd.run(stage, Placed(lock, near), count, section_us=80_000).gaps
        found[lock.name] = median(gaps) - trip
        rows.append((lock.name, f"{median(gaps) / trip:.2f}", f"{found[lock.name]:.2f}",
                     f"{quantile(gaps, 0.9) - trip:.2f}"))
    # A hand-over without any distance: an exit, a fork and an exec, after a long rest.
    gaps = crowd.run(stage, Flock(stage), count, section_us=80_000).gaps
    near_by = median(gaps)
    rows.append(("flock, on one host", "-", f"{near_by:.2f}", f"{quantile(gaps, 0.9):.2f}"))
    report.add("Hand-over over a true 50 ms link",
               ["", "round trips", "ms beyond one round trip", "p90"], rows)
    over = found["dlock, Redis"]
    report.judge(HAND_OVER, HAND_OVER_GOAL,
                 f"1.0 + {over:.2f} ms (floor: {found['floor']:.2f}; flock on one host, without "
                 f"any: {near_by:.2f})", over <= 1)
