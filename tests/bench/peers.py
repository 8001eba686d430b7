"""dlock in etcd and in ZooKeeper, beside the locks of their own clients: requests, hand-over near and
far, order, memory, and what becomes of a lost lease."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request

import crowd
from figures import median, spread
from locks import DEBIAN_PYTHON, DlockAt, Etcd, Etcdctl, Lock, free_port
from relay import Relay
from stage import until

ONE_WAY_MS = 25
JAR = "/usr/share/java/zookeeper.jar"
LOGS_NOTHING = "/usr/share/java/slf4j-nop.jar"

KAZOO = """
import subprocess, sys
from kazoo.client import KazooClient
client = KazooClient(hosts=sys.argv[1])
client.start()
with client.Lock("/kazoo/" + sys.argv[2]):
    subprocess.run(sys.argv[3:])
client.stop()
"""

COUNT = """
import sys
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
client = KazooClient(hosts=sys.argv[1])
client.start()
for path in sys.stdin:
    try:
        names = client.get_children(path.strip())
    except NoNodeError:
        names = []
    print(sum(not name.startswith("i-") for name in names), flush=True)
"""


class DlockEtcd(DlockAt):
    def __init__(self, stage, etcd, port=None):
        super().__init__(stage, "dlock, etcd", f"etcd://127.0.0.1:{port or etcd.port}")
        self.etcd = etcd

    def queued(self, key):
        return self.etcd.count(f"dlock:k:{key}\n".encode()) - 1


def requests_of(etcd):
    """Requests of clients; those through the gateway count once."""
    with urllib.request.urlopen(f"{etcd.url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("grpc_server_started_total") or
               line.startswith("grpc_server_msg_received_total") and "bidi_stream" in line)


class ZooKeeper:
    def __init__(self, stage):
        self.port = free_port()
        settings, data = stage.path("zoo.cfg"), stage.path("zookeeper")
        os.mkdir(data)
        with open(settings, "w", encoding="ascii") as file:
            file.write(f"dataDir={data}\nclientPort={self.port}\ntickTime=2000\n"
                       "admin.enableServer=false\nmaxClientCnxns=0\n")
        stage.start(["java", "-Xmx128m", "-cp", f"{JAR}:{LOGS_NOTHING}",
                     "org.apache.zookeeper.server.quorum.QuorumPeerMain", settings])
        until(lambda: "Mode:" in self.told(), "ZooKeeper")
        self.counter = stage.start([DEBIAN_PYTHON, "-c", COUNT, f"127.0.0.1:{self.port}"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def told(self):
        """What it says of itself."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as server:
                server.sendall(b"srvr")
                return server.makefile(encoding="ascii").read()
        except OSError:
            return ""

    def packets(self):
        line = next(line for line in self.told().splitlines() if line.startswith("Received:"))
        return int(line.split()[1])

    def clients_below(self, path):
        self.counter.stdin.write(path + "\n")
        self.counter.stdin.flush()
        return int(self.counter.stdout.readline())


class DlockZooKeeper(DlockAt):
    def __init__(self, stage, zookeeper, port=None):
        super().__init__(stage, "dlock, ZooKeeper", f"zk://127.0.0.1:{port or zookeeper.port}")
        self.zookeeper = zookeeper

    def queued(self, key):
        return self.zookeeper.clients_below(f"/dlock/k:{key}") - 1


class Kazoo(Lock):
    name = "kazoo Lock"

    def __init__(self, stage, zookeeper, port=None):
        self.zookeeper, self.port = zookeeper, port or zookeeper.port
        self.script = stage.script("kazoo_lock.py", KAZOO)

    def argv(self, key, command, wait):
        return [DEBIAN_PYTHON, self.script, f"127.0.0.1:{self.port}", key, *command]

    def queued(self, key):
        return self.zookeeper.clients_below(f"/kazoo/{key}") - 1


def far_hand_overs(stage, lock):
    """Milliseconds from the end of one command to the beginning of the next, of six in a row."""
    log, clients = stage.fresh("log"), []
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
    for lease in etcd.post("lease/leases", {}).get("leases", []):
        etcd.post("lease/revoke", {"ID": lease["ID"]})
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


def beside(stage, report, quick, place, port, makers, requests, what, last=None):
    """One row for each lock of `makers`, which take the port of a relay; the median of its hand-overs
    far away. `requests` counts those of the server, as `what` says; `last`: the header of one more
    column, and its cell."""
    rows, gaps, count = [], [], 20 if quick else 50
    for make in makers:
        near = make()
        relay = Relay(port, hold_ms=ONE_WAY_MS)
        far = make(relay.port)
        before, after = crowd.one_by_one(stage, far, 3 if quick else 9, wait=True)
        handed = far_hand_overs(stage, far)
        relay.end()
        gaps.append(median(handed))
        asked = requests()
        crowded = crowd.run(stage, near, count)
        asked = (requests() - asked) / (count + 1)
        rows.append([near.name, f"{before:.0f}", f"{after:.0f}", spread(handed),
                     spread(crowded.gaps), f"{crowded.out_of_order:.0f} %", f"{asked:.1f}",
                     f"{crowded.pss:.1f} / {crowded.rss:.1f}", *([last[1](near)] if last else [])])
    report.add(
        f"On one {place}; far: over a link of {2 * ONE_WAY_MS} ms, whose handshakes cost nothing",
        ["", "far: ms to the command", "ms after it", "far: hand-over ms",
         f"hand-over ms, {count} waiters", "out of order", f"requests a lock, {what}",
         "waiter MB PSS / RSS", *([last[0]] if last else [])], rows)
    return gaps


def measure_etcd(stage, _, report, quick):
    if not Etcd.is_here():
        report.notes.append("etcd: skipped, not here (scripts/bench --install-peers)")
        return
    etcd = Etcd(stage)
    mine, other = beside(
        stage, report, quick, "etcd", etcd.port,
        (lambda port=None: DlockEtcd(stage, etcd, port), lambda port=None: Etcdctl(etcd, port)),
        lambda: requests_of(etcd), "its waiting included",
        ("lease revoked: the command", lambda lock: lost_lease(stage, lock, etcd)))
    report.judge("hand-over in etcd at 50 ms", "faster than etcdctl lock",
                 f"{mine:.0f} ms, {other:.0f} ms", mine < other)


def measure_zookeeper(stage, _, report, quick):
    is_here = shutil.which("java") is not None and os.path.exists(JAR) and subprocess.run(
        [DEBIAN_PYTHON, "-c", "import kazoo"], stderr=subprocess.DEVNULL, check=False
    ).returncode == 0
    if not is_here:
        report.notes.append("zookeeper: skipped, not here (scripts/bench --install-peers)")
        return
    zookeeper = ZooKeeper(stage)
    mine, _ = beside(
        stage, report, quick, "ZooKeeper", zookeeper.port,
        (lambda port=None: DlockZooKeeper(stage, zookeeper, port),
         lambda port=None: Kazoo(stage, zookeeper, port)),
        zookeeper.packets, "with pings and the bench's own")
    # The relay and the processes add some milliseconds to each.
    goal = 3 * (2 * ONE_WAY_MS + 5)
    report.judge(f"hand-over in ZooKeeper at {2 * ONE_WAY_MS} ms",
                 f"3 round trips: <= {goal} ms", f"{mine:.0f} ms", mine <= goal)
