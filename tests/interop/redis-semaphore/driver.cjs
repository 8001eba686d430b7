// redis-semaphore's Mutex. See tests/interop/README for the form of a driver.
const { Redis } = require("ioredis");
const { Mutex } = require("redis-semaphore");
const { run } = require("./common.cjs");

run("redis-semaphore", ([url], key, lockTimeout) => {
  const client = new Redis(url);
  let mutex;
  return {
    async acquire(seconds) {
      const limits = seconds ? { acquireTimeout: seconds * 1000 } : { acquireAttemptsLimit: 1 };
      mutex = new Mutex(client, key, { lockTimeout, refreshInterval: 0, ...limits });
      return mutex.tryAcquire();
    },
    // It does not say whether the lock was still its own.
    release: () => mutex.release().then(() => true),
  };
});
