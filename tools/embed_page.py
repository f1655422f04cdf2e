"""Writes the page of ``j2o report`` as texts of C.

usage: embed_page.py PAGE.html PAGE.css SCRIPT.js... OUT.inc

The page names its style and scripts by lines ``@STYLE@`` and ``@SCRIPT@``; ``@DATA@`` is where a model's data go, so it
is what divides the two texts. The scripts see each other's names, and nobody else does.
"""

import pathlib
import sys


def c_text(name: str, text: str) -> str:
    lines = [line.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?") for line in text.split("\n")]
    quoted = '\\n"\n    "'.join(lines)
    return f'static const char {name}[] =\n    "{quoted}";\n'


def main() -> None:
    html, style, *scripts = (pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:-1])
    before, after = html.rstrip("\n").replace("@STYLE@", style.rstrip("\n")).split("@DATA@")
    after = after.replace("@SCRIPT@", '(() => {\n"use strict";\n' + "\n".join(scripts) + "})();")
    text = c_text("page_before", before) + c_text("page_after", after + "\n")
    pathlib.Path(sys.argv[-1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
