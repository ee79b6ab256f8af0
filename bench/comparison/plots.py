"""Plots for the report, as SVG that reads well in light and dark: lines over axes, and bars with their spread.

Pure: figures in, text out. Colours are classes, so that one file follows the reader's colour scheme; series differ by dashes too.
"""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Stroke in light and dark, and dashes; later series begin again.
SERIES = [
    ("#1f5fbf", "#6ea8ff", "none"), ("#c2570c", "#ff9e57", "none"), ("#1a7f4b", "#55c98a", "7 3"),
    ("#8a3fb5", "#c79bff", "2 2"), ("#a8174e", "#ff7fa8", "9 3 2 3"), ("#0b7a8c", "#4fc8dc", "4 2"),
    ("#7a5c00", "#d9b44a", "12 4"), ("#555f6b", "#a7b3c2", "1 3"),
]  # fmt: skip
# How figures spread along an axis: evenly from zero; by powers of ten; by nines (50, 90, 99, 99.9 %).
LINEAR, LOG, QUANTILE = "linear", "log", "quantile"
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
QUANTILE_MAX = 0.9999999
TICKS = 5
# Points of one line above which they are not marked one by one.
MARKED_POINTS_MAX = 60

PANEL_WIDTH, PANEL_HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 66, 50
LEGEND_ROW, LEGEND_WIDTH = 20, 186
BAR_COLUMNS, BAR_WIDTH, BAR_ROW, BAR_NAME, BAR_VALUE, BAR_TITLE = 2, 520, 18, 170, 62, 40


@dataclass
class Series:
    """One line: its name, the number of its colour, its points."""

    name: str
    colour: int
    points: list


@dataclass
class Panel:
    """One pair of axes with its lines. An axis is a label and how figures spread along it."""

    title: str
    x: tuple
    y: tuple
    series: list


@dataclass
class Bar:
    """One bar: the median, and the smallest and largest of all runs."""

    name: str
    colour: int
    value: float
    low: float
    high: float


class Range:
    """An axis with the range its figures need, rounded outwards."""

    def __init__(self, scale, figures):
        shown = [value for figure in figures if (value := along(scale, figure)) is not None]
        self.scale, self.empty = scale, not shown
        if shown:
            low, high = min(shown), max(shown)
            if scale == LINEAR:
                step = nice_step(high / TICKS)
                low, high = min(low, 0.0), math.ceil(high / step) * step
            elif scale == LOG:
                low, high = decade_step(low, up=False), decade_step(high, up=True)
            else:
                low, high = 0.0, max(high, 1.0)
            self.low, self.high = low, high if high > low else low + 1

    def share(self, figure):
        """Where a figure stands, 0 to 1; None if it cannot be shown."""
        value = along(self.scale, figure)
        return None if value is None else (value - self.low) / (self.high - self.low)

    def ticks(self):
        """Share of the axis and text of each tick."""
        if self.scale == QUANTILE:
            shares = ((self.share(quantile), quantile) for quantile in QUANTILES)
            return [(share, f"{trimmed(quantile * 100, 4)} %") for share, quantile in shares if share <= 1.001]
        if self.scale == LINEAR:
            step = nice_step((self.high - self.low) / TICKS)
            first, last = math.ceil(self.low / step), math.floor(self.high / step + 1e-6)
            figures = [at * step for at in range(first, last + 1)]
        else:
            steps = (1, 2, 5) if self.high - self.low <= 2.5 else (1,)
            decades = range(math.floor(self.low), math.floor(self.high) + 1)
            all_of = [step * 10.0**decade for decade in decades for step in steps]
            figures = [figure for figure in all_of if self.low - 1e-9 <= math.log10(figure) <= self.high + 1e-9]
        return [(self.share(figure), short(figure)) for figure in figures]


def along(scale, figure):
    """The figure on the axis' own measure, or None."""
    if not math.isfinite(figure) or (scale == LOG and figure <= 0):
        return None
    if scale == LINEAR:
        return figure
    return math.log10(figure) if scale == LOG else -math.log10(1 - min(max(figure, 0.0), QUANTILE_MAX))


def nice_step(step):
    """1, 2 or 5 times a power of ten, not below."""
    if step <= 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(step))
    return decade * next((factor for factor in (1, 2, 5) if factor * decade >= step * (1 - 1e-9)), 10)


def decade_step(value, up):
    """The next 1, 2 or 5 times a power of ten on the logarithmic measure."""
    decade, steps = math.floor(value), [math.log10(factor) for factor in (1, 2, 5, 10)]
    if up:
        return decade + next(step for step in steps if decade + step >= value - 1e-9)
    return decade + next(step for step in reversed(steps[:3]) if decade + step <= value + 1e-9)


def trimmed(value, digits):
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(figure):
    """Three digits and a letter: 0.62, 64, 1.2k, 1.57M."""
    scales = ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k"))
    divisor, letter = next(((by, letter) for least, by, letter in scales if abs(figure) >= least), (1, ""))
    value = figure / divisor
    size = abs(value)
    digits = 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 4
    return trimmed(value, digits) + letter


def text_of(value):
    """Escaped; control characters cannot stand in XML at all."""
    return escape("".join(letter if letter.isprintable() else " " for letter in value), {'"': "&quot;"})


class Svg:
    """A page under construction; lengths are in pixels from the top left."""

    def __init__(self, width, height, title):
        self.width, self.height, self.heading, self.body = trimmed(width, 2), trimmed(height, 2), text_of(title), []

    def text(self, kind, anchor, x, y, value, turned=False):
        place = f'transform="translate({trimmed(x, 2)} {trimmed(y, 2)}) rotate(-90)"' if turned else f'x="{trimmed(x, 2)}" y="{trimmed(y, 2)}"'
        self.body.append(f'<text class="{kind}" text-anchor="{anchor}" {place}>{text_of(value)}</text>')

    def shape(self, tag, kind, told=None, **places):
        words = " ".join(f'{name}="{value if isinstance(value, str) else trimmed(value, 2)}"' for name, value in places.items())
        inner = f"><title>{text_of(told)}</title></{tag}>" if told else "/>"
        self.body.append(f'<{tag} class="{kind}" {words}{inner}')

    def line(self, kind, x1, y1, x2, y2):
        self.shape("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def finish(self):
        size = f'width="{self.width}" height="{self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{self.heading}">'
        page = f'<rect class="page" {size}/>'
        return "\n".join([head, f"<title>{self.heading}</title>", f"<style>\n{style()}</style>", page, *self.body, "</svg>", ""])


def style():
    light = (
        "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1c2530}\n"
        ".title{font-size:15px;font-weight:600}.label{font-size:12px}.tick{font-size:11px;fill:#4a5563}\n"
        ".page{fill:#ffffff}.grid{stroke:#e3e7ec;stroke-width:1}.axis{stroke:#7c8794;stroke-width:1}\n"
        "polyline,line.s{fill:none;stroke-width:2;stroke-linejoin:round}line.whisker{stroke:#1c2530;stroke-width:1}\n"
    )
    dark = (
        "text{fill:#e8edf3}.tick{fill:#aab5c2}.page{fill:#12181f}.grid{stroke:#29323d}.axis{stroke:#6d7a89}\n"
        "line.whisker{stroke:#e8edf3}\n"
    )
    for at, (of_light, of_dark, dashes) in enumerate(SERIES):
        light += f"polyline.s{at},line.s{at}{{stroke:{of_light};stroke-dasharray:{dashes}}}circle.s{at},rect.s{at}{{fill:{of_light}}}\n"
        dark += f"polyline.s{at},line.s{at}{{stroke:{of_dark}}}circle.s{at},rect.s{at}{{fill:{of_dark}}}\n"
    return f"{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n"


def colour_class(colour):
    return f"s{colour % len(SERIES)}"


def lines(title, panels):
    """Panels side by side with one legend below."""
    names = {series.name: series.colour for panel in panels for series in panel.series}
    width = PANEL_WIDTH * len(panels)
    per_row = max(1, min(len(names), int((width - 40) // LEGEND_WIDTH)))
    rows = math.ceil(len(names) / per_row)
    svg = Svg(width, TOP + PANEL_HEIGHT + BOTTOM + LEGEND_ROW * rows + 10, title)
    svg.text("title", "start", 16, 24, title)
    for at, panel in enumerate(panels):
        draw_panel(svg, panel, PANEL_WIDTH * at)
    for at, (name, colour) in enumerate(names.items()):
        x, y = 24 + LEGEND_WIDTH * (at % per_row), TOP + PANEL_HEIGHT + BOTTOM + LEGEND_ROW * (at // per_row) + 4
        svg.line(f"s {colour_class(colour)}", x, y, x + 26, y)
        svg.text("label", "start", x + 32, y + 4, name)
    return svg.finish()


def draw_panel(svg, panel, left):
    x0, x1, y0, y1 = left + LEFT, left + PANEL_WIDTH - RIGHT, TOP + PANEL_HEIGHT, TOP
    svg.text("label", "start", x0, y1 - 12, panel.title)
    svg.text("label", "middle", (x0 + x1) / 2, y0 + 36, panel.x[0])
    svg.text("label", "middle", left + 18, (y0 + y1) / 2, panel.y[0], turned=True)
    points = [point for series in panel.series for point in series.points]
    across, up = Range(panel.x[1], [x for x, _ in points]), Range(panel.y[1], [y for _, y in points])
    if across.empty or up.empty:
        svg.text("label", "middle", (x0 + x1) / 2, (y0 + y1) / 2, "no figures")
        return
    for share, told in across.ticks():
        x = x0 + share * (x1 - x0)
        svg.line("grid", x, y0, x, y1)
        svg.text("tick", "middle", x, y0 + 16, told)
    for share, told in up.ticks():
        y = y0 + share * (y1 - y0)
        svg.line("grid", x0, y, x1, y)
        svg.text("tick", "end", x0 - 6, y + 4, told)
    svg.line("axis", x0, y0, x1, y0)
    svg.line("axis", x0, y0, x0, y1)
    for series in panel.series:
        kind, placed = colour_class(series.colour), []
        for x, y in series.points:
            at = across.share(x), up.share(y)
            if None not in at:
                placed.append((x0 + at[0] * (x1 - x0), y0 + at[1] * (y1 - y0), f"{series.name}: {short(y)} at {short(x)}"))
        svg.shape("polyline", kind, points=" ".join(f"{trimmed(x, 2)},{trimmed(y, 2)}" for x, y, _ in placed))
        for x, y, told in placed if len(placed) <= MARKED_POINTS_MAX else []:
            svg.shape("circle", kind, told, cx=x, cy=y, r="2.8")


def bars(title, unit, groups):
    """Groups (title, bars) of horizontal bars, each with an axis of its own from zero, two in a row; whiskers show the spread."""
    rows = [groups[at : at + BAR_COLUMNS] for at in range(0, len(groups), BAR_COLUMNS)]
    heights = [BAR_TITLE + BAR_ROW * max(len(shown) for _, shown in row) for row in rows]
    svg = Svg(BAR_WIDTH * BAR_COLUMNS, 60 + sum(heights), title)
    svg.text("title", "start", 16, 24, title)
    svg.text("tick", "start", 16, 42, f"{unit}; each group has an axis of its own from 0")
    top = 48
    for row, height in zip(rows, heights):
        for column, (name, shown) in enumerate(row):
            draw_bars(svg, name, shown, BAR_WIDTH * column, top)
        top += height
    return svg.finish()


def draw_bars(svg, title, shown, left, top):
    x0, room = left + BAR_NAME, BAR_WIDTH - BAR_NAME - BAR_VALUE
    svg.text("label", "start", left + 16, top + 22, title)
    largest = max(bar.high for bar in shown) or 1
    for at, bar in enumerate(shown):
        y = top + BAR_TITLE - 8 + BAR_ROW * at
        value, low, high = (figure / largest * room for figure in (bar.value, bar.low, bar.high))
        told = f"{bar.name}: {short(bar.value)} ({short(bar.low)} to {short(bar.high)})"
        svg.text("tick", "end", x0 - 6, y + 10, bar.name)
        svg.shape("rect", colour_class(bar.colour), told, x=x0, y=y, width=max(value, 0.5), height=BAR_ROW - 6)
        svg.line("whisker", x0 + low, y + 6, x0 + high, y + 6)
        svg.text("tick", "start", x0 + high + 6, y + 10, short(bar.value))
    svg.line("axis", x0, top + BAR_TITLE - 10, x0, top + BAR_TITLE - 10 + BAR_ROW * len(shown))
