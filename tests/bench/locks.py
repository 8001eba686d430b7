"""The locks that are compared: how each is started, and how its queue is counted."""

import json
import os
import shutil
import subprocess
import urllib.request
from base64 import b64encode

from stage import free_port, until

DEBIAN_PYTHON = "/usr/bin/python3"

REDIS_PY = """
import subprocess, sys, redis
port, key, wait = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "-w"
lock = redis.Redis(port=port).lock(key, timeout=30, blocking=wait)
if not lock.acquire():
    sys.exit(75)
status = subprocess.call(sys.argv[4:])
lock.release()
sys.exit(status)
"""

TWO_REDIS_CLI = """
port=$1
shift
redis-cli -p "$port" SET k $$ NX PX 30000 >/dev/null || exit 75
"$@"
status=$?
redis-cli -p "$port" EVAL "if redis.call('GET',KEYS[1])==ARGV[1] then
return redis.call('DEL',KEYS[1]) end return 0" 1 k $$ >/dev/null
exit $status
"""


class Lock:
    """One of them. `waits`: whether it can queue; `most`: with how many waiters it is tried;
    `commands`: what it sends to Redis for itself, and others call in scripts only."""

    waits, most, redis, commands = True, 50, None, ()

    def argv(self, key, command, wait):
        raise NotImplementedError

    def queued(self, key):
        """How many wait; None where that cannot be told."""
        return None


class DlockAt(Lock):
    """dlock at a URL."""

    def __init__(self, stage, name, url):
        self.stage, self.name, self.url = stage, name, url

    def argv(self, key, command, wait):
        return [self.stage.dlock, "run", "-q", "--server", self.url, *([] if wait else ["-n"]),
                "-k", key, "--", *command]


class Dlock(DlockAt):
    most = 1000

    def __init__(self, stage, redis):
        super().__init__(stage, "dlock, Redis", redis.url)
        self.redis = redis

    def queued(self, key):
        return self.redis.client.ask("ZCARD", f"dlock:{{{key}}}:queue")


class DlockLocal(DlockAt):
    most = 1000

    def __init__(self, stage, folder="locks"):
        self.folder = stage.path(folder)
        super().__init__(stage, "dlock, local", f"local:{self.folder}")
        os.mkdir(self.folder)

    def queued(self, key):
        # The holder has a FIFO as well.
        return sum(name.startswith(".wait-") for name in os.listdir(self.folder)) - 1


class Flock(Lock):
    name, most = "flock", 1000

    def __init__(self, stage):
        self.folder = stage.directory

    def argv(self, key, command, wait):
        return ["flock", *([] if wait else ["-n"]), str(self.folder / f"{key}.flock"), *command]

    def queued(self, key):
        file = self.folder / f"{key}.flock"
        inode = f":{os.stat(file).st_ino} "
        with open("/proc/locks") as locks:
            return sum("->" in line and inode in line for line in locks)


class Floor(Lock):
    name, most = "floor", 1000

    def __init__(self, stage, redis):
        self.binary, self.redis = stage.tool("floor"), redis

    def argv(self, key, command, wait):
        return [self.binary, self.redis.host, str(self.redis.port), f"floor:{key}",
                "-w" if wait else "-n", *command]

    def queued(self, key):
        return self.redis.client.ask("LLEN", f"floor:{key}:queue")


class TwoRedisCli(Lock):
    name, waits = "two redis-cli", False

    def __init__(self, stage, redis):
        self.redis, self.script = redis, stage.script("two_redis_cli", TWO_REDIS_CLI)

    def argv(self, key, command, wait):
        return ["sh", self.script, str(self.redis.port), *command]


class Etcd:
    """A server."""

    def __init__(self, stage):
        self.port, peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        stage.start(["etcd", "--data-dir", stage.path(f"etcd-{self.port}"),
                     "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                     "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                     "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                     "--initial-cluster", f"default=http://127.0.0.1:{peer}"])
        until(lambda: self.count(b"nothing/") is not None, "etcd")

    @staticmethod
    def is_here():
        return shutil.which("etcd") and shutil.which("etcdctl")

    def post(self, path, fields):
        body = json.dumps(fields).encode()
        with urllib.request.urlopen(f"{self.url}/v3/{path}", body, timeout=5) as answer:
            return json.load(answer)

    def count(self, beginning):
        """How many keys begin with that; None while it does not answer."""
        end = beginning[:-1] + bytes([beginning[-1] + 1])
        try:
            found = self.post("kv/range", {"key": b64encode(beginning).decode(), "count_only": True,
                                           "range_end": b64encode(end).decode()})
        except OSError:
            return None
        return int(found.get("count", 0))


class Etcdctl(Lock):
    name = "etcdctl lock"

    def __init__(self, etcd, port=None):
        self.etcd, self.url = etcd, f"http://127.0.0.1:{port or etcd.port}"

    def argv(self, key, command, wait):
        return ["etcdctl", "--endpoints", self.url, "lock", key, "--", *command]

    def queued(self, key):
        return (self.etcd.count(f"{key}/".encode()) or 1) - 1


class RedisPy(Lock):
    name, most, commands = "redis-py Lock", 10, ("set",)

    def __init__(self, stage, redis):
        self.redis, self.script = redis, stage.script("redis_py_lock.py", REDIS_PY)

    def argv(self, key, command, wait):
        return [DEBIAN_PYTHON, self.script, str(self.redis.port), f"py:{key}",
                "-w" if wait else "-n", *command]


def has_redis_py():
    test = [DEBIAN_PYTHON, "-c", "import redis"]
    return os.path.exists(DEBIAN_PYTHON) and subprocess.run(
        test, capture_output=True).returncode == 0


def gather(stage, redis, report):
    """All that are there; who is not is named."""
    locks = [Flock(stage), DlockLocal(stage), Dlock(stage, redis), Floor(stage, redis)]
    if shutil.which("redis-cli"):
        locks.append(TwoRedisCli(stage, redis))
    if Etcd.is_here():
        locks.append(Etcdctl(Etcd(stage)))
    else:
        report.notes.append("etcdctl lock: skipped, no etcd here (scripts/bench --install-peers)")
    if has_redis_py():
        locks.append(RedisPy(stage, redis))
    else:
        report.notes.append("redis-py: skipped, not here (scripts/bench --install-peers)")
    return locks
