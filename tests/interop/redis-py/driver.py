#!/usr/bin/env python3
"""redis-py's Lock. See tests/interop/README for the form of a driver."""
import sys

import redis

from common import Rival, run


class RedisPy(Rival):
    def open(self, url, key, lease):
        self.lock = redis.Redis.from_url(url).lock(key, timeout=lease, sleep=0.02)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)

    def release(self):
        try:
            self.lock.release()
        except redis.exceptions.LockError:
            return False
        return True


if sys.argv[1:] == ["version"]:
    print(redis.__version__)
else:
    run(RedisPy())
