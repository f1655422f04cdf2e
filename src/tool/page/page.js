// Choosing, pointing, controls and keys.

// ---- choosing and pointing ----

function markAll() {
  sourceList.mark();
  nodeList.mark();
  drawOverview();
  drawGraph();
}

// ---- links: the address says what is chosen ----

const linkOf = () => {
  if (state.node >= 0) return `node=${encodeURIComponent(text(data.nodes[state.node][NAME]) || `:${state.node}`)}`;
  if (state.level > 0) return `box=${state.level}`;
  if (state.line) return `line=${encodeURIComponent(state.line.file < 0 ? namesOf(state.line) : shortName(text(data.files[state.line.file][0])))}:${state.line.line}`;
  return "";
};

function writeLink() {
  const wanted = linkOf();
  if (wanted === location.hash.slice(1)) return;
  try { // a page inside another one may not change its address
    history.replaceState(null, "", wanted ? `#${wanted}` : location.pathname + location.search);
  } catch {
    return;
  }
}

function followLink() {
  const [, kind, value] = /^#(node|box|line)=(.*)$/.exec(location.hash) || [];
  if (!kind || location.hash.slice(1) === linkOf()) return;
  let wanted;
  try {
    wanted = decodeURIComponent(value);
  } catch {
    return; // somebody typed it
  }
  if (kind === "node") {
    const index = wanted[0] === ":" ? Number(wanted.slice(1)) : data.nodes.findIndex((node) => text(node[NAME]) === wanted);
    if (data.nodes[index]) goToNode(index);
  } else if (kind === "box") {
    const number = Number(wanted);
    if (!drawing.levels[number] || number < 1) return;
    drawing.revealLevel(number);
    chooseLevel(number);
    picture.show(drawing.place(number));
  } else {
    const line = [...lines.values()].find((one) => `${one.file < 0 ? namesOf(one) : shortName(text(data.files[one.file][0]))}:${one.line}` === wanted);
    if (!line) return;
    showLine(line);
    chooseLine(line);
  }
}

function setLine(line) {
  state.line = line;
  byId("only").disabled = !line && !state.only;
}

function chooseNode(index, follow, from) {
  state.node = index;
  if (index >= 0) state.level = -1;
  if (index >= 0 && !state.only) setLine(nodeLine[index]);
  if (follow && index >= 0) showLine(nodeLine[index]);
  if (from !== "graph") showInGraph(index, true);
  showDetails();
  if (nodeList.active >= 0) nodeList.show(nodeList.active, false);
  markAll();
  writeLink();
}

function chooseLine(line) {
  setLine(line);
  if (state.only) listNodes();
  const first = line ? line.nodes.find((index) => state.rowOfNode[index] >= 0) : undefined;
  if (first !== undefined) {
    state.node = first;
    showInGraph(first, false);
    nodeList.active = state.rowOfNode[first];
    showDetails();
    nodeList.show(nodeList.active, true);
  }
  markAll();
  writeLink();
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
  state.only = state.changed = false;
  byId("changed").setAttribute("aria-pressed", "false");
  byId("only").setAttribute("aria-pressed", "false");
}

function setOnly(only) {
  if (only && !state.line) return;
  state.only = only;
  byId("only").setAttribute("aria-pressed", String(only));
  listNodes();
}

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

// Files by folder; the part of the path that all have in common is left out.
function fillFiles() {
  const folders = new Map();
  documents.forEach((shown, index) => {
    const folder = shown.file < 0 ? "" : shown.title.slice(0, Math.max(0, shown.title.length - shortName(shown.title).length - 1));
    if (!folders.has(folder)) folders.set(folder, []);
    folders.get(folder).push(option(String(index), shown.isLibrary ? shortName(shown.title) : `${shortName(shown.title)} (${plural(shown.count, "node")})`));
  });
  const names = [...folders.keys()].filter((name) => name && !/\/(site|dist)-packages\//.test(`${name}/`)).map((name) => name.split("/"));
  let common = 0;
  while (names.length > 1 && names.every((name) => common < name.length - 1 && name[common] === names[0][common])) common++;
  for (const [folder, options] of folders) {
    const [, inLibrary] = /\/(?:site|dist)-packages\/(.*)$/.exec(folder) || [];
    const label = inLibrary ? `library ${inLibrary}` : common ? `…/${folder.split("/").slice(common).join("/")}` : folder;
    if (folder) byId("file").append(group(label, options));
    else byId("file").append(...options);
  }
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
  byId("heat").append(option("none", "No heat"), option("count", "Heat: nodes"), option("memory", "Heat: memory"));
  if (data.times) byId("heat").append(option("time", "Heat: time"));
  if (comparing) byId("heat").append(option("changes", "Changes"));
  byId("heat").value = state.heat;
  fillFiles();
  byId("source").hidden = byId("divider").hidden = !documents.length;
  document.title = `${data.model} · j2o report`;
  byId("title").textContent = comparing ? `${data.model} against ${data.against}` : data.model;
  byId("changed").hidden = !comparing;
  const changed = comparing ? changesText(countChanges(data.nodes.keys())) || "no changes" : "";
  const facts = [changed, plural(data.nodes.length, "node"), plural(operators.length, "operator"), `opset ${data.opset}`, data.producer];
  if (data.times) facts.push(duration(nodeTime.reduce((sum, time) => sum + time, 0)));
  byId("summary").textContent = facts.filter(Boolean).join(" · ");
  if (!names.length) {
    byId("notice").textContent = data.help[0].toUpperCase() + data.help.slice(1).replace(/\n/g, " ");
    byId("notice").hidden = false;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  picture.later();
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
  byId("changed").addEventListener("click", () => {
    state.changed = !state.changed;
    byId("changed").setAttribute("aria-pressed", String(state.changed));
    listNodes();
  });
  byId("file").addEventListener("change", () => showDocument(documents[Number(byId("file").value)]));
  byId("heat").addEventListener("change", () => {
    state.heat = byId("main").dataset.heat = byId("heat").value;
    sourceList.reset(sourceList.count, sourceList.active);
    nodeList.reset(nodeList.count, nodeList.active);
    drawGraph();
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
      chooseRow(at);
    }
  });
  byId("everything").addEventListener("click", () => {
    showEverything();
    listNodes();
    byId("search").focus();
  });
  byId("lines").addEventListener("mouseover", (event) => point(state.shown.rows[sourceList.rowAt(event)]?.line || null, -1));
  byId("nodes").addEventListener("mouseover", (event) => {
    const node = state.rows[nodeList.rowAt(event)]?.node ?? -1;
    point(nodeLine[node] || null, node);
  });
  for (const id of ["lines", "nodes"]) byId(id).addEventListener("mouseleave", () => point(null, -1));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", followLink);
  listenDivider("divider", "--source-width", 15, 80, (part) => part * 100);
  listenDivider("list-divider", "--list-width", 15, 60, (part) => (1 - part) * 100);
  listenGraph();
}

function onListKey(event) {
  const inNodes = event.target === byId("nodes");
  const list = inNodes ? nodeList : event.target === byId("lines") ? sourceList : null;
  if (event.target === byId("picture")) return onGraphKey(event.key);
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
  if (event.key === "Escape" && !byId("keys").hidden) {
    byId("help").click();
  } else if (event.key === "Escape") {
    const filtered = currentFilter() !== null;
    showEverything();
    if (!filtered && !typing) {
      setLine(null);
      state.level = -1;
      chooseNode(-1, false);
    }
    listNodes();
    if (typing) byId("nodes").focus();
  } else if (typing) {
    taken = event.key === "Enter" || event.key === "ArrowDown";
    if (taken && state.rows.length) {
      const first = Math.max(0, state.rows.findIndex((row) => row.node >= 0 || row.found));
      nodeList.active = first;
      nodeList.show(first, true);
      chooseRow(first);
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

function listenDivider(id, property, least, largest, percentAt) {
  const divider = byId(id);
  const setWidth = (percent) => {
    const width = Math.round(Math.min(largest, Math.max(least, percent)));
    byId("main").style.setProperty(property, `${width}%`);
    divider.setAttribute("aria-valuenow", width);
  };
  divider.addEventListener("pointerdown", (event) => divider.setPointerCapture(event.pointerId));
  divider.addEventListener("pointermove", (event) => {
    if (divider.hasPointerCapture(event.pointerId)) setWidth(percentAt(event.clientX / byId("main").clientWidth));
  });
  divider.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowRight: 2 }[event.key] * (percentAt(1) ? 1 : -1);
    if (step) setWidth(Number(divider.getAttribute("aria-valuenow")) + step);
  });
}

// On a narrow screen one of the three is seen at a time.
function showPane(name) {
  byId("main").dataset.pane = name;
  for (const tab of byId("panes").children) tab.setAttribute("aria-selected", String(tab.dataset.pane === name));
}

function listenGraph() {
  for (const tab of byId("panes").children) tab.addEventListener("click", () => showPane(tab.dataset.pane));
  byId("colour").value = state.colour;
  byId("colour").addEventListener("change", () => setColour(byId("colour").value));
  byId("fit").addEventListener("click", () => picture.fit());
  byId("zoom-in").addEventListener("click", () => picture.zoom(1.25));
  byId("zoom-out").addEventListener("click", () => picture.zoom(0.8));
  byId("close-all").addEventListener("click", () => {
    drawing.setAll(false);
    picture.start();
    drawGraph();
  });
}

byId("main").dataset.heat = state.heat;
showPane("drawing");
fillControls();
listen();
sourceList.reset(state.shown.rows.length, -1);
listNodes();
showDetails();
const first = state.shown.rows.findIndex((row) => row.line && row.line.nodes.length);
if (first >= 0) sourceList.show(first, true);
followLink();
