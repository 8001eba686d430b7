// What a driver in Node does with its lock: `open` makes one, which has `acquire(seconds)`, true once
// it is taken, and `release()`, true if it was still its own.
const fs = require("fs");
const path = require("path");

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => (performance.timeOrigin + performance.now()) / 1000;

const line = () => new Promise((done) => {
  process.stdin.once("data", done);
  process.stdin.once("end", done);
});

async function section(inside) {
  try {
    fs.closeSync(fs.openSync(inside, "wx"));
  } catch {
    console.log("overlap");
    return;
  }
  await pause(2);
  fs.unlinkSync(inside);
}

async function run(library, open) {
  const [verb, urls, key, lease, seconds, inside] = process.argv.slice(2);
  if (verb === "version") {
    const file = path.join(__dirname, "node_modules", library, "package.json");
    return console.log(JSON.parse(fs.readFileSync(file)).version);
  }
  const rival = open(urls.split(","), key, Number(lease));
  if (verb === "try") {
    if (!(await rival.acquire(0))) process.exit(75);
    await rival.release();
  } else if (verb === "hold") {
    if (!(await rival.acquire(60))) process.exit(75);
    console.log("held", now());
    await line();
    const before = now();
    console.log((await rival.release()) ? "released" : "lost", before);
  } else {
    let count = 0;
    for (const end = now() + Number(seconds); now() < end; ) {
      if (!(await rival.acquire(5))) continue;
      await section(inside);
      await rival.release();
      count++;
      await pause(5);
    }
    console.log("sections", count);
  }
  process.exit(0);
}

module.exports = { run };
