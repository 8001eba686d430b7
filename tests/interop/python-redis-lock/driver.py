#!/usr/bin/env python3
"""python-redis-lock. See tests/interop/README for the form of a driver."""
import importlib.metadata
import sys
import time

import redis
import redis_lock

from common import Rival, run


class PythonRedisLock(Rival):
    def open(self, url, key, lease):
        # With a socket timeout, which redis-py sets by default, a waiter would fail before its lock
        # ends.
        client = redis.Redis.from_url(url, socket_timeout=None)
        self.lease = max(1, int(lease))
        self.lock = redis_lock.Lock(client, key, expire=self.lease)

    def acquire(self, wait):
        """It waits for its own lease at most, and is asked again."""
        if not wait:
            return self.lock.acquire(blocking=False)
        end = time.time() + wait
        while time.time() < end:
            if self.lock.acquire(timeout=min(self.lease, max(1, int(end - time.time())))):
                return True
        return False

    def release(self):
        try:
            self.lock.release()
        except redis_lock.NotAcquired:
            return False
        return True


if sys.argv[1:] == ["version"]:
    print(importlib.metadata.version("python-redis-lock"))
else:
    run(PythonRedisLock())
