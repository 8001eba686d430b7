"""dlock beside kazoo's Lock on the same ZooKeeper: hand-over near and far, order, and memory."""

import os
import shutil
import socket
import subprocess

import crowd
from etcd import far_hand_overs, far_start
from figures import median, spread
from locks import DEBIAN_PYTHON, Lock, free_port
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


class DlockZooKeeper(Lock):
    name = "dlock, ZooKeeper"

    def __init__(self, stage, zookeeper, port=None):
        self.binary, self.zookeeper = stage.dlock, zookeeper
        self.port = port or zookeeper.port

    def argv(self, key, command, wait):
        return [self.binary, "run", "-q", "--server", f"zk://127.0.0.1:{self.port}",
                *([] if wait else ["-n"]), "-k", key, "--", *command]

    def queued(self, key):
        return self.zookeeper.clients_below(f"/dlock/k:{key}") - 1


class Kazoo(Lock):
    name = "kazoo Lock"

    def __init__(self, stage, zookeeper, port=None):
        self.zookeeper, self.port = zookeeper, port or zookeeper.port
        self.script = stage.path("kazoo_lock.py")
        with open(self.script, "w", encoding="ascii") as script:
            script.write(KAZOO)

    def argv(self, key, command, wait):
        return [DEBIAN_PYTHON, self.script, f"127.0.0.1:{self.port}", key, *command]

    def queued(self, key):
        return self.zookeeper.clients_below(f"/kazoo/{key}") - 1


def is_here():
    return shutil.which("java") is not None and os.path.exists(JAR) and subprocess.run(
        [DEBIAN_PYTHON, "-c", "import kazoo"], stderr=subprocess.DEVNULL, check=False
    ).returncode == 0


def measure(stage, _, report, quick):
    if not is_here():
        report.notes.append("zookeeper: skipped, not here (scripts/bench --install-peers)")
        return
    zookeeper = ZooKeeper(stage)
    rows, gaps = [], {}
    for kind in (DlockZooKeeper, Kazoo):
        near = kind(stage, zookeeper)
        relay = Relay(zookeeper.port, hold_ms=ONE_WAY_MS)
        far = kind(stage, zookeeper, relay.port)
        before, after = far_start(stage, far, 3 if quick else 9)
        handed = far_hand_overs(stage, far)
        relay.end()
        gaps[kind] = median(handed)
        count = 20 if quick else 50
        packets = zookeeper.packets()
        crowded = crowd.run(stage, near, count)
        packets = (zookeeper.packets() - packets) / (count + 1)
        rows.append((near.name, f"{before:.0f}", f"{after:.0f}", spread(handed),
                     spread(crowded.gaps), f"{crowded.out_of_order:.0f} %", f"{packets:.1f}",
                     f"{crowded.pss:.1f} / {crowded.rss:.1f}"))
    report.add(
        f"On one ZooKeeper; far: over a link of {2 * ONE_WAY_MS} ms, whose handshakes cost nothing",
        ["", "far: ms to the command", "ms after it", "far: hand-over ms",
         f"hand-over ms, {20 if quick else 50} waiters", "out of order",
         "requests a lock, with pings and the bench's own", "waiter MB PSS / RSS"], rows)
    # The relay and the processes add some milliseconds to each.
    goal = 3 * (2 * ONE_WAY_MS + 5)
    report.judge(f"hand-over in ZooKeeper at {2 * ONE_WAY_MS} ms",
                 f"3 round trips: <= {goal} ms", f"{gaps[DlockZooKeeper]:.0f} ms",
                 gaps[DlockZooKeeper] <= goal)
