"""Exports without running them, for tools/test_sanitized.sh: on when CONVERT_ONLY is set.

Whether the numbers are right is what the suite itself finds out. Under sanitizers only the converter is of interest:
every program is converted, with the passes checked, and nothing is run or compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import MagicMock

import export_check
import pytest


@pytest.fixture(autouse=True)
def convert_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for check in ("check_model", "compare", "onnxruntime"):
        monkeypatch.setattr(export_check, check, MagicMock())
    yield
