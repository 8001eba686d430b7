"""What dlock costs the server: processor time for an operation, and memory."""

import time

from figures import median, spread
from plot import Panel
from script import Requests
from stage import Client

# The same commands in the same order as Redisson's fenced lock (a hash of holders with a count,
# INCR of a fence, a latch for each unlock, PUBLISH for the waiters), in our own words.
REDISSON_LOCK = """
local free = redis.call('exists', KEYS[1]) == 0
if not free and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return {redis.call('pttl', KEYS[1]), -1}
end
local fence = redis.call('incr', KEYS[2])
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return {-1, fence}
"""
REDISSON_UNLOCK = """
local before = redis.call('get', KEYS[3])
if before ~= false then return tonumber(before) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1
"""

PLAIN_RELEASE = ("if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end "
                 "return 0")


def per_call(redis, requests, count):
    """Microseconds of the scripts themselves, for each of `count` operations."""
    before = redis.script_microseconds()
    replies = redis.client.pipeline(requests)
    wrong = [reply for reply in replies if isinstance(reply, Exception)]
    if wrong:
        raise RuntimeError(str(wrong[0]))
    return (redis.script_microseconds() - before) / count


class Pairs:
    """Acquire and release of a free key, in the three ways that are compared."""

    def __init__(self, redis, make):
        self.redis, self.make, self.number = redis, make, 0
        load = redis.client.ask
        self.lock, self.unlock = load("SCRIPT", "LOAD", REDISSON_LOCK), load(
            "SCRIPT", "LOAD", REDISSON_UNLOCK)
        self.plain = load("SCRIPT", "LOAD", PLAIN_RELEASE)

    def dlock(self):
        self.number += 1
        return [self.make(what, "pair", self.number) for what in ("acquire", "release")]

    def redisson(self):
        self.number += 1
        holder = f"{self.number:032x}:1"
        return [["EVALSHA", self.lock, "2", "{pair}", "{pair}:fence", "30000", holder],
                ["EVALSHA", self.unlock, "3", "{pair}", "channel:{pair}",
                 f"{{pair}}:latch:{self.number:032x}", "0", "30000", holder, "", "30000"]]

    def measure(self, rounds, batch=200):
        times = {"dlock": [], "Redisson's commands": []}
        for _ in range(rounds):
            for name, pair in (("dlock", self.dlock), ("Redisson's commands", self.redisson)):
                requests = [request for _ in range(batch) for request in pair()]
                times[name].append(per_call(self.redis, requests, batch))
        return times


def uncontended(redis, make, report, quick):
    times = Pairs(redis, make).measure(20 if quick else 80)
    mine, other = times["dlock"], times["Redisson's commands"]
    report.add("Server time of an uncontended acquire + release (commandstats, pipelined)",
               ["", "us a pair (p10..p90)", "x Redisson"],
               [(name, spread(each), f"{median(each) / median(other):.2f}")
                for name, each in times.items()])
    found = median([a / b for a, b in zip(mine, other)])
    report.judge("server cost of an acquire + release", "<= 0.95 x Redisson's commands",
                 f"{found:.2f}", found <= 0.95)
    cpu, count = redis.cpu_seconds(), 20_000
    requests = [r for i in range(count) for r in (make("acquire", f"k{i % 997}", i),
                                                  make("release", f"k{i % 997}", i))]
    redis.client.pipeline(requests)
    return (redis.cpu_seconds() - cpu) / count


class Queue:
    """One key with a holder and many in the queue, all of them us."""

    def __init__(self, redis, make, key, size):
        self.redis, self.make, self.key, self.size = redis, make, key, size
        self.holder, self.last = 0, size
        self.listener = Client(redis.socket)
        redis.client.ask(*make("acquire", key, 0))
        for number in range(1, size + 200):
            self.listen(number)
        redis.client.pipeline([make("wait", key, number) for number in range(1, size + 1)])

    def listen(self, number):
        self.listener.ask("SUBSCRIBE", f"dlock:{{{self.key}}}:{number:016x}")

    def ask_again(self):
        numbers = [self.holder + 1 + i * (self.size - 1) // 100 for i in range(100)]
        return per_call(self.redis, [self.make("wait", self.key, n) for n in numbers], 100)

    def renew(self):
        return per_call(self.redis, [self.make("renew", self.key, self.holder)] * 100, 100)

    def hand_over(self):
        """Release, and the confirming renewal of the next."""
        requests = []
        for _ in range(50):
            requests.append(self.make("release", self.key, self.holder))
            self.holder += 1
            requests.append(self.make("renew", self.key, self.holder))
        cost = per_call(self.redis, requests, 50)
        joined = range(self.last + 1, self.last + 51)
        self.last += 50
        self.redis.client.pipeline([self.make("wait", self.key, n) for n in joined])
        return cost

    def end(self):
        self.listener.close()
        self.redis.client.ask("DEL", *(f"dlock:{{{self.key}}}{part}"
                                       for part in ("", ":queue", ":waiters")))


def crowded(redis, make, report, quick):
    sizes = (10, 100, 1000) if quick else (10, 100, 1000, 10_000)
    lines = {"asks again": {}, "renews": {}, "hands over": {}}
    rows = []
    for size in sizes:
        queue = Queue(redis, make, f"crowd{size}", size)
        found = [[], [], []]
        for _ in range(3):
            for each, operation in zip(found, (queue.ask_again, queue.renew, queue.hand_over)):
                each.append(operation())
        queue.end()
        for line, values in zip(lines.values(), found):
            line[size] = values
        rows.append((size, *(f"{median(values):.1f}" for values in found)))
    report.add("Server time of an operation by entries in the queue, us",
               ["queue", "asks again", "renews", "hands over (release + confirm)"], rows)
    title = "Server time of an operation of dlock"
    report.panels[title] = Panel(title, "µs", "waiters in the queue", lines, of="dlock, Redis")


def memory(redis, make, report):
    count = 10_000
    before = redis.memory()
    redis.client.pipeline([make("acquire", f"memory{i}", i) for i in range(count)])
    held = redis.memory()
    first = redis.client.ask("MEMORY", "USAGE", "dlock:{memory1}")
    fence = redis.client.ask("MEMORY", "USAGE", "dlock:{memory1}:fence")
    redis.client.pipeline([make("wait", "memory0", count + i) for i in range(count)])
    queued = redis.memory()
    redis.client.pipeline([make("release", f"memory{i}", i) for i in range(1, count)])
    released = redis.memory()
    lock, waiter = (held - before) / count, (queued - held) / count
    listeners = [Client(redis.socket) for _ in range(200)]
    for number, listener in enumerate(listeners):
        listener.ask("SUBSCRIBE", f"dlock:{{memory0}}:{count + number:016x}")
    time.sleep(5)  # until the server has taken back what it lends to a busy connection
    waiter += (redis.memory() - released) / len(listeners)
    for listener in listeners:
        listener.close()
    fences = (released - before - (queued - held)) / count
    report.add("Memory of the server, bytes",
               ["held lock", "of it MEMORY USAGE of hold, fence",
                "waiter with its connection", "key that was held within a week"],
               [(f"{lock:.0f}", f"{first}, {fence}", f"{waiter:.0f}", f"{fences:.0f}")])
    return lock, waiter, fences


def whole_run(stage, redis):
    """Processor time of the server for one `dlock run`, its connection included."""
    count, before = 200, redis.cpu_seconds()
    for number in range(count):
        stage.run([stage.dlock, "run", "-n", "--server", redis.url, "-k", f"r{number}", "true"])
    return (redis.cpu_seconds() - before) / count


def measure(stage, _, report, quick):
    redis = stage.redis()
    make = Requests(stage, redis).make
    pair = uncontended(redis, make, report, quick)
    crowded(redis, make, report, quick)
    lock, waiter, fence = memory(redis, make, report)
    whole = whole_run(stage, redis)
    report.add("Scale, by one server core and its memory",
               ["acquire + release on open connections", "`dlock run`, connection included",
                "million held locks", "million waiters",
                "million keys of the last week"],
               [(f"{1 / pair:.0f}/s", f"{1 / whole:.0f}/s", f"{lock:.0f} MB", f"{waiter:.0f} MB",
                 f"{fence:.0f} MB")])
    redis.end()
