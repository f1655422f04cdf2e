"""Runs what README.md and docs/*.md tell the reader to type, in order, and compares what is printed.

Usage: run_documents.py [--fresh | --commands FOLDER] [--write] [PAGE ...]

Each page is one shell session with an empty HOME and no virtual environment active:

- a ```sh block must succeed;
- in a ```console block, what each `$ command` prints must be what the page shows. A line of `…` stands for any number
  of lines, `…` inside a line for any text. The line of the converter's source behind `by NAME:` may be any.
- a ```python block is run; with `file=NAME` it is written to that file instead;
- a comment before a block says more: <!-- clone --> the block is for a clone of the repository; <!-- numbers vary -->
  the numbers printed differ from run to run; <!-- not run: reason -->; <!-- run (commands) --> are commands
  that the reader does not see, and <!-- given (code) --> is Python that the next ```python block relies on.

With --fresh, `make demo` runs first in a fresh clone of what is committed, then README.md with everything it installs,
then the other pages with that installation. Without it the commands are those of this interpreter and this tree, and
blocks for a clone are left out; --commands takes the commands from another folder. --write puts what was printed into
the console blocks.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
ELEMENT = re.compile(
    r"^<!-- (?P<remark>.*?)\s*-->$"
    r"|^```(?P<language>sh|console|python)(?P<settings>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PASSED_ON = ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_TRUSTED_HOST", "SSL_CERT_FILE", "JOBS")


@dataclass
class Step:
    """Commands for the shell, and what they must print."""

    commands: str
    place: tuple[int, int] | None = None  # of the expected output in the page's text
    expected: str = ""
    numbers_vary: bool = False
    printed: str = ""


@dataclass
class Page:
    path: pathlib.Path
    text: str
    steps: list[Step] = field(default_factory=list)
    blocks: int = 0


def console_steps(text: str, offset: int, numbers_vary: bool) -> list[Step]:
    """A step for each `$ command`; a command that ends in a backslash goes on in the next line."""
    steps = []
    for found in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        place = (offset + found.start(2), offset + found.end(2))
        steps.append(Step(found[1], place, found[2], numbers_vary))
    return steps


def read_page(path: pathlib.Path, fresh: bool) -> Page:
    page = Page(path, path.read_text(encoding="utf-8"))
    remarks: list[str] = []
    for found in ELEMENT.finditer(page.text):
        if found["remark"] is not None:
            if found["remark"].startswith("run\n"):
                page.steps.append(Step(found["remark"][4:]))
            else:
                remarks.append(found["remark"])
            continue
        text, file = found["text"], re.search(r"file=(\S+)", found["settings"])
        given = "".join(remark[6:] + "\n" for remark in remarks if remark.startswith("given\n"))
        left_out = any(remark.startswith("not run") for remark in remarks) or ("clone" in remarks and not fresh)
        if not left_out:
            page.blocks += 1
            if "clone" in remarks and path.name != "README.md":
                page.steps.append(Step(f'(cd "$CLONE"\n{text})'))
            elif found["language"] == "console":
                page.steps += console_steps(text, found.start("text"), "numbers vary" in remarks)
            elif file:
                page.steps.append(Step(f"cat > {file[1]} <<'END_OF_FILE'\n{text}END_OF_FILE"))
            elif found["language"] == "python":
                page.steps.append(Step(f"python - <<'END_OF_FILE'\n{given}{text}END_OF_FILE"))
            else:
                page.steps.append(Step(text))
        remarks = []
    return page


def script(steps: list[Step], outputs: pathlib.Path) -> str:
    """One shell runs all steps, so that folders and environments last. A step that shows its output may fail."""
    parts = ["set -eu"]
    for number, step in enumerate(steps):
        may_fail = " || true" if step.place else ""
        parts.append(f"{{\n{step.commands}\n}} > {shlex.quote(str(outputs / str(number)))} 2>&1{may_fail}")
    return "\n".join(parts) + "\n"


def pattern(line: str, numbers_vary: bool) -> str:
    wanted = re.escape(line.rstrip()).replace("…", ".*")
    wanted = re.sub(r"((?:^|\\ )by\\ [\w.]+:)\d+", r"\1\\d+", wanted)
    if numbers_vary:
        wanted = re.sub(r"\d[\d,]*(?:\\\.\d+)?", r"[\\d.,]+", wanted)
        wanted = re.sub(r"(?:\\ )+", r" +", wanted)
        wanted = re.sub(r"\b(?:B|KiB|MiB)\b", "(?:B|KiB|MiB)", wanted)
    return wanted


def agrees(step: Step) -> bool:
    lines = []
    for line in step.expected.splitlines():
        whole = line.strip() == "…"
        lines.append(r"(?:.*\n)*?" if whole else pattern(line, step.numbers_vary) + r" *\n")
    printed = "".join(line.rstrip() + "\n" for line in step.printed.splitlines())
    return re.fullmatch("".join(lines), printed) is not None


def run_page(page: Page, folder: pathlib.Path, environment: dict[str, str]) -> str | None:
    """What went wrong, if anything."""
    with tempfile.TemporaryDirectory() as name:
        outputs = pathlib.Path(name)
        done = subprocess.run(
            ["bash"], input=script(page.steps, outputs), cwd=folder, env=environment, capture_output=True, text=True
        )
        for number, step in enumerate(page.steps):
            if (outputs / str(number)).exists():
                step.printed = (outputs / str(number)).read_text(encoding="utf-8", errors="replace")
                last = step
    if done.returncode != 0:
        return f"{page.path.name}: this fails with {done.returncode}:\n{last.commands}\n{last.printed}{done.stderr}"
    wrong = [step for step in page.steps if step.place and not agrees(step)]
    return "\n".join(
        f"{page.path.name}: `{step.commands}` prints\n{step.printed}instead of\n{step.expected}" for step in wrong
    )


def write_outputs(page: Page) -> None:
    for step in reversed(page.steps):
        if step.place and not agrees(step):
            shown = "".join(line.rstrip() + "\n" for line in step.printed.splitlines())
            page.text = page.text[: step.place[0]] + shown + page.text[step.place[1] :]
    page.path.write_text(page.text, encoding="utf-8")


def shims(folder: pathlib.Path) -> None:
    """The commands of an installation, from this tree."""
    folder.mkdir()
    for name, words in (("python", ""), ("jax2onnx", "-m jax2onnx"), ("j2o", "-m jax2onnx")):
        file = folder / name
        file.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {words} "$@"\n')
        file.chmod(0o755)


def demo(tree: pathlib.Path, environment: dict[str, str]) -> None:
    """`make demo` in a fresh clone, and the commands that it prints."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    done = subprocess.run(["make", "demo"], cwd=tree, env=environment, capture_output=True, text=True)
    commands = done.stdout.partition("Now try:\n")[2]
    if done.returncode != 0 or commands.count("\n") < 3:
        sys.exit(f"make demo fails:\n{done.stdout}{done.stderr}")
    done = subprocess.run(["bash", "-euc", commands], cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the commands that make demo prints fail:\n{commands}{done.stdout}{done.stderr}")
    print("make demo: the commands that it prints ran", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--commands", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    pages = options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        home, scripts, tree = folder / "home", folder / "bin", folder / "clone"
        home.mkdir()
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "CLONE": str(tree)}
        environment |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if options.fresh:
            demo(tree, environment)
            scripts = tree / ".venv" / "bin"
        elif options.commands:
            scripts = options.commands.absolute()
        else:
            shims(scripts)
        for path in pages:
            page = read_page(path.resolve(), options.fresh)
            if not page.steps:
                continue
            is_readme = options.fresh and path.name == "README.md"
            work = tree if is_readme else folder / path.stem
            work.mkdir(exist_ok=True)
            settings = environment if is_readme else {**environment, "PATH": f"{scripts}:{environment['PATH']}"}
            wrong = run_page(page, work, settings)
            if options.write:
                write_outputs(page)
            print(wrong or f"{path.name}: {page.blocks} blocks ran as printed", flush=True)
            failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
