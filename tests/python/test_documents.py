"""What README.md tells to type works as printed, in order. `make test-documents` does it after a fresh installation."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_commands_of_the_readme_run_in_order():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "run_documents.py")], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran, found = map(int, re.search(r"(\d+) of (\d+) blocks ran", done.stdout).groups())
    assert ran >= 5 and found - ran == 2, "all but the two that need a clone"


def test_links_and_pictures_of_the_documents_exist():
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
