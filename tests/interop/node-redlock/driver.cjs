// node-redlock 5. See tests/interop/README for the form of a driver.
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");
const { run } = require("./common.cjs");

const pauseMs = 75; // on average, between two tries

run("redlock", (urls, key, lease) => {
  const clients = urls.map((url) => new Redis(url, { maxRetriesPerRequest: 0 }));
  for (const client of clients) client.on("error", () => {});
  const redlock = new Redlock(clients, { retryDelay: 50, retryJitter: 50 });
  redlock.on("error", () => {});
  let lock;
  return {
    async acquire(seconds) {
      const tries = Math.round((seconds * 1000) / pauseMs);
      lock = await redlock.acquire([key], lease, { retryCount: tries }).catch(() => null);
      return lock !== null;
    },
    release: () => lock.release().then(() => true, () => false),
  };
});
