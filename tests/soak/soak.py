#!/usr/bin/env python3
"""Many clients of every engine and kind of lock, with the real program, under random faults.

    soak.py DLOCK HEART MINUTES [SEED]

Each client runs one job after the other: an exclusive lock, two locks at once, a reader, a writer, a
seat of three, or a script with acquire and release. Meanwhile dlock is killed or stopped, and servers are
killed, stopped and restarted. The job is tests/shim/heart.cpp, which writes down when it lived and with
which fence. At the end nothing may have overlapped, fences must have grown, and nothing may be left:
no lock, file, process or connection, and no memory in a process that watched all the time.
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from stall_witness import StallWitness

CLIENTS = 50
SEATS = 3
REDIS_SERVER = os.environ.get("DLOCK_TEST_REDIS_SERVER") or "redis-server"
BEAT = struct.Struct("<qqqqq")
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}


class Server:
    """A process that is started again after each kill."""

    def __init__(self, argv, is_up, log, **how):
        self.argv, self.is_up, self.log, self.how = argv, is_up, log, how
        self.process = None

    def begin(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.argv, **QUIET, stderr=log, **self.how)

    def start(self):
        self.begin()
        end = time.monotonic() + 60
        while not self.is_up():
            if time.monotonic() > end:
                raise RuntimeError(f"{self.argv[0]} did not come up: see {self.log}")
            time.sleep(0.05)
            # PostgreSQL refuses to start while children of the killed server are left, and a busy
            # machine may need longer to end them than it has had.
            if self.process.poll() is not None:
                self.begin()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, number):
        self.process.send_signal(number)


def redis(folder):
    folder.mkdir()
    socket = folder / "socket"
    argv = [REDIS_SERVER, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder)]
    argv += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    ping = ["redis-cli", "-s", str(socket), "ping"]
    return Server(argv, lambda: b"PONG" in answer(ping), folder / "log"), f"unix://{socket}"


def answer(argv):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout


def as_user(name):
    return {"user": name} if os.geteuid() == 0 else {}


def postgres(folder):
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not versions:
        return None
    folder.mkdir()
    who = as_user("postgres")
    if who:
        shutil.chown(folder, "postgres")
    programs = versions[-1]
    made = [str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "postgres"]
    subprocess.run(made + ["-N", "-E", "UTF8", "--locale=C"], check=True, **QUIET, **who)
    argv = [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
    argv += ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300"]
    ready = [str(programs / "pg_isready"), "-q", "-h", str(folder)]
    up = lambda: subprocess.run(ready, check=False, **QUIET).returncode == 0
    url = f"postgresql:///postgres?host={folder}&user=postgres"
    return Server(argv, up, folder / "log", **who), url


def mariadb(folder):
    if not shutil.which("mariadbd") and not Path("/usr/sbin/mariadbd").exists():
        return None
    folder.mkdir()
    who = as_user("mysql")
    if who:
        shutil.chown(folder, "mysql")
    common = ["--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}"]
    made = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal"]
    subprocess.run(made + ["--skip-test-db"], check=True, stderr=subprocess.DEVNULL, **QUIET, **who)
    argv = ["/usr/sbin/mariadbd", *common, f"--socket={folder}/socket", "--skip-networking"]
    argv += ["--innodb-buffer-pool-size=16M", "--max-connections=300"]
    client = ["mariadb", "--no-defaults", f"--socket={folder}/socket", "-uroot", "-e"]
    up = lambda: subprocess.run(client + ["CREATE DATABASE IF NOT EXISTS soak"], check=False, **QUIET,
                                stderr=subprocess.DEVNULL).returncode == 0
    url = f"mariadb://root@/soak?socket={folder}/socket"
    return Server(argv, up, folder / "log", **who), url


class Engine:
    """A place for locks: its servers, of which `spare` may be away at once."""

    def __init__(self, name, url, servers=(), spare=1):
        self.name, self.url, self.servers, self.spare = name, url, list(servers), spare


def engines_in(folder):
    (folder / "locks").mkdir(mode=0o1777)
    (folder / "locks").chmod(0o1777)
    found = [Engine("local", f"local:{folder}/locks")]
    one, url = redis(folder / "redis")
    found.append(Engine("redis", url, [one]))
    nodes = [redis(folder / f"node{number}") for number in range(3)]
    found.append(Engine("majority", " ".join(url for _, url in nodes), [one for one, _ in nodes]))
    for name, make in (("postgres", postgres), ("mariadb", mariadb)):
        database = make(folder / name)
        if database:
            found.append(Engine(name, database[1], [database[0]]))
        else:
            print(f"skipped: {name} is not installed")
    return found


class Machine(StallWitness):
    """In nanoseconds of the clock of the hearts."""

    def __init__(self):
        super().__init__(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME), 10**9, worth_noting=0.15)

    def end_of(self, first, last):
        """The end of a command that dlock has to answer for: where the machine stood still when the
        command was to be ended, dlock did not come to it either. What the command did from then on is cut
        off, if that was for a moment after the stall at most."""
        moment = 100_000_000
        for begin, end in reversed(self.stalls):
            if begin < last <= end + moment:
                last = max(first, begin)
        return last


class Soak:
    def __init__(self, dlock, heart, folder, chance, brief):
        self.dlock, self.heart, self.folder, self.chance = dlock, heart, folder, chance
        self.brief = brief
        self.engines = engines_in(folder)
        self.end = False
        self.running = {}
        self.lock = threading.Lock()
        self.outcomes = {}
        self.faults = {}
        self.complaints = []
        self.machine = Machine()

    # -- clients

    def environment(self, engine):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DLOCK_")}
        return {**clean, "DLOCK_SERVER": engine.url, "DLOCK_CONFIG": "/dev/null"}

    def job(self, engine, key):
        base = self.folder / f"{engine.name}.{key}"
        span = int(self.chance.expovariate(1 / 60)) + 1
        return [self.heart, f"{base}.log", f"{base}.resource", f"for={span}"]

    def command(self, engine):
        """What a client runs, and whether its command may go on while dlock is stopped."""
        run = [self.dlock, "run", "-q", "-t", "3s", "--grace", "300ms", "-w", "20s"]
        kind = self.chance.choice(("one", "one", "two", "reader", "writer", "seat", "script"))
        watched = self.chance.random() < 0.5
        if watched:
            run.append("--watchdog")
        if kind == "one":
            key = self.chance.choice("abc")
            return kind, run + ["-k", key, "--", *self.job(engine, key)], watched
        if kind == "two":
            return kind, run + ["-k", "b", "-k", "c", "--", *self.job(engine, "b")], watched
        if kind == "reader":
            return kind, run + ["-s", "-k", "rw", "--", *self.job(engine, "reader")], watched
        if kind == "writer":
            return kind, run + ["-k", "rw", "--", *self.job(engine, "writer")], watched
        if kind == "seat":
            return kind, run + ["--limit", str(SEATS), "-k", "s", "--", *self.job(engine, "seat")], watched
        job = " ".join(self.job(engine, "a"))
        script = (f'set -e; set="$({self.dlock} acquire --env -k a -t 20s -w 20s 2>/dev/null)"; eval "$set"; '
                  f"export DLOCK_TOKEN DLOCK_FENCE; {job}; {self.dlock} release -q -k a")
        return kind, ["sh", "-c", script], False

    def client(self):
        while not self.end:
            engine = self.chance.choice(self.engines)
            kind, argv, watched = self.command(engine)
            process = subprocess.Popen(argv, **QUIET, stderr=subprocess.DEVNULL, start_new_session=True,
                                       env=self.environment(engine))
            with self.lock:
                self.running[process.pid] = (process, watched, kind)
            # The pid stays its own until it is reaped, which does not happen while a fault may hit
            # it.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with self.lock:
                del self.running[process.pid]
                code = process.wait()
                self.outcomes[code] = self.outcomes.get(code, 0) + 1

    # -- faults

    def note(self, fault):
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def hurt_client(self):
        with self.lock:
            # A killed script without an attach daemon has no guarantee: its command runs on.
            victims = [(pid, watched) for pid, (_, watched, kind) in self.running.items() if kind != "script"]
            if not victims:
                return
            pid, watched = self.chance.choice(victims)
            if self.chance.random() < 0.6:
                os.kill(pid, signal.SIGKILL)
                return self.note("dlock killed")
            if not watched:
                return
            os.kill(pid, signal.SIGSTOP)
        self.note("dlock stopped")
        time.sleep(self.chance.uniform(0.1, 4))
        with self.lock:
            if pid in self.running:
                os.kill(pid, signal.SIGCONT)

    def hurt_server(self):
        engine = self.chance.choice([each for each in self.engines if each.servers])
        server = self.chance.choice(engine.servers)
        if self.chance.random() < 0.5:
            server.send(signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.1, 2.5))
            server.send(signal.SIGCONT)
            return self.note(f"{engine.name} server stopped")
        server.kill()
        time.sleep(self.chance.uniform(0, 1))
        server.start()
        self.note(f"{engine.name} server killed")

    def faults_until_end(self, hurt, pause):
        while not self.end:
            time.sleep(self.chance.uniform(0, 2 * pause))
            try:
                hurt()
            except (RuntimeError, ProcessLookupError) as error:
                self.complaints.append(f"the soak itself: {error}")

    # -- the promises

    def tenures(self, engine, key):
        """Each holder that has written: fence, first and last moment."""
        path = self.folder / f"{engine.name}.{key}.log"
        held = {}
        if not path.exists():
            return []
        whole = path.read_bytes()
        for fence, pid, before, after, _ in BEAT.iter_unpack(whole[: len(whole) // BEAT.size * BEAT.size]):
            first, last = held.get((pid, fence), (before, after))[:2]
            held[(pid, fence)] = (min(first, before), max(last, after))
        return sorted((first, self.machine.end_of(first, last), fence, pid)
                      for (pid, fence), (first, last) in held.items())

    def check_alone(self, engine, key):
        latest = (0, 0, 0, 0)
        for tenure in self.tenures(engine, key):
            if tenure[0] < latest[1]:
                self.complaints.append(f"{engine.name} {key}: two at once: {latest} and {tenure}")
            if tenure[2] <= latest[2]:
                self.complaints.append(f"{engine.name} {key}: the fence did not grow: {latest} and {tenure}")
            latest = max(latest, tenure, key=lambda each: each[1])

    def check_limit(self, engine):
        events = []
        for first, last, _, _ in self.tenures(engine, "seat"):
            events += [(first, 1), (last, -1)]
        inside = 0
        for moment, step in sorted(events):
            inside += step
            if inside > SEATS:
                self.complaints.append(f"{engine.name}: {inside} in a semaphore of {SEATS} at {moment}")

    def check_readers(self, engine):
        readers = self.tenures(engine, "reader")
        for writer in self.tenures(engine, "writer"):
            for reader in readers:
                if reader[0] < writer[1] and writer[0] < reader[1]:
                    self.complaints.append(f"{engine.name}: a reader beside a writer: {reader} and {writer}")

    def check_histories(self):
        total = 0
        for engine in self.engines:
            for key in ("a", "b", "c", "writer"):
                self.check_alone(engine, key)
            self.check_limit(engine)
            self.check_readers(engine)
            total += sum(len(self.tenures(engine, key)) for key in ("a", "b", "c", "writer", "reader", "seat"))
        return total

    def listed(self, engine):
        said = subprocess.run([self.dlock, "inspect", "--json"], env=self.environment(engine), check=False,
                              stdin=subprocess.DEVNULL, capture_output=True)
        if said.returncode != 0:
            return [f"inspect ended with {said.returncode}: {said.stderr.decode()}"]
        states = [json.loads(line) for line in said.stdout.splitlines()]
        # The server lists a killed waiter until it has been silent for 75 s or 120 s.
        return [each["key"] for each in states if each["holders"] or not self.brief]

    def mine(self):
        """Processes of the soak that are left."""
        found = []
        for each in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"={self.folder}".encode() in each.read_bytes() or str(self.folder).encode() in each.read_bytes():
                    words = (each.parent / "cmdline").read_bytes().split(b"\0")
                    found.append((int(each.parent.name), b" ".join(words).decode(errors="replace")[:100]))
            except (OSError, ValueError):
                continue
        return found

    def check_nothing_left(self, watchers):
        end = time.monotonic() + (60 if self.brief else 150)
        left = {"?": ["?"]}
        while left and time.monotonic() < end:
            time.sleep(1)
            left = {each.name: keys for each in self.engines if (keys := self.listed(each))}
        self.complaints += [f"{name}: still listed: {keys}" for name, keys in left.items()]
        known = {watcher.pid for watcher in watchers}
        self.complaints += [f"left running: {pid} {line}" for pid, line in self.mine() if pid not in known]
        litter = [each.name for each in (self.folder / "locks").iterdir() if each.name.startswith(".wait-")]
        # Killed waiters leave their FIFOs to the next client that creates a key.
        if len(litter) > 2 * self.faults.get("dlock killed", 0):
            self.complaints.append(f"local: {len(litter)} mailboxes are left")


def size_of(pid):
    """Resident memory in KiB without what is shared, and the number of descriptors."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * 4, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    dlock, heart, minutes = sys.argv[1], sys.argv[2], float(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(10**6)
    print(f"soak: seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="dlock-soak-"))
    folder.chmod(0o755)
    soak = Soak(dlock, heart, folder, random.Random(seed), minutes < 2)
    watchers = []
    try:
        for engine in soak.engines:
            for server in engine.servers:
                server.start()
            watchers.append(subprocess.Popen([dlock, "inspect", "--watch", "-q"], **QUIET,
                                             stderr=subprocess.DEVNULL, env=soak.environment(engine)))
        threads = [threading.Thread(target=soak.client) for _ in range(CLIENTS)]
        threads += [threading.Thread(target=soak.faults_until_end, args=(soak.hurt_client, 0.15))]
        threads += [threading.Thread(target=soak.faults_until_end, args=(soak.hurt_server, 1.5))]
        soak.machine.start()
        for thread in threads:
            thread.start()
        time.sleep(min(10, minutes * 20))
        before = [size_of(watcher.pid) for watcher in watchers]
        time.sleep(max(0, minutes * 60 - 10))
        soak.end = True
        for thread in threads:
            thread.join()
        for engine, watcher, (memory, fds) in zip(soak.engines, watchers, before):
            now = size_of(watcher.pid)
            if now[0] > memory + 2048 or now[1] > fds + 4:
                soak.complaints.append(f"{engine.name}: a watch grew from {memory} KiB, {fds} fds to {now}")
        soak.check_nothing_left(watchers)
        total = soak.check_histories()
    finally:
        soak.end = True
        for watcher in watchers:
            watcher.kill()
            watcher.wait()
        for engine in soak.engines:
            for server in engine.servers:
                if server.process:
                    server.kill()
    print("ended with: " + ", ".join(f"{code}: {n}" for code, n in sorted(soak.outcomes.items())))
    print("faults: " + ", ".join(f"{fault} {n}" for fault, n in sorted(soak.faults.items())))
    for complaint in soak.complaints[:20]:
        print(f"BROKEN: {complaint}")
    print(f"soak: {sum(soak.outcomes.values())} jobs, {total} holds on {len(soak.engines)} engines in {minutes:g} "
          f"minutes, {len(soak.complaints)} promises broken, seed {seed}")
    if soak.complaints:
        print(f"kept for a look: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


sys.exit(main())
