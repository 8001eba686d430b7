"""An SVG of panels: lines over a logarithmic x axis, or a row of dots for each tool. A tool has the
same colour in every panel; a dot is a median, the bar through it goes from the 10th to the 90th
percentile. An axis of values is logarithmic where they span more than a decade."""

import html
import math
from dataclasses import dataclass

from figures import NAMES, brief, median, quantile

# Based on the palette of Okabe and Ito, which is safe for the colour-blind; darker for text.
COLOURS = {"flock": "#444444", "dlock, local": "#009e73", "dlock, Redis": "#0072b2",
           "floor": "#c98500", "etcdctl lock": "#d55e00", "redis-py Lock": "#b0568f",
           "two redis-cli": "#7a4b1e"}
DASHES = ["", "7 4", "2 4"]
WIDTH, HEIGHT, HEAD = 430, 300, 62
TOP, BOTTOM, LEFT, RIGHT = 40, 46, 52, 128


@dataclass
class Panel:
    """`lines`: {name: {x: [values of all measurements]}}. Without a name of x it has a row of dots
    for each name, and x is not looked at. `of`: the tool, where the names are not those of tools."""

    title: str
    unit: str
    x_name: str
    lines: dict
    of: str = ""

    def add(self, other):
        """The measurements of one more run."""
        for name, line in other.lines.items():
            for x, values in line.items():
                self.lines.setdefault(name, {}).setdefault(x, []).extend(values)

    def colour(self, name):
        return COLOURS.get(self.of or name, "#444444")


def merged(runs):
    """The panels of all runs, each {title: panel}, as one list."""
    found = {}
    for panels in runs:
        for title, panel in panels.items():
            if title in found:
                found[title].add(panel)
            else:
                found[title] = panel
    return list(found.values())


class Axis:
    """From values to pixels, and which values get a line."""

    def __init__(self, values, begin, end, logarithmic=None):
        low, high = min(values), max(values)
        self.logarithmic = low > 0 and high > 10 * low if logarithmic is None else logarithmic
        self.begin, self.end = begin, end
        if self.logarithmic:
            self.low, self.high = below(low), above(high)
        else:
            self.low, self.high = 0, above(high)

    def at(self, value):
        scale = math.log10 if self.logarithmic else float
        share = (scale(value) - scale(self.low)) / ((scale(self.high) - scale(self.low)) or 1)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        if not self.logarithmic:
            steps = 4 if f"{self.high:e}"[0] == "2" else 5
            return [self.high * i / steps for i in range(steps + 1)]
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if self.high <= 200 * self.low else (1,)
        found = [step * 10.0 ** exponent for exponent in exponents for step in steps]
        return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]


def above(value):
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value * 0.999)


def below(value):
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (5, 2, 1) if power * step <= value * 1.001)


def reach(values):
    return quantile(values, 0.1), quantile(values, 0.9)


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#ddd", width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"/>')


def dot(x, y, colour):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>'


def apart(places, gap):
    """The same places in the same order, at least that far from each other."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for _ in range(100):
        for a, b in zip(order, order[1:]):
            lack = gap - (moved[b] - moved[a])
            if lack > 0:
                moved[a] -= lack / 2
                moved[b] += lack / 2
    return moved


def lines_panel(panel):
    """Over x, both axes drawn; a name stands at the end of its line."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    xs = sorted({x for points in panel.lines.values() for x in points})
    ends = [end for points in panel.lines.values() for v in points.values() for end in reach(v)]
    y_axis = Axis(ends, bottom, TOP)
    low, high = math.log10(xs[0]), math.log10(xs[-1])

    def at_x(x):
        return LEFT + 14 + (math.log10(x) - low) / ((high - low) or 1) * (right - LEFT - 28)

    parts = []
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        parts += [line(LEFT, y, right, y), text(LEFT - 6, y + 4, f"{tick:g}", "end")]
    for x in xs:
        parts.append(text(at_x(x), bottom + 17, f"{x:g}", "middle"))
    parts.append(text((LEFT + right) / 2, bottom + 35, panel.x_name, "middle"))
    names = []
    for number, (name, points) in enumerate(panel.lines.items()):
        colour, shift = panel.colour(name), 3 * (number - (len(panel.lines) - 1) / 2)
        dash = f' stroke-dasharray="{DASHES[number % 3]}"' if panel.of and number else ""
        middles = [(at_x(x) + shift, y_axis.at(median(v))) for x, v in sorted(points.items())]
        trace = " ".join(f"{x:.1f},{y:.1f}" for x, y in middles)
        parts.append(f'<polyline points="{trace}" fill="none" stroke="{colour}" '
                     f'stroke-width="1.6"{dash}/>')
        for (x, y), (_, values) in zip(middles, sorted(points.items())):
            begin, end = map(y_axis.at, reach(values))
            parts += [line(x, begin, x, end, colour, 1.6), dot(x, y, colour)]
        x, y = middles[-1]
        label = NAMES.get(name, name), "start", f' fill="{colour}"'
        if max(points) == xs[-1]:
            names.append((y, label))
        else:
            parts.append(text(x + 8, y + 4, *label))
    places = apart([y for y, _ in names], 15)
    return parts + [text(right + 6, y + 4, *label) for y, (_, label) in zip(places, names)]


def dots_panel(panel):
    """A row for each name, values along x."""
    left, right, bottom = LEFT + 84, WIDTH - 58, HEIGHT - BOTTOM
    rows = [(name, next(iter(points.values()))) for name, points in panel.lines.items()]
    rows.sort(key=lambda row: median(row[1]))
    axis = Axis([end for _, values in rows for end in reach(values)], left, right)
    step = (bottom - TOP) / len(rows)
    parts = []
    for tick in axis.ticks():
        x = axis.at(tick)
        parts += [line(x, TOP, x, bottom), text(x, bottom + 17, f"{tick:g}", "middle")]
    parts.append(text((left + right) / 2, bottom + 35, panel.unit, "middle"))
    for number, (name, values) in enumerate(rows):
        y, colour = TOP + step * (number + 0.5), panel.colour(name)
        begin, end = map(axis.at, reach(values))
        parts += [text(left - 10, y + 4, NAMES.get(name, name), "end", f' fill="{colour}"'),
                  line(begin, y, end, y, colour, 2.4), dot(axis.at(median(values)), y, colour),
                  text(WIDTH - 8, y + 4, f"{brief(median(values))} {panel.unit}", "end")]
    return parts


def drawn(panel, x, y):
    unit = f", {panel.unit}" if panel.unit and panel.x_name else ""
    title = text(8, 20, panel.title + unit, more=' font-weight="bold"')
    parts = lines_panel(panel) if panel.x_name else dots_panel(panel)
    return f'<g transform="translate({x},{y})">\n' + "\n".join([title, *parts]) + "\n</g>"


def svg(panels, head, how):
    """`head`: what was measured on what and when; `how`: what dots and bars are."""
    columns = min(2, len(panels))
    width, height = columns * WIDTH, HEAD + HEIGHT * math.ceil(len(panels) / columns)
    bodies = [drawn(panel, i % columns * WIDTH, HEAD + i // columns * HEIGHT)
              for i, panel in enumerate(panels)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" role="img" '
            f'aria-label="{html.escape(head)}">\n<rect width="100%" height="100%" fill="white"/>\n'
            + text(8, 22, head, more=' font-size="14"') + "\n"
            + text(8, 42, how, more=' fill="#666"') + "\n" + "\n".join(bodies) + "\n</svg>\n")
