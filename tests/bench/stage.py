"""What the measurements run on: a directory, servers and processes, all ended by pid."""

import contextlib
import copy
import ctypes
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(condition, what, seconds=20.0, pause=0.0005):
    """Waits for a condition; returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)


class Stage:
    """A temporary directory and the processes started for it."""

    def __init__(self, directory, tools, dlock):
        self.directory = Path(directory)
        self.tools = Path(tools)
        self.dlock = str(dlock)
        self.processes = []
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("DLOCK_") and name != "REDISCLI_AUTH"}
        self.environment.update(HOME=str(self.directory), ETCDCTL_API="3")

    def tool(self, name):
        return str(self.tools / name)

    def path(self, name):
        return str(self.directory / name)

    def start(self, argv, space=None, **options):
        """A process that ends with us; `space`: path of a network namespace to start it in."""
        if space:
            argv = ["nsenter", f"--net={space}", *argv]
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        options.setdefault("env", self.environment)
        process = subprocess.Popen(argv, preexec_fn=die_with_parent, **options)
        self.processes.append(process)
        return process

    def run(self, argv, text=None, **options):
        """Its output; an exception if it fails. `text`: its input."""
        if text is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(argv, stdout=subprocess.PIPE, text=True, **options)
        output, _ = process.communicate(text)
        self.processes.remove(process)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}")
        return output

    def script(self, name, text):
        """The path of a file with this text."""
        (self.directory / name).write_text(text, encoding="ascii")
        return self.path(name)

    def fresh(self, name):
        """The path of a file that is not there."""
        path = self.directory / name
        path.unlink(missing_ok=True)
        return str(path)

    def end(self, *processes, how=signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(how)
        for process in processes:
            process.wait()
            if process in self.processes:
                self.processes.remove(process)

    def close(self):
        self.end(*list(self.processes))

    def redis(self, *options, **where):
        return Redis(self, options, **where)


class Redis:
    """A redis-server without persistence, and a client of it."""

    def __init__(self, stage, options=(), space=None, host="127.0.0.1", login="",
                 tls=False):
        self.stage, self.host, self.port, self.login = stage, host, free_port(), login
        self.socket = stage.path(f"redis-{self.port}.sock")
        self.process = stage.start(
            ["redis-server", "--tls-port" if tls else "--port", str(self.port),
             *(["--port", "0"] if tls else []), "--bind", host, "--save", "",
             "--unixsocket", self.socket, "--dir", str(stage.directory), *options], space=space)
        self.client = until(lambda: connected(self.socket), "a redis-server")
        if login:
            self.client.ask("AUTH", login.strip(":@"))
        self.url = f"{'rediss' if tls else 'redis'}://{login}{host}:{self.port}"

    def at(self, host, database=""):
        """The same server as clients elsewhere name it."""
        other = copy.copy(self)
        other.host, other.url = host, f"redis://{self.login}{host}:{self.port}{database}"
        return other

    def behind(self, relay, database=""):
        """The same server as clients of the relay name it."""
        other = self.at("127.0.0.1")
        other.port, other.url = relay.port, f"redis://{self.login}127.0.0.1:{relay.port}{database}"
        return other

    def calls(self):
        """How often each command was called since the server began, the scripts' own left out."""
        text = self.client.ask("INFO", "commandstats")
        stats = {}
        for line in text.splitlines():
            if line.startswith("cmdstat_"):
                name, fields = line[8:].split(":")
                stats[name] = {k: float(v) for k, v in (f.split("=") for f in fields.split(","))}
        return stats

    def script_calls(self):
        stats = self.calls()
        return sum(stats[name]["calls"] for name in ("evalsha", "eval") if name in stats)

    def script_microseconds(self):
        stats = self.calls()
        return sum(stats[name]["usec"] for name in ("evalsha", "eval") if name in stats)

    def cpu_seconds(self):
        fields = dict(line.split(":") for line in self.client.ask("INFO", "cpu").splitlines()
                      if ":" in line)
        return float(fields["used_cpu_sys"]) + float(fields["used_cpu_user"])

    def memory(self):
        text = self.client.ask("INFO", "memory")
        return int(next(l for l in text.splitlines() if l.startswith("used_memory:")).split(":")[1])

    def end(self):
        self.client.close()
        self.stage.end(self.process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)


def connected(path):
    """A client; None while nobody listens there."""
    try:
        return Client(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def packed(*words):
    """One request as it goes over the wire."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class Client:
    """Speaks RESP2 over a Unix socket, requests pipelined."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.reader = self.socket.makefile("rb")

    def close(self):
        self.reader.close()
        self.socket.close()

    def ask(self, *words):
        return self.pipeline([words])[0]

    def pipeline(self, requests):
        replies = []
        for at in range(0, len(requests), 200):
            part = requests[at:at + 200]
            self.socket.sendall(b"".join(packed(*each) for each in part))
            replies += [self.reply() for _ in part]
        return replies

    def reply(self):
        line = self.reader.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if rest == b"-1":
            return None
        return self.reader.read(int(rest) + 2)[:-2].decode(errors="replace")
