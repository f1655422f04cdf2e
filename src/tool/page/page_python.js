// Colours for Python: a line at a time, with what a string over several lines leaves open.

const PYTHON_WORDS = new Set(("False None True and as assert async await break class continue def del elif else except " +
  "finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "));
const PYTHON_TOKEN = /(#.*)|([rRbBuUfF]{0,2}(?:"""|'''))|([rRbBuUfF]{0,2}(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?))|(@[\w.]+)|(\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?j?)\b)|([\p{L}_][\p{L}\p{N}_]*)|(\s+|.)/gu;

// Pieces [class, text] of a line; `open` is the quote of a string that began above, or "".
function pythonPieces(line, open) {
  const pieces = [];
  let at = 0;
  const closing = (from, quote) => {
    for (let end = from; (end = line.indexOf(quote, end)) >= 0; end++) if (line[end - 1] !== "\\") return end + 3;
    return -1;
  };
  if (open) {
    const end = closing(0, open);
    pieces.push(["string", end < 0 ? line : line.slice(0, end)]);
    if (end < 0) return { pieces, open };
    at = end;
  }
  PYTHON_TOKEN.lastIndex = at;
  let before = "";
  for (let match; at < line.length && (match = PYTHON_TOKEN.exec(line)); at = PYTHON_TOKEN.lastIndex) {
    const [found, comment, triple, string, decorator, number, word] = match;
    if (triple) {
      const quote = triple.slice(-3), end = closing(match.index + triple.length, quote);
      pieces.push(["string", end < 0 ? line.slice(match.index) : line.slice(match.index, end)]);
      if (end < 0) return { pieces, open: quote };
      PYTHON_TOKEN.lastIndex = end;
    } else {
      const isDecorator = decorator && !line.slice(0, match.index).trim();
      const named = word && (before === "def" || before === "class");
      const kind = comment ? "comment" : string ? "string" : isDecorator ? "decorator" : number ? "number"
        : named ? "defined" : word && PYTHON_WORDS.has(word) ? "keyword" : "";
      pieces.push([kind, found]);
      if (found.trim()) before = word || "";
    }
  }
  return { pieces, open: "" };
}

// For every line of a file, the quote that is open where it begins.
function pythonOpenings(content) {
  let open = "";
  return content.map((line) => {
    const begins = open;
    open = pythonPieces(line, open).open;
    return begins;
  });
}
