// The graph as a picture: what its boxes say, and how it follows what is chosen.

const isConstant = (value) => value >= 0 && (data.values[value][2] || (producer.has(value) && text(data.nodes[producer.get(value)][OPERATOR]) === "Constant"));
const constantsOf = (index) => data.nodes[index][INPUTS].filter(isConstant);
const drawing = new Drawing(data.levels, data.nodes.length, (index) => constantsOf(index).length > 0);

// ---- what is inside a level, counted when it is first asked for ----

const summaries = [];
function summaryOf(number) {
  if (summaries[number]) return summaries[number];
  const summary = (summaries[number] = { nodes: 0, time: 0, bytes: 0, hues: new Map(), operators: new Map() });
  const level = drawing.levels[number];
  const addNode = (index) => {
    const hue = hueOf(index), operator = data.nodes[index][OPERATOR];
    summary.nodes++;
    summary.time += nodeTime[index];
    summary.bytes += nodeBytes[index];
    summary.hues.set(hue, (summary.hues.get(hue) || 0) + 1);
    summary.operators.set(operator, (summary.operators.get(operator) || 0) + 1);
  };
  for (let box = 0; box < level.size; box++) {
    const what = level.boxes[box * 4], inside = drawing.insideOf(level, box);
    if (what >= 0 && what % 4 === BOX_NODE) addNode(what >> 2);
    if (inside < 0) continue;
    const inner = summaryOf(inside);
    summary.nodes += inner.nodes;
    summary.time += inner.time;
    summary.bytes += inner.bytes;
    for (const key of ["hues", "operators"]) for (const [of, count] of inner[key]) summary[key].set(of, (summary[key].get(of) || 0) + count);
  }
  return summary;
}

const STRIPES = 12;
function stripesOf(number) {
  const { hues, nodes } = summaryOf(number);
  return [...hues].sort((a, b) => b[1] - a[1]).slice(0, STRIPES).map(([hue, count]) => [hue, count / nodes]);
}

function levelTitle(number) {
  const { kind, name, node } = drawing.levels[number];
  if (kind === "node") return text(data.nodes[node][OPERATOR]);
  if (kind === "body") return `${text(data.nodes[node][OPERATOR])} ${text(name)}`;
  if (kind === "function") return `function ${text(name)}`;
  if (comparing && kind === "graph") return modelName(number > 1 ? 1 : 0);
  return kind === "part" ? `part ${text(name)}` : text(name);
}
// Names from the outermost module inwards.
function levelPath(number) {
  const names = [];
  if (drawing.levels[number].kind === "graph") return levelTitle(number);
  for (let at = number; at > 0 && !["graph", "model"].includes(drawing.levels[at].kind); at = drawing.levels[at].parent) names.unshift(levelTitle(at));
  return names.join(" / ");
}

function setColour(colour) {
  state.colour = colour;
  summaries.length = 0;
  levelLooks.clear();
  nodeList.reset(nodeList.count, nodeList.active);
  drawGraph();
}

// ---- what the picture asks ----

const looks = new Map();
function nodeLook(index) {
  if (!looks.has(index)) {
    looks.set(index, { title: text(data.nodes[index][OPERATOR]), rows: constantsOf(index).length ? [constantsOf(index).map(typeText).join(", ")] : [],
      sign: changes.has(index) ? SIGNS[changes.get(index).kind] : "", kind: changes.get(index)?.kind });
  }
  const look = looks.get(index), { heat } = state;
  look.hue = hueOf(index);
  look.faded = state.passing ? !state.passing.nodes.has(index) : comparing && !changes.has(index);
  look.heat = heat === "time" ? nodeTime[index] / (most.nodeTime || 1) : heat === "memory" ? nodeBytes[index] / (most.nodeBytes || 1) : 0;
  return look;
}

const levelLooks = new Map();
function levelLook(number) {
  const { what } = drawing.levels[number];
  if (!levelLooks.has(number)) {
    const rows = [[text(what), plural(summaryOf(number).nodes, "node")].filter(Boolean).join(" · ")];
    const sign = comparing ? changesOfLevel(number) : "";
    levelLooks.set(number, { title: levelTitle(number), rows, stripes: stripesOf(number), sign });
  }
  const look = levelLooks.get(number), whole = summaryOf(0), own = summaryOf(number), { heat } = state;
  look.faded = state.passing ? !state.passing.levels.has(number) : comparing && !look.sign;
  look.heat = heat === "time" ? own.time / (whole.time || 1) : heat === "memory" ? own.bytes / (whole.bytes || 1) : 0;
  return look;
}

let lit = { line: null, node: -1, nodes: new Set(), levels: new Map(), values: new Set() };
// Which nodes the pointed or chosen line became, and which closed boxes they are in.
function light() {
  const line = linkedLine(), node = state.node;
  const nodes = new Set(), levels = new Map(), values = new Set();
  const add = (index) => {
    nodes.add(index);
    const seen = drawing.seenAs(index);
    if (!seen) return;
    const inside = drawing.insideOf(drawing.levels[seen.level], seen.box);
    if (inside >= 0 && !drawing.isOpen(inside)) levels.set(inside, (levels.get(inside) || 0) + 1);
  };
  if (comparing && node >= 0 && data.matches[node] >= 0) add(data.matches[node]);
  if (line && line.nodes.length) line.nodes.forEach(add);
  else if (line) data.nodes.forEach((one, index) => nodePasses(one, line) && add(index));
  const near = state.pointedNode >= 0 ? state.pointedNode : node;
  if (near >= 0) for (const value of [...data.nodes[near][INPUTS], ...data.nodes[near][OUTPUTS]]) values.add(value);
  lit = { line, node, nodes, levels, values };
}

function chosenBox() {
  if (state.node >= 0) return drawing.seenAs(state.node);
  return state.level > 0 ? drawing.place(state.level) : null;
}

const picture = new Picture(byId("picture"), drawing, {
  node: nodeLook,
  level: levelLook,
  port: (value) => ({ title: valueText(value), rows: [typeText(value)] }),
  label: typeText,
  isLinked: (index) => lit.nodes.has(index),
  linkedIn: (number) => lit.levels.get(number) || 0,
  linkedHue: () => (lit.line && lit.line.nodes.length ? lit.line.hue : -1),
  isNear: (value) => lit.values.has(value),
  chosen: chosenBox,
}, { ready: startPicture, point: pointAtBox, click: clickBox });

byId("picture").picture = picture; // for whoever looks into the page from its console

// When it is first seen, which on a phone may be after something was chosen.
function startPicture() {
  picture.start();
  const place = chosenBox();
  if (place) picture.show(place);
}

function drawGraph() {
  light();
  picture.later();
}

// ---- pointing, choosing, opening ----

const boxOf = ({ level, box }) => (box < 0 ? -1 : drawing.levels[level].boxes[box * 4]);

function pointAtBox(found) {
  const what = boxOf(found), isNode = what >= 0 && what % 4 === BOX_NODE;
  byId("picture").title = what < 0 ? "" : boxTitle(what);
  point(isNode ? nodeLine[what >> 2] : null, isNode ? what >> 2 : -1);
}

function boxTitle(what) {
  const id = what >> 2, kind = what % 4;
  if (kind === BOX_LEVEL) return `${levelPath(id)}: ${levelLook(id).rows[0]}`;
  if (kind === BOX_PORT) return `${valueText(id)} ${typeText(id)}`;
  const node = data.nodes[id], line = nodeLine[id];
  const outputs = node[OUTPUTS].filter((value) => value >= 0).map((value) => `${valueText(value)} ${typeText(value)}`).join(", ");
  return `${text(node[OPERATOR])} ${text(node[NAME])} → ${outputs}${line ? `\n${namesOf(line)}:${line.line}` : ""}`;
}

function toggleLevel(number, place) {
  picture.keeping(place, () => drawing.setOpen(number, !drawing.isOpen(number)));
  drawGraph();
}

function clickBox(found) {
  const what = boxOf(found);
  if (what < 0) return;
  const inside = drawing.insideOf(drawing.levels[found.level], found.box);
  const isNode = what % 4 === BOX_NODE, wasChosen = isNode && state.node === what >> 2;
  if (isNode) goToNode(what >> 2, "graph");
  else if (what % 4 === BOX_LEVEL) chooseLevel(what >> 2);
  else choosePort(what >> 2);
  if (inside >= 0 && (!isNode || wasChosen || found.heading)) toggleLevel(inside, found);
}

// An input or output: what makes or reads it.
function choosePort(value) {
  const next = producer.get(value) ?? (readers.get(value) || [])[0];
  if (next !== undefined) goToNode(next, "graph");
}

function chooseLevel(number) {
  state.level = number;
  chooseNode(-1, false);
}

function showInGraph(node, open) {
  if (node < 0 || drawing.home[node] < 0) return;
  if (open) drawing.reveal(node);
  picture.show(drawing.seenAs(node));
}

// ---- keys ----

// From the chosen box along edges, or to its neighbour.
function moveInGraph(key) {
  const from = chosenBox() || { level: drawing.levels[0].kind === "model" ? 1 : 0, box: -1 };
  const { boxes, ranks, edges } = drawing.geometry(from.level);
  const real = (box) => box >= 0 && boxes[box].what >= 0 && boxes[box].what % 4 < BOX_PORT;
  let next = -1;
  if (from.box < 0) {
    next = boxes.findIndex((_, box) => real(box));
  } else if (key === "ArrowDown" || key === "ArrowUp") {
    const [near, far] = key === "ArrowDown" ? ["from", "to"] : ["to", "from"];
    next = edges.filter((edge) => edge[near] === from.box && real(edge[far])).map((edge) => edge[far])[0] ?? -1;
    if (next < 0) return leaveLevel(from.level, key);
  } else {
    const rank = ranks[boxes[from.box].rank].filter(real), at = rank.indexOf(from.box);
    next = rank[at + (key === "ArrowRight" ? 1 : -1)] ?? -1;
  }
  if (next >= 0) chooseBox({ level: from.level, box: next });
}

function leaveLevel(level, key) {
  if (drawing.levels[level].parent < 0 || ["graph", "function"].includes(drawing.levels[level].kind)) return;
  const around = drawing.place(level);
  chooseBox(around);
  if (key === "ArrowDown") moveInGraph(key);
}

function chooseBox(place) {
  const what = boxOf(place);
  if (what % 4 === BOX_NODE) goToNode(what >> 2, "graph");
  else chooseLevel(what >> 2);
  picture.show(place);
}

function onGraphKey(key) {
  const place = chosenBox();
  if (key.startsWith("Arrow")) moveInGraph(key);
  else if (key === "+" || key === "=") picture.zoom(1.25);
  else if (key === "-") picture.zoom(0.8);
  else if (key === "0") picture.fit();
  else if (key === "Enter" || key === " ") {
    if (!place) return true;
    const inside = drawing.insideOf(drawing.levels[place.level], place.box);
    if (inside >= 0 && (key === " " || state.node < 0)) openWithKey(inside, place);
    else if (nodeLine[state.node]) {
      showLine(nodeLine[state.node]);
      byId("lines").focus();
    }
  } else return false;
  return true;
}

// Into what opens: its first box is chosen next.
function openWithKey(inside, place) {
  toggleLevel(inside, place);
  if (!drawing.isOpen(inside)) return;
  const first = drawing.geometry(inside).boxes.findIndex((box) => box.what >= 0 && box.what % 4 < BOX_PORT);
  if (first >= 0) chooseBox({ level: inside, box: first });
}
