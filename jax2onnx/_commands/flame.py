"""Where time was spent: a flame graph (self-contained SVG) and a trace for Chrome and Perfetto."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

WIDTH, ROW, MARGIN, LETTER = 1200, 18, 10, 6.6
_STYLE = """\
text { font: 11px ui-monospace, monospace; fill: #222; pointer-events: none }
.bare { fill: #222 } rect { stroke: #fff; stroke-width: .5 } g:hover > rect { stroke: #000; stroke-width: 1 }
.back { fill: #fff }
@media (prefers-color-scheme: dark) { .back { fill: #1c1c1e } .bare { fill: #ddd } rect { stroke: #1c1c1e } }"""


@dataclass
class Flame:
    """Time by stack of names, with callees above their callers."""

    name: str
    time: float = 0.0
    inside: dict[str, Flame] = field(default_factory=dict)

    def add(self, stack: Iterable[str], time: float) -> None:
        flame = self
        flame.time += time
        for name in stack:
            flame = flame.inside.setdefault(name, Flame(name))
            flame.time += time

    @property
    def height(self) -> int:
        return 1 + max((flame.height for flame in self.inside.values()), default=0)


def flame_svg(root: Flame, title: str) -> str:
    """Stacks grow upwards; the width of a box is its share of the time."""
    rows = root.height
    height = rows * ROW + 2 * MARGIN + 24
    boxes: list[str] = []
    scale = (WIDTH - 2 * MARGIN) / root.time if root.time else 0.0

    def draw(flame: Flame, left: float, row: int) -> None:
        width = flame.time * scale
        if width < 0.3:
            return
        top = height - MARGIN - (row + 1) * ROW
        share = 100 * flame.time / root.time
        room = int((width - 6) / LETTER)
        label = flame.name if len(flame.name) <= room else flame.name[: room - 1] + "…" if room > 2 else ""
        boxes.append(
            f'<g><title>{escape(flame.name)}: {flame.time:.1f} µs, {share:.1f} %</title><rect x="{left:.2f}" y="{top}" '
            f'width="{width:.2f}" height="{ROW - 1}" fill="{_color(flame.name)}"/>'
            f'<text x="{left + 3:.2f}" y="{top + 13}">{escape(label)}</text></g>'
        )
        for inner in sorted(flame.inside.values(), key=lambda item: -item.time):
            draw(inner, left, row + 1)
            left += inner.time * scale

    draw(root, MARGIN, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f'<style>{_STYLE}</style>\n<rect class="back" width="100%" height="100%"/>\n'
        f'<text class="bare" x="{MARGIN}" y="20">{escape(title)}</text>\n' + "\n".join(boxes) + "\n</svg>\n"
    )


def _color(name: str) -> str:
    """A warm colour that is the same for a name in every picture."""
    number = zlib.crc32(name.encode())
    return f"hsl({number % 50 + 8},{70 + number // 64 % 20}%,{62 + number // 4096 % 14}%)"


@dataclass
class Slice:
    """A span of time with the names it belongs to, outermost first."""

    stack: Sequence[str]
    start: float  # microseconds
    time: float
    details: dict[str, Any]


def trace_events(slices: Iterable[Slice], title: str) -> dict[str, Any]:
    """Chrome's trace format. Neighbours with the same callers share one slice for each caller."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": title}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "ONNX Runtime, by source line"}},
    ]
    open_events: list[dict[str, Any]] = []
    for piece in sorted(slices, key=lambda piece: (piece.start, -piece.time)):
        shared = 0
        callers = piece.stack[:-1]
        while shared < min(len(callers), len(open_events)) and open_events[shared]["name"] == callers[shared]:
            shared += 1
        del open_events[shared:]
        end = piece.start + piece.time
        for event in open_events:
            event["dur"] = max(event["dur"], round(end - event["ts"], 3))
        for name in callers[shared:]:
            event = _event(name, piece.start, piece.time)
            events.append(event)
            open_events.append(event)
        events.append(_event(piece.stack[-1], piece.start, piece.time) | {"args": piece.details})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(name: str, start: float, time: float) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 1, "cat": "source", "name": name, "ts": round(start, 3), "dur": round(time, 3)}
