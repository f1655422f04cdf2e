// The source: the lines of one file, each with what it became.
const sourceList = new List(byId("lines"), "option", (index) => {
  const { number, code, line } = state.shown.rows[index];
  const row = make("div", "row");
  const heat = line ? heatElement(heatOf[state.heat](line), mostOfLines()) : make("span", "heat");
  row.append(heat, make("span", "number", String(number)), make("span", "code", code));
  row.style.minWidth = `max(100%, ${state.shown.width + 18}ch)`;
  if (!line) return row;
  if (line.nodes.length) {
    row.classList.add("hued");
    row.style.setProperty("--hue", line.hue);
  }
  const became = line.nodes.length ? `became ${plural(line.nodes.length, "node")}` : "";
  const called = line.callers ? `called what became ${plural(line.callers, "node")}` : "";
  const constants = line.constants.length ? `computed at export: ${line.constants.map(text).join(", ")}` : "";
  const removed = [...new Set(line.removed)].map(text).join(", ");
  const said = [namesOf(line), became, constants, removed, called].filter(Boolean).join("; ");
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
