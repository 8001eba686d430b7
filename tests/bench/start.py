"""One uncontended lock around `true`: time, memory, and what a start is made of."""

from figures import Summary, median, quantile, spread
from plot import Panel

TRUE = ["/usr/bin/true"]


def tick(stage, commands, rounds):
    """[(milliseconds...), (peak KB...)] of each command, run by turns."""
    for argv in commands:
        stage.run(argv)
    script = "".join("\t".join(argv) + "\n" for argv in commands)
    output = stage.run([stage.tool("ticker"), str(rounds)], script)
    times, peaks = [[] for _ in commands], [0 for _ in commands]
    for line in output.splitlines():
        which, us, kb, status = map(int, line.split())
        if status != 0:
            raise RuntimeError(f"{' '.join(commands[which])}: wait status {status}")
        times[which].append(us / 1000)
        peaks[which] = max(peaks[which], kb)
    return times, peaks


def ratio(times, to):
    return median([a / b for a, b in zip(times, to)])


def measure(stage, locks, report, quick):
    named = {lock.name: lock for lock in locks}
    quick_ones = [lock for lock in locks if lock.name in
                  ("flock", "dlock, local", "dlock, Redis", "floor", "two redis-cli")]
    slow_ones = [lock for lock in locks if lock not in quick_ones]
    commands = [lock.argv("start", TRUE, wait=False) for lock in quick_ones]
    extra = [("dlock --version", [stage.dlock, "--version"]), ("true", TRUE)]
    commands += [argv for _, argv in extra]
    times, peaks = tick(stage, commands, 150 if quick else 600)
    names = [lock.name for lock in quick_ones] + [name for name, _ in extra]
    if slow_ones:
        slow = [named["flock"], *slow_ones]
        slow_times, slow_peaks = tick(stage, [lock.argv("start", TRUE, False) for lock in slow],
                                      8 if quick else 25)
        times += slow_times[1:]
        peaks += slow_peaks[1:]
        names += [lock.name for lock in slow_ones]
    flock, floor = times[names.index("flock")], times[names.index("floor")]
    rows = [(name, spread(each), f"{median(each) / median(flock):.2f}",
             f"{median(each) / median(floor):.2f}", f"{peak / 1024:.1f}")
            for name, each, peak in zip(names, times, peaks)]
    report.add("One uncontended lock - true - unlock, loopback, interleaved",
               ["", "ms (p10..p90)", "x flock", "x floor", "peak RSS MB"], rows)
    title = "A lock around true, no other client"
    report.summaries[title] = Summary(
        [title, "ms", "x flock", "peak RSS"], ["", "", " MB"],
        {name: (median(each), median(each) / median(flock), peak / 1024)
         for name, each, peak in zip(names, times, peaks) if name in named})
    report.panels[title] = Panel(title, "ms", "", {
        name: {0: each} for name, each in zip(names, times) if name in named})
    for name, goal in (("dlock, Redis", 1.30), ("dlock, local", 1.15)):
        mine = times[names.index(name)]
        found = median(mine) / median(flock)
        low = quantile(mine, 0.1) / quantile(flock, 0.1)
        report.judge(f"{name}: run -n -k K -- true", f"<= {goal} x flock",
                     f"{found:.2f} (p10: {low:.2f})", found <= goal)
