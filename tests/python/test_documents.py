"""What README.md tells the reader to type works as printed. `make test-documents` runs the other pages too."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_documents(*pages: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "run_documents.py"), *map(str, pages)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_the_commands_of_the_readme_run_in_order():
    done = run_documents(ROOT / "README.md")
    assert done.returncode == 0, done.stdout + done.stderr
    (ran,) = re.findall(r"README.md: (\d+) blocks ran as printed", done.stdout)
    found = len(re.findall(r"^```(?:sh|console|python)", (ROOT / "README.md").read_text(), re.M))
    assert int(ran) == found - 2, "all but the two that need a clone"


PAGE = """\
<!-- run
echo hidden > file
-->
```console
$ cat file
{first}
```

```python file=program.py
print(1 + 1)
```

<!-- numbers vary -->
```console
$ python program.py; echo more
{second}
more
```
"""


def test_what_is_printed_is_compared(tmp_path):
    page = tmp_path / "page.md"
    for first, second, right in (
        ("hidden", "7", True),
        ("other", "7", False),
        ("hid…", "7", True),
        ("hidden", "x", False),
    ):
        page.write_text(PAGE.format(first=first, second=second))
        done = run_documents(page)
        assert (done.returncode == 0) == right, done.stdout + done.stderr


def test_a_block_that_fails_is_told(tmp_path):
    (tmp_path / "page.md").write_text("```sh\necho before; false\n```\n")
    done = run_documents(tmp_path / "page.md")
    assert done.returncode == 1 and "this fails with 1" in done.stdout and "before" in done.stdout


def test_links_and_pictures_of_the_documents_exist():
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
