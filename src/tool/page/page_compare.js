// Two models: what is new, gone or changed from the one that this model is compared with.

const comparing = data.against !== undefined;
const SIGNS = { new: "+", gone: "−", changed: "~" };
const changes = new Map((data.changes || []).map(([node, kind, facts]) => [node, { kind, facts }]));
const sideOf = (index) => (comparing && index >= data.first ? 1 : 0);
const modelName = (side) => (side ? data.against : data.model);

// Two nodes that are one, changed, count once.
function countChanges(nodes) {
  const counts = { new: 0, gone: 0, changed: 0 }, all = new Set(nodes);
  for (const index of all) {
    const change = changes.get(index);
    if (change && !(sideOf(index) && all.has(data.matches[index]))) counts[change.kind]++;
  }
  return counts;
}
const changesText = (counts) => Object.keys(SIGNS).filter((kind) => counts[kind]).map((kind) => `${SIGNS[kind]}${counts[kind]}`).join(" ");

const lineChanges = new Map();
function changesOfLine(line) {
  if (!lineChanges.has(line)) lineChanges.set(line, countChanges(line.nodes));
  return lineChanges.get(line);
}
const levelChanges = [];
function changesOfLevel(number) {
  if (!levelChanges[number]) {
    const nodes = [];
    drawing.eachNode(number, (index) => nodes.push(index));
    levelChanges[number] = changesText(countChanges(nodes));
  }
  return levelChanges[number];
}

function signElement(index) {
  const change = changes.get(index);
  const element = make("span", change ? `sign ${change.kind}` : "sign", change ? SIGNS[change.kind] : "");
  if (change) element.title = change.kind;
  return element;
}

// What to say of a node in the details.
function changeDetails(index) {
  const change = changes.get(index), other = data.matches[index], said = make("p");
  const kind = { new: `new: ${data.against} has no such node`, gone: `gone: ${data.model} has no such node`, changed: "changed" };
  said.append(make("b", change ? `sign ${change.kind}` : "", change ? kind[change.kind] : "unchanged"));
  if (other >= 0) said.append(`, ${text(data.nodes[other][NAME])} in `, link(modelName(sideOf(other)), () => goToNode(other)));
  const parts = [said];
  if (change && change.facts.length) parts.push(section("What changed", change.facts.map((fact) => make("li", "", text(fact)))));
  return parts;
}
