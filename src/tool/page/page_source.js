// The source: the lines of one file, each with what it became.

function codeElement(shown, index) {
  const element = make("span", "code"), { code, number } = shown.rows[index];
  if (!shown.isSource || number !== index + 1) {
    element.textContent = code;
    return element;
  }
  shown.openings ||= pythonOpenings(shown.rows.filter((row, at) => row.number === at + 1).map((row) => row.code));
  for (const [kind, part] of pythonPieces(code, shown.openings[index]).pieces) element.append(kind ? make("span", `py-${kind}`, part) : part);
  return element;
}

function changesElement(line) {
  const element = make("span", "heat"), counts = changesOfLine(line);
  for (const kind of Object.keys(SIGNS)) if (counts[kind]) element.append(make("span", `sign ${kind}`, `${SIGNS[kind]}${counts[kind]}`));
  return element;
}

// Why a line became no node, as far as the model tells.
function noteOf(line) {
  const reasons = [...new Set(line.removed)].map(text), constants = [...new Set(line.constants)].map(text);
  if (constants.length) reasons.push(`computed at export: ${constants.slice(0, 3).join(", ")}${constants.length > 3 ? ` and ${constants.length - 3} more` : ""}`);
  return reasons.join("; ");
}

const sourceList = new List(byId("lines"), "option", (index) => {
  const { number, line } = state.shown.rows[index];
  const row = make("div", "row");
  const heat = !line ? make("span", "heat") : state.heat === "changes" ? changesElement(line) : heatElement(heatOf[state.heat](line), mostOfLines());
  row.append(heat, make("span", "number", String(number)), codeElement(state.shown, index));
  row.style.minWidth = `max(100%, ${state.shown.width + 18}ch)`;
  if (!line) return row;
  if (line.nodes.length) {
    row.classList.add("hued");
    row.style.setProperty("--hue", line.hue);
  }
  const note = line.nodes.length ? "" : noteOf(line);
  if (note) {
    row.classList.add("left-out");
    row.append(make("span", "note", note));
  }
  const became = line.nodes.length ? `became ${plural(line.nodes.length, "node")}` : "";
  const called = line.callers ? `called code that became ${plural(line.callers, "node")}` : "";
  const said = [namesOf(line), became, noteOf(line), called].filter(Boolean).join("; ");
  row.title = said;
  return row;
}, (index) => chooseLine(state.shown.rows[index].line));

sourceList.decorate = (index, row) => {
  const { line, code, number } = state.shown.rows[index];
  const node = state.pointedNode >= 0 ? state.pointedNode : state.pointed ? -1 : state.node;
  const isLinked = !!line && (line === linkedLine() || (node >= 0 && isFrom(node, line)));
  row.classList.toggle("linked", isLinked);
  row.classList.toggle("through", !!line && !isLinked && node >= 0 && nodePasses(data.nodes[node], line));
  row.classList.toggle("found", state.words.length > 0 && state.shown.isSource && holdsWords(code, state.words));
  markSpan(row, node, number, code);
};

// ---- the expression of a node: a mark below the letters it stands in ----

const encoder = new TextEncoder(), decoder = new TextDecoder();
// Columns are counted in bytes of UTF-8.
const letterAt = (code, column) => decoder.decode(encoder.encode(code).slice(0, column)).length;

function spanIn(node, number, code) {
  const span = node >= 0 ? data.nodes[node][SPAN] : 0, place = node >= 0 ? nodeLine[node] : null;
  if (!span || !place || !state.shown.isSource || place.file !== state.shown.file || number < span[0] || number > span[2]) return null;
  const start = number === span[0] ? letterAt(code, span[1]) : code.length - code.trimStart().length;
  const end = number === span[2] ? letterAt(code, span[3]) : code.length;
  return end > start ? [start, end] : null;
}

function markSpan(row, node, number, code) {
  const span = spanIn(node, number, code);
  let mark = row.querySelector(".span");
  if (!span) return mark?.remove();
  if (!mark) row.querySelector(".code").append((mark = make("i", "span")));
  mark.style.left = `calc(1ch + ${span[0]}ch)`;
  mark.style.width = `${span[1] - span[0]}ch`;
}

// ---- files ----

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

function showRow(shown, at) {
  showDocument(shown);
  sourceList.active = at;
  sourceList.show(at, true);
  sourceList.mark();
}

// ---- searching ----

const holdsWords = (code, words) => {
  const small = code.toLowerCase();
  return words.every((word) => small.includes(word));
};

const MOST_FOUND = 200;
function findInSource(words) {
  const found = [];
  for (const shown of documents) {
    if (!shown.isSource) continue;
    shown.rows.forEach(({ code }, at) => found.length < MOST_FOUND && holdsWords(code, words) && found.push({ shown, at }));
  }
  return found;
}
