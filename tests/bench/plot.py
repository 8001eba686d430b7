"""An SVG of lines over a logarithmic x axis."""

import math

COLOURS = ["#1b6ca8", "#c0392b", "#27864e", "#8e44ad", "#b9770e", "#34495e"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 560, 320, 60, 34, 42, 130


def nice_top(value):
    step = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(step * k for k in (1, 2, 5, 10) if step * k >= value)


def panel(title, unit, x_name, lines, y_offset):
    """`lines`: name -> [(x, y)...]."""
    xs = sorted({x for line in lines.values() for x, _ in line})
    top = nice_top(max(y for line in lines.values() for _, y in line))
    low, high = math.log10(xs[0]), math.log10(xs[-1])
    def at_x(x):
        return LEFT + (math.log10(x) - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)
    def at_y(y):
        return y_offset + HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)
    parts = [f'<text x="{LEFT}" y="{y_offset + 20}" font-weight="bold">{title}</text>']
    for i in range(5):
        y = top * i / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" '
                     f'y2="{at_y(y):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{at_y(top) - 8:.1f}" text-anchor="end">{unit}</text>')
    for x in xs:
        parts.append(f'<text x="{at_x(x):.1f}" y="{at_y(0) + 16:.1f}" '
                     f'text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{at_y(0) + 32:.1f}" '
                 f'text-anchor="end">{x_name}</text>')
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                     'stroke-width="2"/>')
        parts += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>'
                  for x, y in line]
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y_offset + TOP + 14 + 18 * place}" '
                     f'fill="{colour}">{name}</text>')
    return "\n".join(parts)


def svg(panels):
    """`panels`: (title, unit, name of x, lines)."""
    height = HEIGHT * len(panels)
    drawn = [panel(*each, y_offset=HEIGHT * i) for i, each in enumerate(panels)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
            'fill="white"/>\n' + "\n".join(drawn) + "\n</svg>\n")
