// The list of nodes: graphs, bodies and functions that fold.
function nodeRow(index, depth) {
  const node = data.nodes[index];
  const line = nodeLine[index];
  const row = make("div", "row");
  if (hueOf(index) >= 0) {
    row.classList.add("hued");
    row.style.setProperty("--hue", hueOf(index));
  }
  const own = bodies.get(index);
  const fold = make("span", "fold", own ? (own.some((body) => state.folded.has(body)) ? "▸" : "▾") : "");
  fold.style.marginLeft = `${depth * 16}px`;
  if (own) row.setAttribute("aria-expanded", !own.some((body) => state.folded.has(body)));
  const values = make("span", "values", `(${node[INPUTS].map(valueText).join(", ")}) → `);
  node[OUTPUTS].forEach((output, at) => values.append(at ? ", " : "", `${valueText(output)} `, make("span", "type", typeText(output))));
  if (state.heat === "time") row.append(heatElement(nodeTime[index], most.nodeTime));
  if (state.heat === "memory") row.append(heatElement(nodeBytes[index], most.nodeBytes));
  if (comparing) row.append(signElement(index));
  row.append(fold, make("span", "op", text(node[OPERATOR])), values);
  if (line) row.append(make("span", "place", `${text(data.places[node[PLACE]][2])}:${line.line}`));
  row.title = `${text(node[NAME])}: ${text(node[OPERATOR])}`;
  row.setAttribute("aria-level", depth + 1);
  return row;
}

function graphRow(index, depth) {
  const [kind, name, , inputs, outputs] = data.graphs[index];
  const row = make("div", "row heading");
  const fold = make("span", "fold", state.folded.has(index) ? "▸" : "▾");
  fold.style.marginLeft = `${depth * 16}px`;
  const list = (values) => values.map((value) => `${valueText(value)} ${typeText(value)}`).join(", ");
  if (state.heat === "time" || state.heat === "memory") row.append(make("span", "heat"));
  row.append(fold, make("span", "values", `${kind} `, make("b", "", comparing && kind === "graph" ? modelName(index ? 1 : 0) : text(name)), ` (${list(inputs)}) → (${list(outputs)})  ${plural(members[index].length, "node")}`));
  row.setAttribute("aria-expanded", !state.folded.has(index));
  row.setAttribute("aria-level", depth + 1);
  return row;
}

const nodeList = new List(byId("nodes"), "treeitem", (at) => {
  const row = state.rows[at];
  if (row.found) return foundRow(row.found);
  if (row.title) return make("div", "row heading", row.title);
  return row.node >= 0 ? nodeRow(row.node, row.depth) : graphRow(row.graph, row.depth);
}, chooseRow);

function chooseRow(at) {
  const { node, found } = state.rows[at];
  if (found) showRow(found.shown, found.at);
  if (node >= 0 || !found) chooseNode(node, true);
}

// A line of the source that the search found.
function foundRow({ shown, at }) {
  const { number, code } = shown.rows[at], where = `${shortName(shown.title)}:${number}`;
  const row = make("div", "row in-source", "", make("span", "fold"), make("span", "values", code.trim()), make("span", "place", where));
  row.setAttribute("aria-level", 1);
  return row;
}

nodeList.decorate = (at, row) => {
  const index = state.rows[at].node, line = linkedLine();
  if (index < 0) return;
  row.classList.toggle("linked", !!line && isFrom(index, line));
  row.classList.toggle("through", !!line && !line.nodes.length && nodePasses(data.nodes[index], line));
};

// Lines by all names that they may be asked for.
let answers = null;
function linesAt(word) {
  if (!answers) {
    answers = new Map();
    for (const line of new Set(lines.values())) {
      const names = [...line.names, ...(line.file < 0 ? [] : data.files[line.file][3])].map(text);
      for (const name of new Set(names)) {
        const key = `${name}:${line.line}`.toLowerCase();
        answers.set(key, [...(answers.get(key) || []), line]);
      }
    }
  }
  return answers.get(word);
}

let haystacks = null;
function haystack(index) {
  haystacks ||= new Array(data.nodes.length);
  if (haystacks[index] === undefined) {
    const node = data.nodes[index], line = nodeLine[index];
    const values = [...node[INPUTS], ...node[OUTPUTS]].map((value) => `${valueText(value)} ${typeText(value)}`);
    const place = line ? `${namesOf(line)}:${line.line} ${line.file < 0 ? "" : `${shortName(text(data.files[line.file][0]))}:${line.line}`}` : "";
    haystacks[index] = [text(node[NAME]), text(node[OPERATOR]), text(node[MODULE]), text(node[FUSED]), ...values, place].join("\n").toLowerCase();
  }
  return haystacks[index];
}

function currentFilter() {
  const { words } = state;
  const operator = byId("operator").value, where = byId("where").value;
  const [kind, number] = [where[0], Number(where.slice(1))];
  if (!words.length && !operator && !where && !state.only && !state.changed) return null;
  return (index) => {
    const node = data.nodes[index], line = nodeLine[index];
    if (state.changed && !changes.has(index)) return false;
    if (operator && node[OPERATOR] !== Number(operator)) return false;
    if (kind === "f" && !(line && line.file === number)) return false;
    if (kind === "n" && !(line && data.places[node[PLACE]][2] === number)) return false;
    const chosen = state.line;
    if (state.only && chosen && !isOfLine(index, chosen)) return false;
    return words.every((word) => linesAt(word)?.some((one) => isOfLine(index, one)) ?? haystack(index).includes(word));
  };
}

function addGraph(rows, index, depth) {
  rows.push({ node: -1, graph: index, depth });
  if (state.folded.has(index)) return;
  for (const member of members[index]) {
    rows.push({ node: member, graph: index, depth: depth + 1 });
    for (const body of bodies.get(member) || []) if (!state.folded.has(body)) addGraph(rows, body, depth + 2);
  }
}

// What the picture leaves in full colour: these nodes, and the boxes that have some of them inside.
function passingLevels(nodes) {
  const levels = new Set();
  for (const node of nodes) for (let at = drawing.home[node]; at >= 0 && !levels.has(at); at = drawing.levels[at].parent) levels.add(at);
  return { nodes: new Set(nodes), levels };
}

function listNodes() {
  state.words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = currentFilter();
  state.rows = [];
  if (passes) {
    data.nodes.forEach((node, index) => passes(index) && state.rows.push({ node: index, graph: node[GRAPH], depth: 0 }));
  } else {
    data.graphs.forEach(([kind], index) => kind !== "body" && addGraph(state.rows, index, 0));
  }
  state.passing = passes ? passingLevels(state.rows.map(({ node }) => node)) : null;
  const lines = state.words.length ? findInSource(state.words) : [];
  if (lines.length) state.rows.push({ node: -1, graph: -1, depth: 0, title: `${lines.length === MOST_FOUND ? "the first " : ""}${plural(lines.length, "line")} of the source` });
  lines.forEach((found) => state.rows.push({ node: -1, graph: -1, depth: 0, found }));
  byId("none").hidden = state.rows.length > 0 || !passes;
  byId("none-said").textContent = state.words.length ? `Nothing matches “${byId("search").value.trim()}”.` : "No nodes match these filters.";
  state.rowOfNode.fill(-1);
  let shown = 0;
  state.rows.forEach(({ node }, at) => {
    if (node < 0) return;
    state.rowOfNode[node] = at;
    shown++;
  });
  byId("count").textContent = shown === data.nodes.length ? plural(shown, "node") : `${shown.toLocaleString("en")} of ${plural(data.nodes.length, "node")}`;
  const active = state.node >= 0 ? state.rowOfNode[state.node] : -1;
  nodeList.reset(state.rows.length, active);
  if (active >= 0) nodeList.show(active, true);
  sourceList.mark();
  drawOverview();
  drawGraph();
}

function fold(index, closed) {
  if (closed) state.folded.add(index);
  else state.folded.delete(index);
}

// Left and right: fold, unfold, or go to what is around.
function foldRow(at, closed) {
  const row = state.rows[at];
  if (!row || (row.node < 0 && row.graph < 0)) return;
  const own = row.node >= 0 ? bodies.get(row.node) || [] : [row.graph];
  if (own.some((body) => state.folded.has(body) !== closed)) {
    own.forEach((body) => fold(body, closed));
    listNodes();
    nodeList.active = at;
    nodeList.show(at, false);
  } else if (closed) {
    let around = at - 1;
    while (around > 0 && state.rows[around].depth >= row.depth) around--;
    if (around >= 0) goToRow(around);
  }
}

function goToRow(at, from) {
  nodeList.active = at;
  nodeList.show(at, true);
  chooseNode(state.rows[at].node, true, from);
}

function goToNode(index, from) {
  if (state.rowOfNode[index] < 0) {
    if (currentFilter()) showEverything();
    for (let graph = data.nodes[index][GRAPH]; ; ) {
      state.folded.delete(graph);
      const owner = data.graphs[graph][2];
      if (owner < 0) break;
      graph = data.nodes[owner][GRAPH];
    }
    listNodes();
  }
  goToRow(state.rowOfNode[index], from);
}

// ---- the strip beside the nodes: where the linked ones are in the whole ----

const overview = byId("overview");
function drawOverview() {
  const height = overview.clientHeight;
  if (overview.height !== height) overview.height = height;
  const draw = overview.getContext("2d"), line = linkedLine();
  draw.clearRect(0, 0, overview.width, height);
  if (!line || !state.rows.length) return;
  draw.fillStyle = line.nodes.length ? `hsl(${line.hue} 65% 50%)` : "gray";
  const step = height / state.rows.length;
  const mark = (index) => state.rowOfNode[index] >= 0 && draw.fillRect(2, state.rowOfNode[index] * step, 9, Math.max(2, step));
  if (line.nodes.length) line.nodes.forEach(mark);
  else data.nodes.forEach((node, index) => nodePasses(node, line) && mark(index));
}
overview.addEventListener("click", (event) => {
  byId("nodes").scrollTop = (event.offsetY / overview.clientHeight) * state.rows.length * ROW - byId("nodes").clientHeight / 2;
});
new ResizeObserver(drawOverview).observe(overview);
