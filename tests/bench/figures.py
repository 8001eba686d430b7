"""Medians, tables and goals."""

from dataclasses import dataclass, field


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def median(values):
    return quantile(values, 0.5)


def spread(values, digits=2):
    """`1.94 (1.88..2.10)`: the median, and p10 to p90."""
    low, high = quantile(values, 0.1), quantile(values, 0.9)
    return f"{median(values):.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def table(title, header, rows):
    lines = [header, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    def text(line):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"\n{title}\n", text(header), rule, *map(text, lines[1:])])


NAMES = {"dlock, local": "dlock on local:", "dlock, Redis": "dlock on Redis",
         "floor": "baseline on Redis"}


def brief(value):
    """Three digits, as dlock-comparison(7) has them."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


@dataclass
class Summary:
    """A table of dlock-comparison(7). `rows`: the values by the name of a lock; None where there is
    none. `units`: of the columns."""

    header: list
    units: list
    rows: dict


def over_runs(values, unit):
    """`1.9 to 2.0 ms`: the lowest and the highest of the runs."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = brief(min(known)), brief(max(known))
    return (low if low == high else f"{low} to {high}") + unit


def summary_text(summaries):
    """The same table of all runs as one, in Markdown."""
    first = summaries[0]
    lines = [first.header, ["---"] * len(first.header)]
    for name in first.rows:
        rows = [summary.rows[name] for summary in summaries if name in summary.rows]
        lines.append([NAMES.get(name, name), *map(over_runs, zip(*rows), first.units)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Goal:
    what: str
    goal: str
    measured: str = ""
    verdict: str = "not measured"


@dataclass
class Report:
    """What a run has found, in the order in which it is printed."""

    tables: list = field(default_factory=list)
    goals: list = field(default_factory=list)
    panels: dict = field(default_factory=dict)
    summaries: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)

    def add(self, title, header, rows):
        self.tables.append(table(title, header, rows))
        print(self.tables[-1], flush=True)

    def judge(self, what, goal, measured, reached):
        """A goal that was measured."""
        self.goals.append(Goal(what, goal, measured, "reached" if reached else "missed"))

    def skip(self, what, goal, why):
        """One that was not."""
        self.goals.append(Goal(what, goal, why))

    def goal_table(self):
        rows = [(g.what, g.goal, g.measured, g.verdict) for g in self.goals]
        return table("Goals", ["what", "goal", "measured", "verdict"], rows)
