"""The guides for adding a lowering and a pass, done as they say on a copy of the tree; its text tests must pass."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r'^(?P<indent> *)```\w+ file=(?P<file>\S+)(?: before="(?P<before>[^\n]*)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)


def apply_guide(page: str, tree: pathlib.Path) -> list[str]:
    """Writes the page's files and puts its lines where it says; gives the text tests among them."""
    tests = []
    for block in _BLOCK.finditer((ROOT / "docs" / page).read_text(encoding="utf-8")):
        path, before = tree / block["file"], block["before"]
        indent = len(block["indent"])
        text = "".join(line[indent:] or "\n" for line in block["text"].splitlines(keepends=True))
        if before is None:
            path.write_text(text, encoding="utf-8")
        else:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            wanted = before.replace('\\"', '"')
            (place,) = [index for index, line in enumerate(lines) if wanted in line]
            path.write_text("".join(lines[:place]) + text + "".join(lines[place:]), encoding="utf-8")
        if block["file"].startswith("tests/"):
            tests.append(block["file"])
    return tests


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if not shutil.which("cc") or not shutil.which("ninja"):
        pytest.skip("no C compiler, or no ninja")
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in listed:
        if not name.startswith(("tests/python/", "tests/lower/", "tests/passes/", "docs/", "bench/")):
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    for folder in ("lower", "passes"):
        (tree / "tests" / folder).mkdir(parents=True)
    tests = {page: apply_guide(page, tree) for page in ("adding_a_lowering.md", "adding_a_pass.md")}
    return tree, tests


@pytest.mark.parametrize("page", ["adding_a_lowering.md", "adding_a_pass.md"])
def test_a_guide_works(built, page):
    tree, tests = built
    assert tests[page]
    command = ["tools/test_text.sh", sys.executable, "build/text", *tests[page]]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, textwrap.indent(done.stdout[-4000:] + done.stderr, "  ")
    assert re.search(r"[1-9]\d* text tests passed, 0 failed", done.stdout)
