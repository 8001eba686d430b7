"""Locks in PostgreSQL and MariaDB, beside what their clients do: round trips and time."""

import glob
import os
import pwd
import shlex
import shutil
import subprocess

import crowd
from figures import Summary, median, spread
from locks import DlockAt, Lock
from relay import Relay
from stage import free_port, until
from start import TRUE, tick

ONE_WAY_MS = 25

# The statements of ShedLock's JdbcTemplateLockProvider with usingDbTime().
SHEDLOCK_TABLE = ("CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NOT "
                  "NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL)")
SHEDLOCK = {
    "postgres": (
        "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('k', "
        "timezone('utc', CURRENT_TIMESTAMP) + interval '30 s', timezone('utc', CURRENT_TIMESTAMP), "
        "'me') ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + "
        "interval '30 s', locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'me' WHERE "
        "shedlock.name = 'k' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
        "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = 'k' AND "
        "locked_by = 'me'"),
    "mariadb": (
        "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('k', "
        "TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), 'me'); "
        "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), "
        "locked_at = UTC_TIMESTAMP(3), locked_by = 'me' WHERE name = 'k' AND lock_until <= "
        "UTC_TIMESTAMP(3)",
        "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'k' AND locked_by = 'me'"),
}


def owned_by(user, directory):
    """How a server is started that refuses to be root: (argv before it), its directory made."""
    os.mkdir(directory)
    if os.geteuid() != 0:
        return []
    os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"]


class Database:
    """A server with the settings of its package, but for its port."""

    use = ""

    def __init__(self, stage):
        self.stage, self.port = stage, free_port()
        os.chmod(stage.directory, 0o755)
        self.begin(stage.path(self.kind))
        until(self.answers, self.name)
        for statement in self.prepare:
            self.ask(statement)

    def answers(self):
        asked = subprocess.run([*self.client(), self.flag, "SELECT 1"], capture_output=True)
        return asked.returncode == 0

    def ask(self, statement):
        return self.stage.run([*self.client(), self.flag, statement])

    def waiting(self):
        return int(self.ask(f"SELECT count(*) FROM {self.waiters}"))


class Postgres(Database):
    kind, name, flag = "postgres", "PostgreSQL", "-c"
    waiters = "pg_locks WHERE locktype = 'advisory' AND NOT granted"
    advisory, take = "psql, pg_advisory_lock", ("SELECT pg_advisory_lock(7)",
                                                "SELECT pg_advisory_unlock(7)")

    prepare = (SHEDLOCK_TABLE,)

    def begin(self, data):
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        user = owned_by("postgres", data)
        self.stage.run([*user, f"{programs}/initdb", "-D", data, "-A", "trust", "-U", "postgres"],
                       cwd="/")
        self.process = self.stage.start([*user, f"{programs}/postgres", "-D", data, "-k", data,
                                         "-p", str(self.port)], cwd="/")

    @staticmethod
    def is_there():
        return bool(glob.glob("/usr/lib/postgresql/*/bin/initdb")) and shutil.which("psql")

    def client(self, port=None):
        return ["psql", "-qAtX", self.url(port)]

    def url(self, port=None):
        # Without TLS, which dlock would request as psql does.
        return (f"postgres://postgres@127.0.0.1:{port or self.port}/postgres?sslmode=disable&"
                "gssencmode=disable")


class MariaDb(Database):
    kind, name, flag, use = "mariadb", "MariaDB", "-e", "USE locks;\n"
    waiters = "information_schema.processlist WHERE state = 'User lock'"
    advisory, take = "mysql, GET_LOCK", ("SELECT GET_LOCK('k', 300)", "SELECT RELEASE_LOCK('k')")

    prepare = ("CREATE DATABASE locks", f"USE locks; {SHEDLOCK_TABLE}")

    def begin(self, data):
        user = owned_by("mysql", data)
        self.stage.run([*user, "mariadb-install-db", "--no-defaults", f"--datadir={data}",
                        "--auth-root-authentication-method=normal", "--skip-test-db"], cwd="/")
        self.process = self.stage.start(
            [*user, "/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}",
             f"--socket={data}/socket", f"--port={self.port}", "--bind-address=127.0.0.1",
             "--skip-name-resolve"], cwd="/")

    @staticmethod
    def is_there():
        return os.path.exists("/usr/sbin/mariadbd") and shutil.which("mysql")

    def client(self, port=None):
        return ["mysql", "--no-defaults", "-N", "-uroot", "-h127.0.0.1", f"-P{port or self.port}"]

    def url(self, port=None):
        return f"mariadb://root@127.0.0.1:{port or self.port}/locks"


class DlockIn(DlockAt):
    def __init__(self, stage, database, port=None):
        super().__init__(stage, f"dlock, {database.name}", database.url(port))

    def queued(self, key):
        seen = self.stage.run([self.stage.dlock, "inspect", "--server", self.url, "--json", "-k",
                               key])
        return seen.count('"position":')


class Client(Lock):
    """A session of the database's own client that runs the command between two statements."""

    def __init__(self, stage, database, name, statements, port=None):
        self.name, self.stage, self.database = name, stage, database
        self.statements, self.client = statements, shlex.join(database.client(port))

    def argv(self, key, command, wait):
        number = len(glob.glob(self.stage.path("between-*")))
        between = self.stage.script(f"between-{number}", f"exec {shlex.join(command)}\n")
        take, give = self.statements
        return ["sh", self.stage.script(
            f"client-{number}", f"exec {self.client} >/dev/null <<'END'\n{self.database.use}{take};\n"
            f"\\! sh {between}\n{give};\nEND\n")]

    def queued(self, key):
        return self.database.waiting()


def locks_of(stage, database, port=None):
    client = database.client()[0]
    return [DlockIn(stage, database, port),
            Client(stage, database, database.advisory, database.take, port),
            Client(stage, database, f"{client}, ShedLock's statements", SHEDLOCK[database.kind],
                   port)]


def trips_of(stage, database, rounds):
    """Round trips of a whole lock, with the login, the client's own questions and the goodbye."""
    relay, found = Relay(database.port), {}
    for lock in locks_of(stage, database, relay.port):
        counts = []
        for _ in range(rounds + 1):
            before = len(relay.said)
            stage.run(lock.argv("k", TRUE, wait=False))
            said = relay.said[before:]
            counts.append(relay.round_trips(said[0][0], said[-1][0]))
        found[lock.name] = median(counts[1:])  # the first may create the table
    relay.end()
    return found


def hand_overs(stage, database, rounds):
    """Round trips from the end of a command to the start of the next, over 50 ms."""
    relay, found = Relay(database.port, hold_ms=ONE_WAY_MS), {}
    for lock in locks_of(stage, database, relay.port)[:2]:
        gaps = crowd.run(stage, lock, rounds, section_us=300_000).gaps
        found[lock.name] = median(gaps) / (2 * ONE_WAY_MS)
    relay.end()
    return found


def measure(stage, _, report, quick):
    for kind in (Postgres, MariaDb):
        if not kind.is_there():
            report.notes.append(f"{kind.name}: skipped, not here (scripts/bench --install-peers)")
            continue
        measure_one(stage, kind(stage), report, quick)


def measure_one(stage, database, report, quick):
    here = locks_of(stage, database)
    trips = trips_of(stage, database, 3 if quick else 9)
    times, _ = tick(stage, [lock.argv("k", TRUE, wait=False) for lock in here],
                    10 if quick else 40)
    far = hand_overs(stage, database, 4 if quick else 8)
    crowds = {lock.name: crowd.run(stage, lock, 20 if quick else 50) for lock in here[:2]}
    rows, summary = [], {}
    peer = median(times[1])
    for lock, each in zip(here, times):
        waited, hand_over = crowds.get(lock.name), far.get(lock.name)
        rows.append((lock.name, f"{trips[lock.name]:.0f}", spread(each),
                     f"{median(each) / peer:.2f}",
                     f"{hand_over:.2f}" if hand_over else "-",
                     spread(waited.gaps) if waited else "-",
                     f"{waited.out_of_order:.0f} %" if waited else "-"))
        summary[lock.name] = (trips[lock.name], median(each), median(each) / peer, hand_over,
                              median(waited.gaps) if waited else None)
    report.add(f"A lock around true in {database.name}, login and goodbye included",
               ["", "round trips", "ms (p10..p90)", f"x {database.advisory}",
                "hand-over, round trips", "hand-over here, ms (p10..p90)", "out of order"], rows)
    title = f"A lock around true in {database.name}"
    report.summaries[database.kind] = Summary(
        [title, "round trips", "ms", f"x {database.advisory}", "hand-over, round trips",
         "hand-over, ms"], ["", "", "", "", ""], summary)
    hand_over = far[here[0].name]
    if database.kind == "postgres":
        report.judge(f"{here[0].name}: hand-over", "two round trips and a commit",
                     f"{hand_over:.2f} round trips, the relay's own time included",
                     hand_over < 2.9)
    order = crowds[here[0].name].out_of_order
    report.judge(f"{here[0].name}: order", "FIFO", f"{order:.2f} % of pairs out of order",
                 order == 0)
    stage.end(database.process)
