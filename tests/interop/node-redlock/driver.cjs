// node-redlock 5. See tests/interop/README for the form of a driver.
const fs = require("fs");
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const [verb, urls, key, lease, seconds, inside] = process.argv.slice(2);

const line = () => new Promise((done) => {
  process.stdin.once("data", done);
  process.stdin.once("end", done);
});

async function section(path) {
  try {
    fs.closeSync(fs.openSync(path, "wx"));
  } catch {
    console.log("overlap");
    return;
  }
  await pause(2);
  fs.unlinkSync(path);
}

async function main() {
  if (verb === "version") {
    const path = require("path").join(__dirname, "node_modules/redlock/package.json");
    return console.log(JSON.parse(fs.readFileSync(path)).version);
  }
  const clients = urls.split(",").map((url) => new Redis(url, { maxRetriesPerRequest: 0 }));
  for (const client of clients) client.on("error", () => {});
  const redlock = new Redlock(clients, { retryDelay: 50, retryJitter: 50 });
  redlock.on("error", () => {});
  const acquire = (tries) =>
    redlock.acquire([key], Number(lease), { retryCount: tries }).catch(() => null);
  if (verb === "try") {
    const lock = await acquire(0);
    if (!lock) process.exit(75);
    await lock.release();
  } else if (verb === "hold") {
    const lock = await acquire(1000);
    if (!lock) process.exit(75);
    console.log("held", now());
    await line();
    const before = now();
    const released = await lock.release().then(() => true, () => false);
    console.log(released ? "released" : "lost", before);
  } else {
    let count = 0;
    for (const end = now() + Number(seconds); now() < end; ) {
      const lock = await acquire(20);
      if (!lock) continue;
      await section(inside);
      await lock.release().catch(() => {});
      count++;
      await pause(5);
    }
    console.log("sections", count);
  }
  process.exit(0);
}

main();
