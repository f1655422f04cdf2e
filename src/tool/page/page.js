"use strict";
// Shows what page_data.c wrote. Rows refer to each other by number, -1 is none:
//   texts   "…"                              values  [text, type text, is it an initializer]
//   files   [path text, is it a library's, lines or 0]
//   frames  [file, line, function text]      places  the same: where a node came from
//   traces  [frame, …] innermost first, -1 before a further trace of a node merged from several
//   graphs  ["graph" | "body" | "function", text, the node it is a body of, [inputs], [outputs]]
//   nodes   [graph, operator text, name text, place, trace, plugin text, calls text, [inputs], [outputs], [fact texts]]
//   times   [node, microseconds], where a profile was given
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const text = (row) => (row < 0 ? "" : data.texts[row]);
  const GRAPH = 0, OPERATOR = 1, NAME = 2, PLACE = 3, TRACE = 4, PLUGIN = 5, CALLS = 6, INPUTS = 7, OUTPUTS = 8, FACTS = 9;
  const UNFOLDED_UP_TO = 2000;

  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const duration = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(us < 100 ? 1 : 0)} µs`);

  // ---- lines: what source and graph have in common ----

  const lines = new Map();
  const nodeLine = [];
  const traceLines = []; // all lines that a trace passes
  const traceEnds = []; // those where its parts end: a node merged from several came from all of them
  const nodeTime = new Float64Array(data.nodes.length);
  const wholeTime = new Float64Array(data.nodes.length);
  for (const [node, time] of data.times || []) nodeTime[node] = wholeTime[node] = time;
  // A node with bodies is timed with them: its own time is what they leave.
  for (const [node, time] of data.times || []) {
    const owner = data.graphs[data.nodes[node][GRAPH]][2];
    if (owner >= 0) nodeTime[owner] = Math.max(0, nodeTime[owner] - time);
  }

  function lineOf([file, line, name]) {
    const key = file < 0 ? `${name}:${line}` : `${file}/${line}`;
    if (!lines.has(key)) {
      lines.set(key, { file, line, names: new Set(), nodes: [], own: 0, callers: 0, time: 0, hue: 0 });
    }
    const found = lines.get(key);
    found.names.add(name);
    return found;
  }

  data.traces.forEach((trace) => {
    const passed = new Set(), ends = new Set();
    let atEnd = true;
    for (const frame of trace) {
      if (frame < 0) atEnd = true;
      else if (!data.files[data.frames[frame][0]][1]) {
        const line = lineOf(data.frames[frame]);
        passed.add(line);
        if (atEnd) ends.add(line);
        atEnd = false;
      }
    }
    traceLines.push(passed);
    traceEnds.push(ends);
  });
  data.nodes.forEach((node, index) => {
    const line = node[PLACE] < 0 ? null : lineOf(data.places[node[PLACE]]);
    nodeLine.push(line);
    if (line) {
      line.own++;
      line.nodes.push(index);
      line.time += nodeTime[index];
    }
    if (node[TRACE] < 0) return;
    for (const passed of traceLines[node[TRACE]]) {
      if (passed === line) continue;
      if (traceEnds[node[TRACE]].has(passed)) passed.nodes.push(index);
      else passed.callers++;
    }
  });
  // Neighbouring lines get hues far apart: each is a golden angle from the one before.
  [...lines.values()].filter((line) => line.nodes.length).forEach((line, index) => (line.hue = (index * 137.5 + 210) % 360));
  const nodePasses = (node, line) => node[TRACE] >= 0 && traceLines[node[TRACE]].has(line);
  const isFrom = (index, line) => {
    const trace = data.nodes[index][TRACE];
    return nodeLine[index] === line || (trace >= 0 && traceEnds[trace].has(line));
  };

  // ---- documents: what the left side can show ----

  const shortName = (path) => path.split(/[/\\]/).pop();
  const namesOf = (line) => [...line.names].map(text).join(", ");
  const documents = [];
  (function makeDocuments() {
    const byFile = new Map();
    for (const line of lines.values()) {
      if (!byFile.has(line.file)) byFile.set(line.file, []);
      byFile.get(line.file).push(line);
    }
    for (const [file, own] of byFile) {
      const content = file < 0 ? 0 : data.files[file][2];
      const shown = { file, title: file < 0 ? "functions" : text(data.files[file][0]), rows: [], rowOf: new Map(), count: 0 };
      own.sort((a, b) => (file < 0 ? namesOf(a).localeCompare(namesOf(b)) : 0) || a.line - b.line);
      if (content) content.forEach((code, index) => shown.rows.push({ number: index + 1, code, line: null }));
      for (const line of own) {
        shown.count += line.own;
        if (!content) shown.rows.push({ number: "", code: `${namesOf(line)}:${line.line}`, line });
        else if (line.line >= 1 && line.line <= content.length) shown.rows[line.line - 1].line = line;
        else shown.rows.push({ number: line.line, code: `(${namesOf(line)}; the file has no such line)`, line });
      }
      shown.rows.forEach((row, index) => row.line && shown.rowOf.set(row.line, index));
      shown.width = shown.rows.reduce((most, row) => Math.max(most, row.code.length), 0);
      documents.push(shown);
    }
    documents.sort((a, b) => b.count - a.count || a.title.localeCompare(b.title));
  })();

  // ---- values, graphs ----

  const producer = new Map();
  const readers = new Map();
  const bodies = new Map();
  const functions = new Map();
  const members = data.graphs.map(() => []);
  data.nodes.forEach((node, index) => {
    members[node[GRAPH]].push(index);
    for (const value of node[OUTPUTS]) producer.set(value, index);
    for (const value of node[INPUTS]) {
      if (!readers.has(value)) readers.set(value, []);
      readers.get(value).push(index);
    }
  });
  data.graphs.forEach(([kind, name, owner], index) => {
    if (kind === "function") functions.set(name, index);
    if (kind !== "body") return;
    if (!bodies.has(owner)) bodies.set(owner, []);
    bodies.get(owner).push(index);
  });
  const valueText = (value) => (value < 0 ? "-" : text(data.values[value][0]));
  const typeText = (value) => (value < 0 ? "" : text(data.values[value][1]));

  // ---- state ----

  const state = {
    shown: documents[0] || { rows: [], rowOf: new Map(), width: 0 },
    rows: [], rowOfNode: new Int32Array(data.nodes.length), folded: new Set(),
    node: -1, line: null, pointed: null, pointedNode: -1, only: false, allFrames: false,
    heat: data.times ? "time" : "count",
  };
  if (data.nodes.length > UNFOLDED_UP_TO) {
    data.graphs.forEach(([kind], index) => kind !== "graph" && state.folded.add(index));
  }
  const linkedLine = () => state.pointed || state.line;
  const heatOf = (line, time) => (state.heat === "time" ? time : line ? line.nodes.length : 0);
  const most = { lineTime: 0, lineCount: 0, nodeTime: 0 };
  for (const line of lines.values()) {
    most.lineTime = Math.max(most.lineTime, line.time);
    most.lineCount = Math.max(most.lineCount, line.nodes.length);
  }
  for (const time of nodeTime) most.nodeTime = Math.max(most.nodeTime, time);

  function heatElement(value, largest) {
    const element = make("span", "heat");
    if (!value || state.heat === "none") return element;
    element.append(state.heat === "time" ? duration(value) : String(value));
    const bar = make("i");
    bar.style.width = `${Math.max(2, (value / largest) * 95)}%`;
    element.append(bar);
    return element;
  }

  // ---- the source ----

  const sourceList = new List(byId("lines"), "option", (index) => {
    const { number, code, line } = state.shown.rows[index];
    const row = make("div", "row");
    const heat = line ? heatElement(heatOf(line, line.time), state.heat === "time" ? most.lineTime : most.lineCount) : make("span", "heat");
    row.append(heat, make("span", "number", String(number)), make("span", "code", code));
    row.style.minWidth = `max(100%, ${state.shown.width + 18}ch)`;
    if (!line) return row;
    if (line.nodes.length) {
      row.classList.add("hued");
      row.style.setProperty("--hue", line.hue);
    }
    const became = line.nodes.length ? `became ${plural(line.nodes.length, "node")}` : "";
    const called = line.callers ? `called what became ${plural(line.callers, "node")}` : "";
    const said = [namesOf(line), became, called].filter(Boolean).join("; ");
    row.title = said;
    row.setAttribute("aria-label", `${number ? `line ${number}: ` : ""}${code.trim()}; ${said}`);
    return row;
  }, (index) => chooseLine(state.shown.rows[index].line));

  sourceList.decorate = (index, row) => {
    const { line } = state.shown.rows[index];
    const node = state.pointedNode >= 0 ? state.pointedNode : state.pointed ? -1 : state.node;
    const isLinked = !!line && (line === linkedLine() || (node >= 0 && isFrom(node, line)));
    row.classList.toggle("linked", isLinked);
    row.classList.toggle("through", !!line && !isLinked && node >= 0 && nodePasses(data.nodes[node], line));
  };

  function showDocument(shown) {
    if (state.shown === shown) return;
    state.shown = shown;
    byId("file").value = String(documents.indexOf(shown));
    byId("lines").scrollTop = 0;
    sourceList.reset(shown.rows.length, -1);
  }

  function showLine(line) {
    const shown = line && documents.find((one) => one.rowOf.has(line));
    if (!shown) return;
    showDocument(shown);
    sourceList.active = shown.rowOf.get(line);
    sourceList.show(sourceList.active, true);
  }

  // ---- the nodes ----

  function nodeRow(index, depth) {
    const node = data.nodes[index];
    const line = nodeLine[index];
    const row = make("div", "row");
    if (line) {
      row.classList.add("hued");
      row.style.setProperty("--hue", line.hue);
    }
    const own = bodies.get(index);
    const fold = make("span", "fold", own ? (own.some((body) => state.folded.has(body)) ? "▸" : "▾") : "");
    fold.style.marginLeft = `${depth * 16}px`;
    if (own) row.setAttribute("aria-expanded", !own.some((body) => state.folded.has(body)));
    const value = state.heat === "time" ? nodeTime[index] : 0;
    const values = make("span", "values", `(${node[INPUTS].map(valueText).join(", ")}) → `);
    node[OUTPUTS].forEach((output, at) => values.append(at ? ", " : "", `${valueText(output)} `, make("span", "type", typeText(output))));
    if (state.heat === "time") row.append(heatElement(value, most.nodeTime));
    row.append(fold, make("span", "op", text(node[OPERATOR])), values);
    if (line) row.append(make("span", "place", `${text(data.places[node[PLACE]][2])}:${line.line}`));
    row.title = `${text(node[NAME])}: ${text(node[OPERATOR])}`;
    row.setAttribute("aria-level", depth + 1);
    row.setAttribute("aria-label", `${text(node[OPERATOR])} ${text(node[NAME])}${line ? `, from ${namesOf(line)} line ${line.line}` : ""}`);
    return row;
  }

  function graphRow(index, depth) {
    const [kind, name, , inputs, outputs] = data.graphs[index];
    const row = make("div", "row heading");
    const fold = make("span", "fold", state.folded.has(index) ? "▸" : "▾");
    fold.style.marginLeft = `${depth * 16}px`;
    const list = (values) => values.map((value) => `${valueText(value)} ${typeText(value)}`).join(", ");
    if (state.heat === "time") row.append(make("span", "heat"));
    row.append(fold, make("span", "values", `${kind} `, make("b", "", text(name)), ` (${list(inputs)}) → (${list(outputs)})  ${plural(members[index].length, "node")}`));
    row.setAttribute("aria-expanded", !state.folded.has(index));
    row.setAttribute("aria-level", depth + 1);
    row.setAttribute("aria-label", `${kind} ${text(name)}, ${plural(members[index].length, "node")}`);
    return row;
  }

  const nodeList = new List(byId("nodes"), "treeitem", (at) => {
    const row = state.rows[at];
    return row.node >= 0 ? nodeRow(row.node, row.depth) : graphRow(row.graph, row.depth);
  }, (at) => chooseNode(state.rows[at].node, true));

  nodeList.decorate = (at, row) => {
    const index = state.rows[at].node, line = linkedLine();
    if (index < 0) return;
    row.classList.toggle("linked", !!line && isFrom(index, line));
    row.classList.toggle("through", !!line && !line.nodes.length && nodePasses(data.nodes[index], line));
  };

  let haystacks = null;
  function haystack(index) {
    haystacks ||= new Array(data.nodes.length);
    if (haystacks[index] === undefined) {
      const node = data.nodes[index], line = nodeLine[index];
      const values = [...node[INPUTS], ...node[OUTPUTS]].map((value) => `${valueText(value)} ${typeText(value)}`);
      const place = line ? `${namesOf(line)}:${line.line} ${line.file < 0 ? "" : `${shortName(text(data.files[line.file][0]))}:${line.line}`}` : "";
      haystacks[index] = [text(node[NAME]), text(node[OPERATOR]), ...values, place].join("\n").toLowerCase();
    }
    return haystacks[index];
  }

  function currentFilter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const operator = byId("operator").value, where = byId("where").value;
    const [kind, number] = [where[0], Number(where.slice(1))];
    if (!words.length && !operator && !where && !state.only) return null;
    return (index) => {
      const node = data.nodes[index], line = nodeLine[index];
      if (operator && node[OPERATOR] !== Number(operator)) return false;
      if (kind === "f" && !(line && line.file === number)) return false;
      if (kind === "n" && !(line && data.places[node[PLACE]][2] === number)) return false;
      const chosen = state.line;
      if (state.only && chosen && !isFrom(index, chosen) && (chosen.nodes.length || !nodePasses(node, chosen))) return false;
      return words.every((word) => haystack(index).includes(word));
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

  function listNodes() {
    const passes = currentFilter();
    state.rows = [];
    if (passes) {
      data.nodes.forEach((node, index) => passes(index) && state.rows.push({ node: index, graph: node[GRAPH], depth: 0 }));
    } else {
      data.graphs.forEach(([kind], index) => kind !== "body" && addGraph(state.rows, index, 0));
    }
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
    drawOverview();
  }

  function fold(index, closed) {
    if (closed) state.folded.add(index);
    else state.folded.delete(index);
  }

  // Left and right: fold, unfold, or go to what is around.
  function foldRow(at, closed) {
    const row = state.rows[at];
    if (!row) return;
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

  function goToRow(at) {
    nodeList.active = at;
    nodeList.show(at, true);
    chooseNode(state.rows[at].node, true);
  }

  function goToNode(index) {
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
    goToRow(state.rowOfNode[index]);
  }

  // ---- choosing and pointing ----

  function markAll() {
    sourceList.mark();
    nodeList.mark();
    drawOverview();
  }

  function setLine(line) {
    state.line = line;
    byId("only").disabled = !line && !state.only;
  }

  function chooseNode(index, follow) {
    state.node = index;
    if (index >= 0 && !state.only) setLine(nodeLine[index]);
    if (follow && index >= 0) showLine(nodeLine[index]);
    showDetails();
    markAll();
  }

  function chooseLine(line) {
    setLine(line);
    if (state.only) listNodes();
    const first = line ? line.nodes.find((index) => state.rowOfNode[index] >= 0) : undefined;
    if (first !== undefined) {
      state.node = first;
      nodeList.active = state.rowOfNode[first];
      nodeList.show(nodeList.active, true);
      showDetails();
    }
    markAll();
  }

  function nextNodeOfLine(line) {
    if (!line || !line.nodes.length) return;
    const at = line.nodes.indexOf(state.node);
    const focusFirst = document.activeElement !== byId("nodes") && at <= 0;
    goToNode(line.nodes[focusFirst ? 0 : (at + 1) % line.nodes.length]);
    byId("nodes").focus();
  }

  function point(line, node) {
    if (state.pointed === line && state.pointedNode === node) return;
    state.pointed = line;
    state.pointedNode = node;
    markAll();
  }

  function showEverything() {
    byId("search").value = "";
    byId("operator").value = "";
    byId("where").value = "";
    state.only = false;
    byId("only").setAttribute("aria-pressed", "false");
  }

  function setOnly(only) {
    if (only && !state.line) return;
    state.only = only;
    byId("only").setAttribute("aria-pressed", String(only));
    listNodes();
  }

  // ---- details ----

  function link(label, action) {
    const button = make("button", "link", label);
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  }

  function section(title, items, kind = "ul") {
    const list = make(kind);
    items.forEach((item) => list.append(item));
    return make("div", "", "", make("h3", "", title), list);
  }

  const LISTED = 50;
  function neighbours(values, direction) {
    return values.flatMap((value) => {
      if (value < 0) return [make("li", "quiet", "(left out)")];
      const item = make("li", "", `${valueText(value)} `, make("span", "quiet", typeText(value)));
      const others = direction === "from" ? (producer.has(value) ? [producer.get(value)] : []) : readers.get(value) || [];
      if (direction === "from" && !others.length) item.append(make("span", "quiet", data.values[value][2] ? "  initializer" : "  input"));
      others.slice(0, LISTED).forEach((index, at) => {
        const node = data.nodes[index];
        item.append(at ? ", " : `  ${direction} `, link(`${text(node[OPERATOR])} ${text(node[NAME])}`, () => goToNode(index)));
      });
      if (others.length > LISTED) item.append(` and ${others.length - LISTED} more`);
      return [item];
    });
  }

  function traceItems(trace) {
    const items = [];
    let hidden = 0;
    for (const row of trace) {
      if (row < 0) {
        items.push(make("li", "quiet", "and"));
        continue;
      }
      const [file, number, name] = data.frames[row];
      const [path, isLibrary, content] = data.files[file];
      if (isLibrary && !state.allFrames) {
        hidden++;
        continue;
      }
      const item = make("li", isLibrary ? "library" : "");
      const label = `${text(path).split(/[/\\]/).slice(-2).join("/")}:${number}`;
      item.title = text(path);
      if (isLibrary) item.append(label);
      else item.append(link(label, () => { const line = lineOf(data.frames[row]); setLine(line); showLine(line); markAll(); byId("lines").focus(); }));
      item.append(` in ${text(name)}`);
      items.push(item);
      if (content && content[number - 1] !== undefined) items.push(make("li", "code-line", content[number - 1].trim()));
    }
    if (hidden || state.allFrames) {
      const more = make("button", "more", hidden ? `Show ${plural(hidden, "frame")} inside libraries` : "Hide frames inside libraries");
      more.type = "button";
      more.addEventListener("click", () => {
        state.allFrames = !state.allFrames;
        showDetails();
        byId("details").querySelector("button.more")?.focus();
      });
      items.push(make("li", "", "", more));
    }
    return items;
  }

  function showDetails() {
    const details = byId("details");
    details.replaceChildren();
    if (state.node < 0) {
      details.append(make("p", "quiet", data.nodes.length ? "Choose a node or a line to see where it came from." : "The model has no nodes."));
      return;
    }
    const node = data.nodes[state.node], line = nodeLine[state.node];
    const title = make("h2", "", `${text(node[NAME]) || "(no name)"}: ${text(node[OPERATOR])}`);
    const origin = make("p");
    if (line) {
      const where = line.file < 0 ? "" : ` in ${text(data.files[line.file][0])}`;
      origin.append("at ", link(`${text(data.places[node[PLACE]][2])}:${line.line}`, () => { showLine(line); byId("lines").focus(); }), make("span", "quiet", where));
    } else {
      origin.append(make("span", "quiet", "The model does not say where this node came from."));
    }
    if (node[PLUGIN] >= 0) origin.append(make("span", "quiet", `, by ${text(node[PLUGIN])}`));
    if (wholeTime[state.node]) {
      const whole = wholeTime[state.node], own = nodeTime[state.node];
      origin.append(`, ${duration(whole)}${own < whole ? `, ${duration(own)} of it its own` : ""}`);
    }
    details.append(title, origin);
    const called = functions.get(node[OPERATOR]);
    if (called !== undefined) {
      details.append(make("p", "", "calls ", link(`function ${text(node[OPERATOR])}`, () => members[called].length && goToNode(members[called][0]))));
    }
    const owner = data.graphs[node[GRAPH]][2];
    if (owner >= 0) details.append(make("p", "", "inside ", link(`${text(data.nodes[owner][OPERATOR])} ${text(data.nodes[owner][NAME])}`, () => goToNode(owner))));
    const columns = make("div", "columns");
    if (node[TRACE] >= 0) columns.append(section("Trace, innermost first", traceItems(data.traces[node[TRACE]]), "ol"));
    const values = make("div", "", "", section("Inputs", neighbours(node[INPUTS], "from")), section("Outputs", neighbours(node[OUTPUTS], "to")));
    if (node[FACTS].length) values.append(section("Attributes", node[FACTS].map((fact) => make("li", "", text(fact)))));
    if (node[CALLS] >= 0) values.append(section("The converter's calls, outermost first", text(node[CALLS]).split("\n").map((call) => make("li", "quiet", call)), "ol"));
    columns.append(values);
    details.append(columns);
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

  // ---- controls ----

  function option(value, label) {
    const element = make("option", "", label);
    element.value = value;
    return element;
  }

  function countBy(keyOf) {
    const counts = new Map();
    data.nodes.forEach((node, index) => {
      const key = keyOf(node, index);
      if (key >= 0) counts.set(key, (counts.get(key) || 0) + 1);
    });
    return [...counts].sort((a, b) => b[1] - a[1]);
  }

  function group(label, options) {
    const element = make("optgroup", "", "", ...options);
    element.label = label;
    return element;
  }

  function fillControls() {
    const operators = countBy((node) => node[OPERATOR]);
    byId("operator").append(option("", "All operators"), ...operators.map(([row, count]) => option(String(row), `${text(row)} (${count})`)));
    const files = countBy((node, index) => (nodeLine[index] ? nodeLine[index].file : -1));
    const names = countBy((node) => (node[PLACE] < 0 ? -1 : data.places[node[PLACE]][2]));
    byId("where").append(option("", "All places"));
    if (files.length) byId("where").append(group("Files", files.map(([row, count]) => option(`f${row}`, `${shortName(text(data.files[row][0]))} (${count})`))));
    if (names.length) byId("where").append(group("Functions", names.map(([row, count]) => option(`n${row}`, `${text(row)} (${count})`))));
    byId("where").disabled = !names.length;
    byId("heat").append(option("none", "No heat"), option("count", "Heat: nodes"));
    if (data.times) byId("heat").append(option("time", "Heat: time"));
    byId("heat").value = state.heat;
    documents.forEach((shown, index) => byId("file").append(option(String(index), `${shown.title} (${plural(shown.count, "node")})`)));
    byId("source").hidden = byId("divider").hidden = !documents.length;
    document.title = `${data.model} · j2o report`;
    byId("title").textContent = data.model;
    const facts = [plural(data.nodes.length, "node"), plural(operators.length, "operator"), `opset ${data.opset}`, data.producer];
    if (data.times) facts.push(duration(nodeTime.reduce((sum, time) => sum + time, 0)));
    byId("summary").textContent = facts.filter(Boolean).join(" · ");
    if (!names.length) {
      byId("notice").textContent = data.help[0].toUpperCase() + data.help.slice(1).replace(/\n/g, " ");
      byId("notice").hidden = false;
    }
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
  }
  const darkWanted = matchMedia("(prefers-color-scheme: dark)");
  function storedTheme(theme) {
    try { // a page inside another one may have no storage
      if (theme) localStorage.setItem("j2o-theme", theme);
      return localStorage.getItem("j2o-theme");
    } catch {
      return null;
    }
  }
  setTheme(storedTheme() || (darkWanted.matches ? "dark" : "light"));
  darkWanted.addEventListener("change", () => setTheme(storedTheme() || (darkWanted.matches ? "dark" : "light")));

  function listen() {
    for (const id of ["search", "operator", "where"]) byId(id).addEventListener("input", listNodes);
    byId("only").addEventListener("click", () => setOnly(!state.only));
    byId("file").addEventListener("change", () => showDocument(documents[Number(byId("file").value)]));
    byId("heat").addEventListener("change", () => {
      state.heat = byId("main").dataset.heat = byId("heat").value;
      sourceList.reset(sourceList.count, sourceList.active);
      nodeList.reset(nodeList.count, nodeList.active);
    });
    byId("theme").addEventListener("click", () => {
      const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      storedTheme(theme);
      setTheme(theme);
    });
    byId("help").addEventListener("click", () => {
      byId("keys").hidden = !byId("keys").hidden;
      byId("help").setAttribute("aria-expanded", String(!byId("keys").hidden));
    });
    byId("lines").addEventListener("click", (event) => {
      const at = sourceList.rowAt(event);
      if (at < 0) return;
      sourceList.active = at;
      chooseLine(state.shown.rows[at].line);
    });
    byId("nodes").addEventListener("click", (event) => {
      const at = nodeList.rowAt(event);
      if (at < 0) return;
      const row = state.rows[at];
      nodeList.active = at;
      if (event.target.closest(".fold") && event.target.textContent) {
        const own = row.node >= 0 ? bodies.get(row.node) : [row.graph];
        foldRow(at, !own.some((body) => state.folded.has(body)));
      } else {
        chooseNode(row.node, true);
      }
    });
    byId("lines").addEventListener("mouseover", (event) => point(state.shown.rows[sourceList.rowAt(event)]?.line || null, -1));
    byId("nodes").addEventListener("mouseover", (event) => {
      const node = state.rows[nodeList.rowAt(event)]?.node ?? -1;
      point(nodeLine[node] || null, node);
    });
    for (const id of ["lines", "nodes"]) byId(id).addEventListener("mouseleave", () => point(null, -1));
    document.addEventListener("keydown", onKey);
    listenDivider();
  }

  function onListKey(event) {
    const inNodes = event.target === byId("nodes");
    const list = inNodes ? nodeList : event.target === byId("lines") ? sourceList : null;
    if (!list) return false;
    if (list.move(event.key)) return true;
    if (event.key === "Enter" && inNodes && state.node >= 0 && nodeLine[state.node]) {
      showLine(nodeLine[state.node]);
      byId("lines").focus();
      return true;
    }
    if (event.key === "Enter" && !inNodes) {
      nextNodeOfLine(state.shown.rows[sourceList.active]?.line);
      return true;
    }
    if (inNodes && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      foldRow(nodeList.active, event.key === "ArrowLeft");
      return true;
    }
    return false;
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === byId("search"), choosing = event.target.tagName === "SELECT";
    let taken = true;
    if (event.key === "Escape") {
      const filtered = currentFilter() !== null;
      showEverything();
      if (!filtered && !typing) {
        setLine(null);
        chooseNode(-1, false);
      }
      listNodes();
      if (typing) byId("nodes").focus();
    } else if (typing) {
      taken = event.key === "Enter" || event.key === "ArrowDown";
      if (taken && state.rows.length) {
        goToRow(Math.max(0, state.rows.findIndex((row) => row.node >= 0)));
        byId("nodes").focus();
      }
    } else if (event.key === "/") {
      byId("search").focus();
      byId("search").select();
    } else if (event.key === "f" && !choosing) {
      setOnly(!state.only);
    } else if (event.key === "?") {
      byId("help").click();
    } else {
      taken = onListKey(event);
    }
    if (taken) event.preventDefault();
  }

  function listenDivider() {
    const divider = byId("divider");
    const setWidth = (percent) => {
      const width = Math.round(Math.min(80, Math.max(15, percent)));
      byId("main").style.setProperty("--source-width", `${width}%`);
      divider.setAttribute("aria-valuenow", width);
    };
    divider.addEventListener("pointerdown", (event) => divider.setPointerCapture(event.pointerId));
    divider.addEventListener("pointermove", (event) => {
      if (divider.hasPointerCapture(event.pointerId)) setWidth((event.clientX / byId("main").clientWidth) * 100);
    });
    divider.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
      if (step) setWidth(Number(divider.getAttribute("aria-valuenow")) + step);
    });
  }

  byId("main").dataset.heat = state.heat;
  fillControls();
  listen();
  sourceList.reset(state.shown.rows.length, -1);
  listNodes();
  showDetails();
  const first = state.shown.rows.findIndex((row) => row.line && row.line.nodes.length);
  if (first >= 0) sourceList.show(first, true);
})();
