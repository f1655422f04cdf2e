// Shows what page_data.c wrote. Rows refer to each other by number, -1 is none:
//   texts   "…"                              values  [text, type text, is it an initializer]
//   files   [path text, is it a library's, lines or 0, [name texts], is it another one than was exported]: a line may
//           be asked for by any of the names
//   frames  [file, line, function text]      places  the same: where a node came from
//   traces  [frame, …] innermost first, -1 before a further trace of a node merged from several
//   lines   [file, number, [function texts], [own traces], [fused traces], [traces within], [traces through],
//           [constant texts], [texts of what was removed]]: which traces belong to a line, and how (src/tool/index.h)
//   graphs  ["graph" | "body" | "function", text, the node it is a body of, [inputs], [outputs]]
//   nodes   [graph, operator text, name text, place, trace, plugin text, calls text, [inputs], [outputs], [fact texts],
//           module text, [first line, column, last line, column] or 0, text of the modules of what was fused]
//   levels  the drawing: page_levels.c
//   times   [node, microseconds], where a profile was given
// Of two models also, nodes from `first` on being the other's:
//   matches the node of the other model that each is   changes  [node, "new" | "gone" | "changed", [fact texts]]
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const text = (row) => (row < 0 ? "" : data.texts[row]);
const GRAPH = 0, OPERATOR = 1, NAME = 2, PLACE = 3, TRACE = 4, PLUGIN = 5, CALLS = 6, INPUTS = 7, OUTPUTS = 8, FACTS = 9, MODULE = 10, SPAN = 11, FUSED = 12;
const UNFOLDED_UP_TO = 2000;

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const duration = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(us < 100 ? 1 : 0)} µs`);

// ---- lines: what source and graph have in common ----

const lines = new Map();
const nodeLine = [];
const nodeTime = new Float64Array(data.nodes.length);
const wholeTime = new Float64Array(data.nodes.length);
for (const [node, time] of data.times || []) nodeTime[node] = wholeTime[node] = time;
// A node with bodies is timed with them: its own time is what they leave.
for (const [node, time] of data.times || []) {
  const owner = data.graphs[data.nodes[node][GRAPH]][2];
  if (owner >= 0) nodeTime[owner] = Math.max(0, nodeTime[owner] - time);
}

// What a node makes and the constants it reads, where their types say how large they are.
const nodeBytes = new Float64Array(data.nodes.length);
{
  const sizes = { b1: 1, i8: 1, u8: 1, f8: 1, i16: 2, u16: 2, f16: 2, bf16: 2, i32: 4, u32: 4, f32: 4, i64: 8, u64: 8, f64: 8, c64: 8, c128: 16 };
  const typeBytes = data.texts.map(() => -1);
  const bytesOf = (row) => {
    if (row < 0) return 0;
    if (typeBytes[row] < 0) {
      const found = /^(\w+)\[([\d,]*)\]$/.exec(data.texts[row]);
      typeBytes[row] = found ? (found[2] ? found[2].split(",").reduce((size, axis) => size * Number(axis), 1) : 1) * (sizes[found[1]] || 0) : 0;
    }
    return typeBytes[row];
  };
  data.nodes.forEach((node, index) => {
    const made = node[OUTPUTS].filter((value) => value >= 0), read = node[INPUTS].filter((value) => value >= 0 && data.values[value][2]);
    nodeBytes[index] = [...made, ...read].reduce((sum, value) => sum + bytesOf(data.values[value][1]), 0);
  });
}
const size = (bytes) => (bytes >= 1 << 30 ? `${(bytes / (1 << 30)).toFixed(1)} GiB` : bytes >= 1 << 20 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${bytes} B`);

const lineKey = ([file, line, name]) => (file < 0 ? `${name}:${line}` : `${file}/${line}`);
const lineOf = (frame) => lines.get(lineKey(frame)) || null;
const nodesOf = data.traces.map(() => []);
data.nodes.forEach((node, index) => {
  nodeLine.push(null);
  if (node[TRACE] >= 0) nodesOf[node[TRACE]].push(index);
});
for (const [file, number, names, own, fused, within, through, constants, removed] of data.lines) {
  const known = (file < 0 ? names : [-1]).map((name) => lines.get(lineKey([file, number, name]))).find(Boolean); // of another model
  const line = known || { file, line: number, names: new Set(), own: 0, callers: 0, time: 0, bytes: 0, hue: 0, nodes: [], traces: new Set(), within: new Set(), through: new Set(), constants: [], removed: [] };
  for (const name of names) line.names.add(name);
  line.constants.push(...constants);
  line.removed.push(...removed);
  for (const name of file < 0 ? names : [-1]) lines.set(lineKey([file, number, name]), line);
  for (const index of own.flatMap((trace) => nodesOf[trace])) {
    nodeLine[index] = line;
    line.own++;
    line.time += nodeTime[index];
    line.bytes += nodeBytes[index];
  }
  line.nodes = [...line.nodes, ...[...own, ...fused].flatMap((trace) => nodesOf[trace])].sort((a, b) => a - b);
  for (const trace of [...own, ...fused]) line.traces.add(trace);
  for (const trace of within) line.within.add(trace);
  for (const trace of [...within, ...through]) line.through.add(trace);
  line.callers += through.reduce((sum, trace) => sum + nodesOf[trace].length, 0);
}
// Neighbouring lines get hues far apart: each is a golden angle from the one before.
[...lines.values()].filter((line) => line.nodes.length).forEach((line, index) => (line.hue = (index * 137.5 + 210) % 360));
const isFrom = (index, line) => line.traces.has(data.nodes[index][TRACE]);
const nodePasses = (node, line) => line.traces.has(node[TRACE]) || line.through.has(node[TRACE]);
// A line is answered by its own nodes; where it has none, by those whose expression goes on over it, or that it called.
const nearest = (line) => [line.traces, line.within, line.through].find((traces) => traces.size) || line.traces;
const isOfLine = (index, line) => nearest(line).has(data.nodes[index][TRACE]);
// Where one line became nearly everything, or nobody knows the lines, operators tell nodes apart better.
const operatorHues = new Map();
{
  const counts = new Map();
  for (const node of data.nodes) counts.set(node[OPERATOR], (counts.get(node[OPERATOR]) || 0) + 1);
  [...counts].sort((a, b) => b[1] - a[1]).forEach(([operator], index) => operatorHues.set(operator, (index * 137.5 + 210) % 360));
}
const busiest = [...lines.values()].reduce((most, line) => Math.max(most, line.own), 0);
const hueOf = (index) => (state.colour === "operator" ? operatorHues.get(data.nodes[index][OPERATOR]) : nodeLine[index] ? nodeLine[index].hue : -1);

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
    const shown = { file, title: file < 0 ? "functions" : text(data.files[file][0]) + (data.files[file][4] ? ", changed since the export" : ""), rows: [], rowOf: new Map(), count: 0 };
    own.sort((a, b) => (file < 0 ? namesOf(a).localeCompare(namesOf(b)) : 0) || a.line - b.line);
    shown.isSource = !!content;
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
  data.files.forEach(([path, isLibrary, content], file) => {
    if (!isLibrary || !content) return;
    const rows = content.map((code, index) => ({ number: index + 1, code, line: null }));
    const width = content.reduce((most, code) => Math.max(most, code.length), 0);
    documents.push({ file, title: text(path), rows, rowOf: new Map(), count: 0, isSource: true, isLibrary: true, width });
  });
  documents.sort((a, b) => !!a.isLibrary - !!b.isLibrary || b.count - a.count || a.title.localeCompare(b.title));
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
let side = -1; // which model's: its graph comes before its functions
data.graphs.forEach(([kind, name, owner], index) => {
  if (kind === "graph") side++;
  if (kind === "function") functions.set(`${side}/${name}`, index);
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
  node: -1, level: -1, line: null, pointed: null, pointedNode: -1, only: false, allFrames: false, words: [], passing: null, // nodes that pass the filters, by level too
  heat: data.times ? "time" : data.against !== undefined ? "changes" : "count",
  changed: false, colour: data.nodes.length > 20 && (busiest > 0.6 * data.nodes.length || !lines.size) ? "operator" : "line",
};
if (data.nodes.length > UNFOLDED_UP_TO) {
  data.graphs.forEach(([kind], index) => kind !== "graph" && state.folded.add(index));
}
const linkedLine = () => state.pointed || state.line;
const heatOf = { time: (line) => line.time, memory: (line) => line.bytes, count: (line) => line.nodes.length, none: () => 0,
  changes: (line) => Object.values(changesOfLine(line)).reduce((sum, count) => sum + count, 0) };
const heatText = { time: duration, memory: size, count: String, none: String, changes: String };
const mostOfLines = () => ({ time: most.lineTime, memory: most.lineBytes, count: most.lineCount, none: 0, changes: 0 })[state.heat];
const most = { lineTime: 0, lineCount: 0, lineBytes: 0, nodeTime: 0, nodeBytes: 0 };
for (const line of lines.values()) {
  most.lineTime = Math.max(most.lineTime, line.time);
  most.lineCount = Math.max(most.lineCount, line.nodes.length);
  most.lineBytes = Math.max(most.lineBytes, line.bytes);
}
for (const time of nodeTime) most.nodeTime = Math.max(most.nodeTime, time);
for (const bytes of nodeBytes) most.nodeBytes = Math.max(most.nodeBytes, bytes);

function heatElement(value, largest) {
  const element = make("span", "heat");
  element.setAttribute("aria-hidden", "true");
  if (!value || state.heat === "none") return element;
  element.append(heatText[state.heat](value));
  const bar = make("i");
  bar.style.width = `${Math.max(2, (value / largest) * 95)}%`;
  element.append(bar);
  return element;
}
