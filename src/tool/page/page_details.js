// Details of what is chosen.
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
    if (value < 0) return [make("li", "quiet", "(omitted)")];
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
    const library = isLibrary && content ? documents.find((one) => one.file === file) : null;
    if (library) item.append(link(label, () => { showRow(library, number - 1); byId("lines").focus(); }));
    else if (isLibrary) item.append(label);
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
  showChosen();
  details.classList.toggle("empty", state.node < 0 && state.level < 0);
  if (state.node < 0 && state.level >= 0) {
    details.append(...levelDetails(state.level));
    return;
  }
  if (state.node < 0) {
    details.append(make("p", "quiet", data.nodes.length ? "Select a node or a line to see where it came from." : "The model has no nodes."));
    return;
  }
  const node = data.nodes[state.node], line = nodeLine[state.node];
  const title = make("h2", "", `${text(node[NAME]) || "(no name)"}: ${text(node[OPERATOR])}`);
  const origin = make("p");
  if (line) {
    const where = line.file < 0 ? "" : ` in ${text(data.files[line.file][0])}`;
    origin.append("at ", link(`${text(data.places[node[PLACE]][2])}:${line.line}`, () => { showLine(line); byId("lines").focus(); }), make("span", "quiet", where));
  } else {
    origin.append(make("span", "quiet", "This node has no provenance."));
  }
  if (node[PLUGIN] >= 0) origin.append(make("span", "quiet", `, by ${text(node[PLUGIN])}`));
  if (wholeTime[state.node]) {
    const whole = wholeTime[state.node], own = nodeTime[state.node];
    origin.append(`, ${duration(whole)}${own < whole ? `, ${duration(own)} of it self` : ""}`);
  }
  details.append(title, origin);
  if (comparing) details.append(...changeDetails(state.node));
  const called = functions.get(`${sideOf(state.node)}/${node[OPERATOR]}`);
  if (called !== undefined) {
    details.append(make("p", "", "calls ", link(`function ${text(node[OPERATOR])}`, () => members[called].length && goToNode(members[called][0]))));
  }
  const owner = data.graphs[node[GRAPH]][2];
  if (owner >= 0) details.append(make("p", "", "inside ", link(`${text(data.nodes[owner][OPERATOR])} ${text(data.nodes[owner][NAME])}`, () => goToNode(owner))));
  const columns = make("div", "columns");
  if (node[TRACE] >= 0) columns.append(section("Trace, innermost first", traceItems(data.traces[node[TRACE]]), "ol"));
  const values = make("div", "", "", section("Inputs", neighbours(node[INPUTS], "from")), section("Outputs", neighbours(node[OUTPUTS], "to")));
  if (node[FACTS].length) values.append(section("Attributes", node[FACTS].map((fact) => make("li", "", text(fact)))));
  if (node[CALLS] >= 0) values.append(section("Converter call stack, outermost first", text(node[CALLS]).split("\n").map((call) => make("li", "quiet", call)), "ol"));
  columns.append(values);
  details.append(columns);
}

// What is chosen, in one line, which screen readers read out.
function showChosen() {
  const element = byId("chosen");
  if (state.node >= 0) element.textContent = boxTitle(state.node * 4 + BOX_NODE).replace("\n", " · ");
  else if (state.level >= 0) element.textContent = `${levelPath(state.level)}: ${levelLook(state.level).rows[0]}`;
  else element.textContent = "Click a box to open it; drag to pan.";
  element.title = element.textContent;
}

function levelDetails(number) {
  const summary = summaryOf(number), { what } = drawing.levels[number];
  const facts = [text(what), plural(summary.nodes, "node")];
  if (summary.bytes) facts.push(size(summary.bytes));
  if (data.times) facts.push(duration(summary.time));
  const operators = [...summary.operators].sort((a, b) => b[1] - a[1]).map(([operator, count]) => make("li", "", `${text(operator)} `, make("span", "quiet", String(count))));
  const found = levelLines(number).slice(0, LISTED).map(([line, count]) =>
    make("li", "", "", link(`${namesOf(line)}:${line.line}`, () => { showLine(line); chooseLine(line); }), make("span", "quiet", ` ${plural(count, "node")}`)));
  const columns = make("div", "columns", "", section("Operators", operators));
  if (found.length) columns.append(section("Lines", found));
  return [make("h2", "", levelPath(number)), make("p", "quiet", facts.filter(Boolean).join(" · ")), columns];
}

function levelLines(number) {
  const counts = new Map();
  drawing.eachNode(number, (index) => nodeLine[index] && counts.set(nodeLine[index], (counts.get(nodeLine[index]) || 0) + 1));
  return [...counts].sort((a, b) => b[1] - a[1]);
}
