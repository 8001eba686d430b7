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


class Dlock(Lock):
    most = 1000

    def __init__(self, stage, redis, binary=None, name="dlock, Redis"):
        self.name, self.redis, self.binary = name, redis, binary or stage.dlock

    def argv(self, key, command, wait):
        return [self.binary, "run", "-q", "--server", self.redis.url, *([] if wait else ["-n"]),
                "-k", key, "--", *command]

    def queued(self, key):
        return self.redis.client.ask("ZCARD", f"dlock:{{{key}}}:queue")


class DlockLocal(Lock):
    name, most = "dlock, local", 1000

    def __init__(self, stage, folder="locks"):
        self.binary, self.folder = stage.dlock, stage.path(folder)
        os.mkdir(self.folder)

    def argv(self, key, command, wait):
        return [self.binary, "run", "-q", "--server", f"local:{self.folder}",
                *([] if wait else ["-n"]), "-k", key, "--", *command]

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
        self.redis = redis
        self.script = stage.path("two_redis_cli")
        with open(self.script, "w") as script:
            script.write(TWO_REDIS_CLI)

    def argv(self, key, command, wait):
        return ["sh", self.script, str(self.redis.port), *command]


class Etcd(Lock):
    name = "etcdctl lock"

    def __init__(self, stage):
        port, peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        stage.start(["etcd", "--data-dir", stage.path(f"etcd-{port}"),
                     "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                     "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                     "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                     "--initial-cluster", f"default=http://127.0.0.1:{peer}"])
        until(lambda: self.count("nothing") is not None, "etcd")

    def count(self, key):
        start = f"{key}/".encode()
        body = json.dumps({"key": b64encode(start).decode(),
                           "range_end": b64encode(start[:-1] + b"0").decode(),
                           "count_only": True}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/v3/kv/range", body, timeout=2) as answer:
                return int(json.load(answer).get("count", 0))
        except OSError:
            return None

    def argv(self, key, command, wait):
        return ["etcdctl", "--endpoints", self.url, "lock", key, "--", *command]

    def queued(self, key):
        return (self.count(key) or 1) - 1


class RedisPy(Lock):
    name, most, commands = "redis-py Lock", 10, ("set",)

    def __init__(self, stage, redis):
        self.redis = redis
        self.script = stage.path("redis_py_lock.py")
        with open(self.script, "w") as script:
            script.write(REDIS_PY)

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
    if shutil.which("etcd") and shutil.which("etcdctl"):
        locks.append(Etcd(stage))
    else:
        report.notes.append("etcdctl lock: skipped, no etcd here (scripts/bench --install-peers)")
    if has_redis_py():
        locks.append(RedisPy(stage, redis))
    else:
        report.notes.append("redis-py: skipped, not here (scripts/bench --install-peers)")
    return locks
