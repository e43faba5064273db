"""Pictures as inline SVG: a curve, memory over time, a plan as a graph of kernels and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from lumjax.report.units import seconds, size

if TYPE_CHECKING:
    from lumjax.insight import Part
    from lumjax.timeline import Timeline

_WIDTH, _HEIGHT = 640, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 24
_BOX_WIDTH, _BOX_HEIGHT, _ACROSS, _DOWN = 170, 44, 24, 40


def picture(width: int, height: int, title: str, content: Sequence[str]) -> str:
    """An SVG element; `title` is what screen readers say."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>{escape(title)}</title>{''.join(content)}</svg>"
    )


def _text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(content)}</text>'


def _frame(top: str, right: str) -> list[str]:
    """Axes with the greatest values."""
    low, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    return [
        f'<path class="axis" d="M{_LEFT} {_TOP} V{low} H{end}"/>',
        _text(_LEFT - 6, _TOP + 10, top, "end"),
        _text(_LEFT - 6, low, "0", "end"),
        _text(end, _HEIGHT - 6, right, "end"),
    ]


def curve(values: Sequence[int], title: str, unit: str) -> str:
    """Numbers over steps, each marked."""
    most, last = max(1, *values), max(1, len(values) - 1)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    points = [
        (_LEFT + wide * k / last, _HEIGHT - _BOTTOM - high * v / most) for k, v in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{v} {escape(unit)} after step {k}'
        "</title></circle>"
        for k, ((x, y), v) in enumerate(zip(points, values, strict=True))
    ]
    content = [*_frame(str(most), f"step {last}"), f'<polyline class="line" points="{path}"/>']
    return picture(_WIDTH, _HEIGHT, title, [*content, *marks])


def memory(line: Timeline) -> str:
    """Bytes alive at each step, as bars that touch."""
    sizes = line.sizes()
    most = max(1, *sizes) if sizes else 1
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    each = wide / max(1, len(sizes))
    bars: list[str] = []
    for k, value in enumerate(sizes):
        tall = high * value / most
        peak = ' class="peak"' if value == most else ' class="bar"'
        where = "; ".join(f"{size(n)} {w or 'no line'}" for w, n in line.by_line(k)[:4])
        bars.append(
            f'<rect{peak} x="{_LEFT + each * k:.2f}" y="{_HEIGHT - _BOTTOM - tall:.1f}" '
            f'width="{max(each, 0.5):.2f}" height="{tall:.1f}"><title>'
            f"{escape(f'step {k + 1}, {line.steps[k]}: {size(value)}: {where}')}</title></rect>"
        )
    frame = _frame(size(most), f"step {len(sizes)}")
    return picture(_WIDTH, _HEIGHT, "memory held at each step", [*bars, *frame])


def plan(parts: Sequence[Part], title: str) -> str:
    """Kernels as boxes, below those whose buffers they read; lines are buffers."""
    rows = _layers(parts)
    places: dict[int, tuple[float, float]] = {}
    for y, row in enumerate(rows):
        for x, k in enumerate(row):
            places[k] = (
                12 + x * (_BOX_WIDTH + _ACROSS),
                34 + y * (_BOX_HEIGHT + _DOWN),
            )
    writer = {name: k for k, p in enumerate(parts) for name in p.writes}
    lines: list[str] = []
    for k, p in enumerate(parts):
        x, y = places[k]
        given = [n for n in p.reads if n not in writer]
        if given:
            lines.append(_text(x + 4, y - 6, " ".join(given)[:12], "start", "buffer"))
        lines += [_edge(places[writer[n]], (x, y), n) for n in p.reads if n in writer]
    boxes = [_box(*places[k], p) for k, p in enumerate(parts)]
    across = max((len(r) for r in rows), default=1)
    width = 48 + across * (_BOX_WIDTH + _ACROSS)
    height = 40 + len(rows) * (_BOX_HEIGHT + _DOWN)
    return picture(width, height, title, [*lines, *boxes])


def _edge(source: tuple[float, float], reader: tuple[float, float], name: str) -> str:
    """From the box that writes a buffer to one that reads it; around what lies between."""
    (u, v), (x, y) = source, reader
    if y - v <= _BOX_HEIGHT + _DOWN:
        u, v, x = u + _BOX_WIDTH / 2, v + _BOX_HEIGHT, x + _BOX_WIDTH / 2
        bend = f"C{u:.1f} {(v + y) / 2:.1f} {x:.1f} {(v + y) / 2:.1f}"
        place = (u + x) / 2 + 5, (v + y) / 2 + 4
    else:
        u, v, x, y = u + _BOX_WIDTH, v + _BOX_HEIGHT / 2, x + _BOX_WIDTH, y + _BOX_HEIGHT / 2
        out = max(u, x) + _ACROSS
        bend = f"C{out:.1f} {v:.1f} {out:.1f} {y:.1f}"
        place = out - 6, (v + y) / 2 + 4
    return (
        f'<path class="edge" d="M{u:.1f} {v:.1f} {bend} {x:.1f} {y:.1f}">'
        f"<title>{escape(name)}</title></path>" + _text(*place, name, "start", "buffer")
    )


def _box(x: float, y: float, p: Part) -> str:
    kind = "box rejected" if p.rejected else "box"
    shapes = ", ".join(p.shapes)
    label = shapes if len(shapes) < 26 else shapes[:24] + ".."
    return (
        f'<g><title>{escape(shapes)}: {escape(p.roles)}</title><rect class="{kind}" x="{x:.1f}" '
        f'y="{y:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"/>'
        + _text(x + 8, y + 17, f"{p.program}  {seconds(p.predicted)}", kind="strong")
        + _text(x + 8, y + 35, label)
        + "</g>"
    )


def _layers(parts: Sequence[Part]) -> list[list[int]]:
    """The kernels by how many others they wait for in a row."""
    writer = {name: k for k, p in enumerate(parts) for name in p.writes}
    depth: dict[int, int] = {}
    for k, p in enumerate(parts):  # each is written before it is read
        below = [depth[writer[n]] for n in p.reads if n in writer and writer[n] in depth]
        depth[k] = 1 + max(below, default=-1)
    rows: list[list[int]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for k, d in depth.items():
        rows[d].append(k)
    return rows
