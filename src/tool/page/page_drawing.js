// Puts the drawings of levels together. C laid every level out with all its boxes closed (page_levels.c says how that is
// written); an open box is larger, so those beside and below it move: further apart, never past each other, and what
// stood in one column still does.

const BOX_NODE = 0, BOX_LEVEL = 1, BOX_PORT = 2, BOX_BORDER = 3, BOX_POINT = -1;
const NODE_HEIGHT = 26, TALL_NODE_HEIGHT = 40, LEVEL_HEIGHT = 44, PORT_HEIGHT = 38;
const RANK_GAP = 34, BORDER_GAP = 14, PADDING = 16, HEADING = 30;
const OPEN_AT_FIRST = 70; // boxes

class Drawing {
  // isTall(node): does it have a second row of text?
  constructor(levels, nodeCount, isTall) {
    this.isTall = isTall;
    this.levels = levels.map(([kind, name, what, parent, node, count, boxes, edges], number) => ({
      kind, name, what, parent, node, count, boxes, edges, number, size: boxes.length / 4, geometry: null,
    }));
    this.home = new Int32Array(nodeCount).fill(-1); // the level a node is a box of
    this.slot = new Int32Array(nodeCount);
    this.inside = new Map(); // the level that a node opens to
    this.open = new Set();
    this.levels.forEach((level) => {
      for (let box = 0; box < level.size; box++) {
        const what = level.boxes[box * 4];
        if (what < 0 || what % 4 !== BOX_NODE) continue;
        this.home[what >> 2] = level.number;
        this.slot[what >> 2] = box;
      }
      const holder = level.parent < 0 ? null : this.levels[level.parent];
      if (level.node >= 0 && !(holder.kind === "node" && holder.node === level.node)) this.inside.set(level.node, level.number);
    });
    this.openFirst();
  }

  children(level) {
    const found = [];
    for (let box = 0; box < level.size; box++) {
      const inside = this.insideOf(level, box);
      if (inside >= 0) found.push(inside);
    }
    return found;
  }
  insideOf(level, box) {
    const what = level.boxes[box * 4];
    if (what < 0) return -1;
    if (what % 4 === BOX_LEVEL) return what >> 2;
    return what % 4 === BOX_NODE ? this.inside.get(what >> 2) ?? -1 : -1;
  }

  // Calls visit with every node in a level and in what is inside it.
  eachNode(number, visit) {
    const level = this.levels[number];
    for (let box = 0; box < level.size; box++) {
      const what = level.boxes[box * 4], inside = this.insideOf(level, box);
      if (what >= 0 && what % 4 === BOX_NODE) visit(what >> 2);
      if (inside >= 0) this.eachNode(inside, visit);
    }
  }

  // The main graph, then whole depths of levels for as long as that is a picture one can take in.
  openFirst() {
    let row = [this.levels[0]];
    if (row[0].kind === "model") {
      this.open.add(0);
      row = this.levels.filter((level) => level.kind === "graph");
    }
    for (let shown = 0, depth = 0; row.length; depth++) {
      for (const level of row) shown += level.size;
      if (depth && shown > OPEN_AT_FIRST) break;
      row.forEach((level) => this.open.add(level.number));
      row = row.flatMap((level) => this.children(level)).map((number) => this.levels[number]);
    }
  }

  isOpen(number) { return this.open.has(number); }
  setOpen(number, open) {
    if (this.open.has(number) === open || number === 0) return;
    if (open) this.open.add(number);
    else this.open.delete(number);
    for (let at = number; at >= 0; at = this.levels[at].parent) this.levels[at].geometry = null;
  }
  setAll(open) {
    for (const level of this.levels) {
      level.geometry = null;
      if (open) this.open.add(level.number);
      else this.open.delete(level.number);
    }
    if (!open) this.openFirst();
  }
  // Opens all that is around a node.
  reveal(node) {
    for (let at = this.home[node]; at >= 0; at = this.levels[at].parent) this.setOpen(at, true);
  }
  revealLevel(number) {
    for (let at = this.levels[number].parent; at >= 0; at = this.levels[at].parent) this.setOpen(at, true);
  }
  // What is seen of a node: itself, or the outermost closed box around it.
  seenAs(node) {
    let level = this.home[node], box = this.slot[node];
    if (level < 0) return null;
    let seen = { level, box };
    for (; level >= 0; level = this.levels[level].parent) {
      if (!this.open.has(level)) seen = this.place(level);
    }
    return seen;
  }
  // The box that a level is, in the level around it.
  place(number) {
    const level = this.levels[number], parent = this.levels[level.parent];
    if (!parent) return { level: 0, box: -1 };
    if (level.node >= 0 && this.home[level.node] === level.parent) return { level: level.parent, box: this.slot[level.node] };
    for (let box = 0; box < parent.size; box++) {
      if (parent.boxes[box * 4] === number * 4 + BOX_LEVEL) return { level: level.parent, box };
    }
    return { level: level.parent, box: -1 };
  }

  // ---- one level ----

  sizeOf(level, box) {
    const what = level.boxes[box * 4], width = level.boxes[box * 4 + 3];
    if (what < 0) return { width: 0, height: 0, inner: null };
    const inside = this.insideOf(level, box);
    if (inside >= 0 && this.open.has(inside)) {
      const inner = this.geometry(inside);
      return { width: Math.max(width, inner.width + 2 * PADDING), height: inner.height + HEADING + PADDING, inner };
    }
    const kind = what % 4;
    const height = kind === BOX_LEVEL ? LEVEL_HEIGHT : kind === BOX_PORT ? PORT_HEIGHT : kind === BOX_BORDER ? 0
      : this.isTall(what >> 2) ? TALL_NODE_HEIGHT : NODE_HEIGHT;
    return { width, height, inner: null };
  }

  geometry(number) {
    const level = this.levels[number];
    level.geometry ||= this.combine(level);
    return level.geometry;
  }

  combine(level) {
    const boxes = [];
    const ranks = [];
    for (let at = 0; at < level.size; at++) {
      const { width, height, inner } = this.sizeOf(level, at);
      const what = level.boxes[at * 4], rank = level.boxes[at * 4 + 1];
      boxes.push({ what, rank, middle: level.boxes[at * 4 + 2], closed: level.boxes[at * 4 + 3], width, height, inner, x: 0, y: 0 });
      (ranks[rank] ||= []).push(at);
    }
    for (const rank of ranks) rank.sort((a, b) => boxes[a].middle - boxes[b].middle || a - b);
    this.moveApart(boxes, ranks);
    const rows = this.stack(boxes, ranks);
    const width = boxes.reduce((most, box) => Math.max(most, box.x + box.width), 0);
    const height = rows.length ? rows[rows.length - 1].bottom : 0;
    const geometry = { number: level.number, boxes, ranks, rows, width, height, edges: [], ports: new Map() };
    boxes.forEach((box) => {
      if (box.what >= 0 && box.what % 4 === BOX_BORDER) geometry.ports.set(`${box.what >> 2}/${box.rank ? "out" : "in"}`, box);
    });
    geometry.edges = this.edges(level, geometry);
    return geometry;
  }

  // Columns from left to right, each as far from the one before as it was, and further where a box needs the room.
  moveApart(boxes, ranks) {
    const before = new Int32Array(boxes.length).fill(-1);
    for (const rank of ranks) for (let i = 1; i < rank.length; i++) before[rank[i]] = rank[i - 1];
    const order = boxes.map((_, at) => at).sort((a, b) => boxes[a].middle - boxes[b].middle || a - b);
    const placed = new Float64Array(boxes.length);
    let column = 0, moved = 0;
    for (let i = 0; i < order.length; ) {
      const middle = boxes[order[i]].middle;
      let end = i, at = i ? moved + middle - column : middle;
      for (; end < order.length && boxes[order[end]].middle === middle; end++) {
        const box = boxes[order[end]], left = boxes[before[order[end]]];
        if (left) at = Math.max(at, placed[before[order[end]]] + middle - left.middle + (box.width - box.closed + left.width - left.closed) / 2);
      }
      for (; i < end; i++) placed[order[i]] = at;
      column = middle;
      moved = at;
    }
    let leftmost = Infinity;
    boxes.forEach((box, at) => (leftmost = Math.min(leftmost, placed[at] - box.width / 2)));
    boxes.forEach((box, at) => (box.x = placed[at] - box.width / 2 - leftmost));
  }

  stack(boxes, ranks) {
    const rows = [];
    let top = 0;
    ranks.forEach((rank, number) => {
      const height = rank.reduce((most, at) => Math.max(most, boxes[at].height), 0);
      if (number) top += height && rows[number - 1].bottom > rows[number - 1].top ? RANK_GAP : BORDER_GAP;
      rows.push({ top, bottom: top + height });
      for (const at of rank) boxes[at].y = top + (height - boxes[at].height) / 2;
      top += height;
    });
    return rows;
  }

  // ---- edges ----

  edges(level, geometry) {
    const { boxes } = geometry;
    const edges = [];
    for (let at = 0; at < level.edges.length; at += 4) {
      const [value, from, to, point] = level.edges.slice(at, at + 4);
      const between = point < 0 ? 0 : boxes[to].rank - boxes[from].rank - 1;
      const through = [];
      for (let step = 0; step < between; step++) through.push(boxes[point + step]);
      edges.push({ value, from, to, through });
    }
    const starts = this.attach(edges, boxes, "from", "out"), ends = this.attach(edges, boxes, "to", "in");
    const known = new Set();
    edges.forEach((edge, at) => {
      this.route(edge, geometry, starts[at], ends[at]);
      const key = `${edge.from}/${edge.to}/${starts[at]}/${ends[at]}`;
      edge.isCopy = known.has(key); // of a bundle: drawn once
      known.add(key);
    });
    return edges;
  }

  // Where edges meet a box: at the ports of an open one, else side by side in the order of where they come from. Edges of
  // one value leave at one place, and all of a closed level, to which those from one box come at one place.
  attach(edges, boxes, end, side) {
    const at = new Float64Array(edges.length);
    const byBox = new Map();
    edges.forEach((edge, index) => {
      if (!byBox.has(edge[end])) byBox.set(edge[end], []);
      byBox.get(edge[end]).push(index);
    });
    const away = ({ through, from, to }) => {
      const next = through.length ? through[side === "out" ? 0 : through.length - 1] : boxes[side === "out" ? to : from];
      return next.x + next.width / 2;
    };
    for (const [number, own] of byBox) {
      const box = boxes[number];
      const places = new Map();
      own.sort((a, b) => away(edges[a]) - away(edges[b]) || a - b);
      const isClosed = box.what >= 0 && box.what % 4 === BOX_LEVEL && !box.inner;
      const keyOf = (index) => (side === "out" ? (isClosed ? -1 : edges[index].value) : isClosed ? edges[index].from : index);
      own.forEach((index) => {
        if (!places.has(keyOf(index))) places.set(keyOf(index), places.size);
      });
      const step = places.size > 1 ? Math.min(16, (Math.max(box.width, 24) - 16) / (places.size - 1)) : 0;
      for (const index of own) {
        const port = box.inner && box.inner.ports.get(`${edges[index].value}/${side}`);
        at[index] = port ? box.x + (box.width - box.inner.width) / 2 + port.x + port.width / 2
          : box.x + box.width / 2 + (places.get(keyOf(index)) - (places.size - 1) / 2) * step;
      }
    }
    return at;
  }

  // Straight down through ranks, bending only between them: x and y of each bend, in pairs.
  route(edge, { boxes, rows }, start, end) {
    const from = boxes[edge.from], to = boxes[edge.to];
    const isBorder = (box) => box.what >= 0 && box.what % 4 === BOX_BORDER;
    const path = [start, isBorder(from) ? -HEADING : from.y + from.height];
    if (from.rank < to.rank) path.push(start, rows[from.rank].bottom);
    for (const point of edge.through) path.push(point.x, rows[point.rank].top, point.x, rows[point.rank].bottom);
    if (from.rank < to.rank) path.push(end, rows[to.rank].top);
    path.push(end, isBorder(to) ? rows[to.rank].bottom + PADDING : to.y);
    edge.path = path;
    edge.top = Math.min(path[1], path[path.length - 1]);
    edge.bottom = Math.max(path[1], path[path.length - 1]);
    edge.left = edge.right = path[0];
    for (let i = 2; i < path.length; i += 2) {
      edge.left = Math.min(edge.left, path[i]);
      edge.right = Math.max(edge.right, path[i]);
    }
  }

  // ---- the whole ----

  // Where a level's drawing begins, in the whole.
  offset(number) {
    const { level, box } = this.place(number);
    if (box < 0) return { x: PADDING, y: PADDING };
    const around = this.offset(level), found = this.geometry(level).boxes[box];
    const inner = this.geometry(number);
    return { x: around.x + found.x + (found.width - inner.width) / 2, y: around.y + found.y + HEADING };
  }
  boxPlace({ level, box }) {
    const { x, y } = this.offset(level), found = this.geometry(level).boxes[box];
    return { x: x + found.x, y: y + found.y, width: found.width, height: found.height };
  }
  // The middle of what the graph begins with.
  firstMiddle() {
    const { boxes, ranks } = this.geometry(0), first = (ranks[0] || []).map((box) => boxes[box].x + boxes[box].width / 2);
    return PADDING + first.reduce((sum, x) => sum + x, 0) / (first.length || 1);
  }
  extent() {
    const { width, height } = this.geometry(0);
    return { width: width + 2 * PADDING, height: height + 2 * PADDING };
  }

  // The innermost box at a place, with the level it is in; box -1: inside that level, between its boxes.
  at(x, y) {
    let level = 0, left = PADDING, top = PADDING;
    for (;;) {
      const { boxes } = this.geometry(level);
      const box = boxes.findIndex((one) => one.what >= 0 && one.what % 4 !== BOX_BORDER &&
        x >= left + one.x && x < left + one.x + one.width && y >= top + one.y && y < top + one.y + one.height);
      const found = boxes[box];
      if (!found || !found.inner) return { level, box };
      if (y < top + found.y + HEADING) return { level, box, heading: true };
      left += found.x + (found.width - found.inner.width) / 2;
      top += found.y + HEADING;
      level = found.inner.number;
    }
  }
}
