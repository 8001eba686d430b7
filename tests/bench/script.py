"""dlock's requests as they go over the wire, learnt from a run of it, so that thousands can be
sent without a process each."""

import re
import socket
import threading

from stage import Client, until

WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def unescaped(text):
    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 3
                  else {"n": "\n", "r": "\r", "t": "\t"}.get(m[1], m[1]), text)


class Watch:
    """What a server is asked meanwhile."""

    def __init__(self, redis):
        self.client, self.requests = Client(redis.socket), []
        self.client.ask("MONITOR")
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.client.reader:
            text = line.decode(errors="replace")
            if " lua] " not in text:
                self.requests.append([unescaped(word) for word in WORD.findall(text)])

    def find(self, *words):
        """The first request that holds all of these words."""
        def found():
            return next((r for r in self.requests if all(w in r for w in words)), None)
        return until(found, f"a request with {' '.join(words)}")

    def end(self):
        self.client.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.client.close()


class Requests:
    """Makes dlock's requests for any key and owner number."""

    def __init__(self, stage, redis):
        watch = Watch(redis)
        common = ["-q", "--server", redis.url, "-k", "probe"]
        stage.run([stage.dlock, "run", "-n", *common, "--", "true"])
        acquired = watch.find("EVALSHA", "acquire")
        self.models = {"acquire": (acquired, acquired[8]),
                       "release": (watch.find("EVALSHA", "release"), acquired[8])}
        holder = stage.start([stage.dlock, "run", *common, "--", "sleep", "600"])
        until(lambda: redis.client.ask("EXISTS", "dlock:{probe}"), "a holder")
        waiter = stage.start([stage.dlock, "run", *common, "--", "true"])
        channel = watch.find("SUBSCRIBE")[1].rsplit(":", 1)[1]
        asked = watch.find("EVALSHA", "acquire", channel)
        self.models["wait"], self.channel = (asked, asked[8]), channel
        stage.end(waiter, holder)
        redis.client.ask("DEL", "dlock:{probe}", "dlock:{probe}:queue", "dlock:{probe}:waiters")
        token = stage.run([stage.dlock, "acquire", "-t", "60s", *common[1:]]).strip()
        stage.environment["DLOCK_TOKEN"] = token
        stage.run([stage.dlock, "renew", *common[1:]])
        stage.run([stage.dlock, "release", *common[1:]])
        del stage.environment["DLOCK_TOKEN"]
        self.models["renew"] = (watch.find("EVALSHA", "renew"), token)
        # A server takes several times as long while it is watched.
        watch.end()

    def make(self, what, key, number):
        model, token = self.models[what]
        owner = token.split(":")[0]
        changes = [(token, f"{number:016x}:{number:032x}"), (owner, f"{number:016x}"),
                   ("{probe}", "{%s}" % key)]
        if what == "wait":
            changes.append((self.channel, f"{number:016x}"))
        words = []
        for word in model:
            for old, new in changes:
                word = word.replace(old, new)
            words.append(word)
        return words
