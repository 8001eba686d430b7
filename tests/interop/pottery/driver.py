#!/usr/bin/env python3
"""pottery's Redlock. See tests/interop/README for the form of a driver."""
import importlib.metadata
import sys

import redis
from pottery import Redlock
from pottery.exceptions import ReleaseUnlockedLock

from common import Rival, run


class Pottery(Rival):
    def open(self, url, key, lease):
        masters = {redis.Redis.from_url(each) for each in url.split(",")}
        self.lock = Redlock(key=key, masters=masters, auto_release_time=lease)

    def acquire(self, wait):
        return self.lock.acquire(timeout=wait) if wait else self.lock.acquire(blocking=False)

    def release(self):
        try:
            self.lock.release()
        except ReleaseUnlockedLock:
            return False
        return True


if sys.argv[1:] == ["version"]:
    print(importlib.metadata.version("pottery"))
else:
    run(Pottery())
