// The picture: draws what can be seen of a Drawing, moves and zooms it. What boxes say and which colour they have its
// user tells by `look`:
//   node(index)    { title, rows, hue or -1, heat from 0 to 1, sign and kind of change, faded }
//   level(number)  { title, rows, stripes [hue, share], heat, sign, faded }
//   port(value)    { title, rows }                                  label(value)   the text on an edge
//   isLinked(index), linkedIn(level number)   are nodes to be lit, how many are in a closed box
//   chosen()       { level, box } or null                           isNear(value)  is an edge to be lit

const SMALLEST = 0.02, LARGEST = 3;
const TEXT_FROM = 0.42, LABELS_FROM = 0.62; // scales
const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';
const MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';

class Picture {
  constructor(canvas, drawing, look, events) {
    Object.assign(this, { canvas, drawing, look, events, scale: 1, x: 0, y: 0, waiting: false, moving: null, pointers: new Map() });
    this.context = canvas.getContext("2d");
    this.texts = new Map(); // shortened ones, by font, width and text
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
  }

  // ---- the view ----

  resize() {
    const ratio = window.devicePixelRatio || 1, first = !this.width;
    const middle = { x: this.x + this.width / 2 / this.scale, y: this.y + this.height / 2 / this.scale };
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    if (!this.width) return;
    if (first && !this.moving) this.events.ready();
    else [this.x, this.y] = [middle.x - this.width / 2 / this.scale, middle.y - this.height / 2 / this.scale];
    this.draw();
  }
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((now) => {
      this.waiting = false;
      this.step(now);
      this.draw();
    });
  }
  // The beginning of the graph, as large as can be read.
  start() {
    const { width } = this.drawing.extent();
    this.scale = Math.min(1, Math.max(0.55, this.width / width));
    const seen = this.width / this.scale;
    this.x = width <= seen ? (width - seen) / 2 : Math.min(width - seen, Math.max(0, this.drawing.firstMiddle() - seen / 2));
    this.y = 0;
  }
  fit() {
    const { width, height } = this.drawing.extent();
    const scale = Math.max(SMALLEST, Math.min(1.25, this.width / width, this.height / height));
    this.moveTo({ scale, x: width / 2 - this.width / 2 / scale, y: height / 2 - this.height / 2 / scale });
  }
  zoom(factor, clientX = this.width / 2, clientY = this.height / 2) {
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.x += clientX / this.scale - clientX / scale;
    this.y += clientY / this.scale - clientY / scale;
    this.scale = scale;
    this.moving = null;
    this.later();
  }
  moveTo(target) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) {
      Object.assign(this, target);
    } else {
      this.moving = { from: { scale: this.scale, x: this.x, y: this.y }, target, start: performance.now() };
    }
    this.later();
  }
  step(now) {
    if (!this.moving) return;
    const { from, target, start } = this.moving;
    const part = Math.min(1, Math.max(0, (now - start) / 220)), eased = part * (2 - part);
    for (const key of ["scale", "x", "y"]) this[key] = from[key] + (target[key] - from[key]) * eased;
    if (part < 1) this.later();
    else this.moving = null;
  }
  // Brings a box into view, and large enough to read when it was not.
  show(place) {
    if (!place || place.box < 0 || !this.width) return;
    const box = this.drawing.boxPlace(place), margin = 40;
    const scale = this.scale < 0.5 ? 0.9 : this.scale;
    const [x, y] = this.moving ? [this.moving.target.x, this.moving.target.y] : [this.x, this.y];
    const left = (box.x - x) * scale, top = (box.y - y) * scale;
    const inside = left >= margin && top >= margin && left + box.width * scale <= this.width - margin && top + Math.min(box.height * scale, 200) <= this.height - margin;
    if (inside && scale === this.scale) return this.later();
    this.moveTo({ scale, x: box.x + box.width / 2 - this.width / 2 / scale, y: box.y + Math.min(box.height / 2, 120) - this.height / 2 / scale });
  }
  // Keeps a box where it is on the screen while others move.
  keeping(place, change) {
    const before = this.drawing.boxPlace(place);
    const x = before.x + before.width / 2 - this.x, y = before.y - this.y;
    change();
    const after = this.drawing.boxPlace(place);
    this.x = after.x + after.width / 2 - x;
    this.y = after.y - y;
    this.moving = null;
    this.later();
  }

  // ---- drawing ----

  readColours() {
    const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
    this.colours = { theme: document.documentElement.dataset.theme, hues: new Map() };
    for (const name of ["page", "bar", "ink", "faint", "rule", "accent", "heat", "edge", "nest", "new", "gone", "changed"]) this.colours[name] = read(`--${name}`);
    for (const name of ["tint-saturation", "tint", "linked", "mark", "word"]) this.colours[name] = read(`--${name}`);
  }
  hue(hue) {
    const { colours } = this;
    if (!colours.hues.has(hue)) {
      const saturation = colours["tint-saturation"];
      colours.hues.set(hue, {
        fill: `hsl(${hue} ${saturation} ${colours.tint})`, linked: `hsl(${hue} ${saturation} ${colours.linked})`,
        mark: `hsl(${hue} 60% ${colours.mark})`, word: `hsl(${hue} 60% ${colours.word})`,
      });
    }
    return colours.hues.get(hue);
  }

  draw() {
    if (!this.width) return;
    if (this.colours?.theme !== document.documentElement.dataset.theme) this.readColours();
    const { context, scale } = this, ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.colours.page;
    context.fillRect(0, 0, this.width, this.height);
    context.setTransform(ratio * scale, 0, 0, ratio * scale, -this.x * scale * ratio, -this.y * scale * ratio);
    this.seen = { left: this.x, top: this.y, right: this.x + this.width / scale, bottom: this.y + this.height / scale };
    this.counts = { boxes: 0, edges: 0 };
    this.chosen = this.look.chosen();
    this.drawLevel(this.drawing.geometry(0), PADDING, PADDING, 0);
  }

  isSeen(left, top, right, bottom) {
    const { seen } = this;
    return right >= seen.left && left <= seen.right && bottom >= seen.top && top <= seen.bottom;
  }

  drawLevel(geometry, left, top, depth) {
    if (!this.isSeen(left - PADDING, top - HEADING, left + geometry.width + PADDING, top + geometry.height + PADDING)) return;
    this.drawEdges(geometry, left, top);
    geometry.boxes.forEach((box, number) => {
      const x = left + box.x, y = top + box.y;
      if (box.what < 0 || box.what % 4 === BOX_BORDER || !this.isSeen(x, y, x + box.width, y + box.height)) return;
      this.counts.boxes++;
      if (box.inner) this.drawOpen(box, x, y, depth);
      else this.drawBox(box, x, y);
      if (this.chosen && this.chosen.level === geometry.number && this.chosen.box === number) this.outline(x, y, box.width, box.height);
    });
    if (this.scale >= LABELS_FROM) this.drawLabels(geometry, left, top);
  }

  shape(x, y, width, height, radius) {
    const { context } = this;
    context.beginPath();
    if (this.scale < 0.3) context.rect(x, y, width, height);
    else context.roundRect(x, y, width, height, radius);
  }
  outline(x, y, width, height) {
    const { context } = this, out = 3 / this.scale;
    this.shape(x - out, y - out, width + 2 * out, height + 2 * out, 8);
    context.lineWidth = 2 / Math.min(1, this.scale);
    context.strokeStyle = this.colours.accent;
    context.stroke();
  }

  fitted(text, font, width) {
    const key = `${font}/${Math.round(width)}/${text}`;
    let short = this.texts.get(key);
    if (short !== undefined) return short;
    const { context } = this;
    context.font = font;
    short = text;
    if (context.measureText(text).width > width) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
        else high = middle - 1;
      }
      short = low ? `${text.slice(0, low)}…` : "";
    }
    if (this.texts.size > 20000) this.texts.clear();
    this.texts.set(key, short);
    return short;
  }
  write(text, font, colour, x, y, width, align) {
    const { context } = this, short = this.fitted(text, font, width);
    context.font = font;
    context.fillStyle = colour;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillText(short, x, y);
  }

  drawOpen(box, x, y, depth) {
    const { context, colours } = this;
    const number = box.inner.number, { title, rows } = this.look.level(number);
    this.shape(x, y, box.width, box.height, 8);
    context.fillStyle = depth % 2 ? colours.page : colours.nest;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = colours.rule;
    context.stroke();
    this.drawLevel(box.inner, x + (box.width - box.inner.width) / 2, y + HEADING, depth + 1);
    if (this.scale < TEXT_FROM / 2) return;
    const font = `600 12px ${FONT}`, small = `11px ${FONT}`, room = box.width - 20;
    const label = this.fitted(`▾ ${title}`, font, room), wide = this.wide(label, font);
    const said = room - wide > 60 ? this.fitted(rows[0] || "", small, room - wide - 10) : "";
    context.fillStyle = depth % 2 ? colours.page : colours.nest; // over edges that enter here
    context.fillRect(x + 6, y + 5, wide + (said ? this.wide(said, small) + 14 : 0) + 8, 18);
    this.write(label, font, colours.ink, x + 10, y + 14, box.width, "left");
    this.write(said, small, colours.faint, x + wide + 20, y + 14.5, box.width, "left");
  }
  wide(text, font) {
    this.context.font = font;
    return this.context.measureText(text).width;
  }

  drawBox(box, x, y) {
    const kind = box.what % 4, id = box.what >> 2;
    if (kind === BOX_NODE) this.drawNode(id, box, x, y);
    else if (kind === BOX_LEVEL) this.drawClosed(id, box, x, y);
    else this.drawPort(id, box, x, y);
  }

  drawNode(index, box, x, y) {
    const { context, colours } = this, { title, rows, hue, heat, sign, kind, faded } = this.look.node(index);
    const shades = hue < 0 ? null : this.hue(hue), linked = this.look.isLinked(index);
    context.globalAlpha = faded && !linked ? 0.45 : 1;
    this.shape(x, y, box.width, box.height, 5);
    context.fillStyle = shades ? (linked ? shades.linked : shades.fill) : colours.bar;
    context.fill();
    if (heat > 0) {
      context.globalAlpha = 0.75;
      context.fillStyle = colours.heat;
      context.fillRect(x + 1, y + box.height - 4, Math.max(2, (box.width - 2) * heat), 3);
      context.globalAlpha = 1;
    }
    context.lineWidth = linked || sign ? 2.5 : 1;
    context.strokeStyle = sign ? colours[kind] : shades ? shades.mark : colours.faint;
    context.stroke();
    if (sign) this.badge(sign, x, y, colours[kind]);
    if (this.scale < TEXT_FROM) {
      context.globalAlpha = 1;
      return;
    }
    const inside = this.drawing.inside.has(index), room = box.width - 12;
    const tall = rows.length && box.height >= TALL_NODE_HEIGHT;
    this.write(`${inside ? "▸ " : ""}${title}`, `600 12px ${FONT}`, shades ? shades.word : colours.ink, x + box.width / 2, y + (tall ? 13.5 : box.height / 2 + 0.5), room, "center");
    if (tall) this.write(rows[0], `10px ${MONO}`, colours.faint, x + box.width / 2, y + 28, room, "center");
    context.globalAlpha = 1;
  }

  drawClosed(number, box, x, y) {
    const { context, colours } = this, { title, rows, stripes, heat, sign, faded } = this.look.level(number);
    const linked = this.look.linkedIn(number);
    context.globalAlpha = faded && !linked ? 0.5 : 1;
    this.shape(x, y, box.width, box.height, 7);
    context.fillStyle = colours.bar;
    context.fill();
    context.save();
    context.clip();
    let at = x;
    for (const [hue, share] of stripes) {
      context.fillStyle = hue < 0 ? colours.rule : this.hue(hue).mark;
      context.fillRect(at, y + box.height - 4, box.width * share + 0.5, 4);
      at += box.width * share;
    }
    if (heat > 0) {
      context.globalAlpha = 0.28;
      context.fillStyle = colours.heat;
      context.fillRect(x, y, box.width * heat, box.height - 4);
    }
    context.restore();
    this.shape(x, y, box.width, box.height, 7);
    context.lineWidth = linked ? 2.5 : 1.25;
    context.strokeStyle = linked ? this.linkedColour() : colours.faint;
    context.stroke();
    if (sign) this.badge(sign, x, y, colours.changed);
    context.globalAlpha = faded && !linked ? 0.5 : 1;
    if (this.scale >= TEXT_FROM) this.writeClosed(title, rows, box, x, y);
    context.globalAlpha = 1;
    if (linked) this.badge(String(linked), x + box.width, y, this.linkedColour());
  }
  writeClosed(title, rows, box, x, y) {
    const { colours } = this;
    this.write(`▸ ${title}`, `600 12px ${FONT}`, colours.ink, x + box.width / 2, y + 13.5, box.width - 12, "center");
    this.write(rows[0] || "", `11px ${FONT}`, colours.faint, x + box.width / 2, y + 29, box.width - 12, "center");
  }
  linkedColour() {
    const hue = this.look.linkedHue();
    return hue < 0 ? this.colours.accent : this.hue(hue).mark;
  }
  badge(text, x, y, colour) {
    if (this.scale < TEXT_FROM / 2) return;
    const { context, colours } = this, font = `600 10px ${FONT}`;
    context.font = font;
    const width = Math.max(16, context.measureText(text).width + 8);
    this.shape(x - width / 2, y - 8, width, 16, 8);
    context.fillStyle = colour;
    context.fill();
    this.write(text, font, colours.page, x, y + 0.5, 80, "center");
  }

  drawPort(value, box, x, y) {
    const { context, colours } = this, { title, rows } = this.look.port(value);
    this.shape(x, y, box.width, box.height, box.height / 2);
    context.fillStyle = colours.page;
    context.fill();
    context.lineWidth = 1.25;
    context.strokeStyle = colours.faint;
    context.stroke();
    if (this.scale < TEXT_FROM) return;
    this.write(title, `600 12px ${FONT}`, colours.ink, x + box.width / 2, y + 12.5, box.width - 18, "center");
    this.write(rows[0] || "", `10px ${MONO}`, colours.faint, x + box.width / 2, y + 27, box.width - 18, "center");
  }

  drawEdges(geometry, left, top) {
    const { context, colours, scale } = this;
    context.lineWidth = Math.max(1, 0.6 / scale);
    context.strokeStyle = colours.edge;
    const near = [];
    context.beginPath();
    for (const edge of geometry.edges) {
      if (!this.isSeen(left + edge.left, top + edge.top, left + edge.right, top + edge.bottom)) continue;
      this.counts.edges++;
      if (this.look.isNear(edge.value)) near.push(edge);
      else if (!edge.isCopy) this.trace(edge.path, left, top);
    }
    context.stroke();
    context.lineWidth = 2 / Math.min(1, scale);
    context.strokeStyle = colours.accent;
    context.beginPath();
    for (const edge of near) this.trace(edge.path, left, top);
    context.stroke();
    if (scale >= TEXT_FROM) this.drawHeads(geometry, left, top);
  }
  trace(path, left, top) {
    const { context } = this;
    context.moveTo(left + path[0], top + path[1]);
    for (let i = 2; i < path.length; i += 2) {
      const x0 = left + path[i - 2], y0 = top + path[i - 1], x1 = left + path[i], y1 = top + path[i + 1];
      if (x0 === x1) context.lineTo(x1, y1);
      else context.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
    }
  }
  drawHeads(geometry, left, top) {
    const { context, colours } = this;
    for (const edge of geometry.edges) {
      const to = geometry.boxes[edge.to], { path } = edge;
      if (to.what % 4 === BOX_BORDER || to.inner) continue;
      const x = left + path[path.length - 2], y = top + path[path.length - 1];
      if (!this.isSeen(x - 5, y - 8, x + 5, y)) continue;
      context.fillStyle = this.look.isNear(edge.value) ? colours.accent : colours.edge;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x - 3.5, y - 6.5);
      context.lineTo(x + 3.5, y - 6.5);
      context.fill();
    }
  }

  // Types of values, where they leave a box and there is room.
  drawLabels(geometry, left, top) {
    const { context, colours } = this, font = `10px ${MONO}`;
    const taken = new Map(), written = new Set();
    context.font = font;
    for (const edge of geometry.edges) {
      const from = geometry.boxes[edge.from], key = `${edge.value}/${edge.from}`;
      if (from.what % 4 >= BOX_PORT || written.has(key)) continue;
      written.add(key);
      const x = left + edge.path[0] + 5, y = top + edge.path[1] + 10;
      const text = this.look.label(edge.value);
      if (!text || !this.isSeen(x, y - 6, x + 120, y + 6)) continue;
      const width = context.measureText(text).width, row = taken.get(from.rank) || [];
      if (row.some(([start, end]) => x < end + 6 && x + width > start - 6)) continue;
      row.push([x, x + width]);
      taken.set(from.rank, row);
      context.font = font;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.lineWidth = 3;
      context.strokeStyle = colours.page;
      context.strokeText(text, x, y);
      context.fillStyle = this.look.isNear(edge.value) ? colours.accent : colours.faint;
      context.fillText(text, x, y);
    }
  }

  // ---- pointers ----

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
  found(event) {
    const { x, y } = this.position(event);
    return this.drawing.at(this.x + x / this.scale, this.y + y / this.scale);
  }
  listen() {
    const { canvas, pointers } = this;
    let travelled = 0;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = this.position(event), unit = event.deltaMode === 1 ? 20 : 1;
      if (event.shiftKey) this.pan(-(event.deltaX || event.deltaY) * unit, 0);
      else this.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, this.position(event));
      if (pointers.size === 1) travelled = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId), now = this.position(event);
      if (!before) {
        const found = this.found(event);
        canvas.style.cursor = found.box >= 0 ? "pointer" : "grab";
        this.events.point(found);
        return;
      }
      travelled += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const distance = (from) => Math.hypot(from.x - other.x, from.y - other.y);
        this.zoom(distance(now) / Math.max(1, distance(before)), (now.x + other.x) / 2, (now.y + other.y) / 2);
      } else if (travelled > 4) {
        canvas.style.cursor = "grabbing";
        this.pan(now.x - before.x, now.y - before.y);
      }
      pointers.set(event.pointerId, now);
    });
    const up = (event) => {
      const was = pointers.delete(event.pointerId);
      if (was && event.type === "pointerup" && !pointers.size && travelled <= 4) this.events.click(this.found(event));
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => this.events.point({ level: 0, box: -1 }));
  }
  pan(x, y) {
    this.x -= x / this.scale;
    this.y -= y / this.scale;
    this.moving = null;
    this.later();
  }
}
