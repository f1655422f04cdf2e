"""Tests run against the package in this tree."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# Every export of every test proves that its passes lost no provenance and left a sound graph.
os.environ.setdefault("JAX2ONNX_CHECK_PASSES", "1")
# What JAX gives is compared once: the time that XLA would take to optimise it is longer.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Keras chooses when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

if os.environ.get("JAX2ONNX_REPLAY", "1") != "0":
    from replay_check import replay_every_export

    replay_every_export()

if os.environ.get("CONVERT_ONLY") or os.environ.get("COUNT_PRIMITIVES"):
    from convert_only import convert_only  # noqa: F401

if os.environ.get("COUNT_PRIMITIVES"):
    from primitive_counter import count_primitives  # noqa: F401


def pytest_addoption(parser):
    parser.addoption("--no-browser", action="store_true", help="leave out what a browser is needed for")
    parser.addoption("--shard", metavar="K/N", help="run every Nth case, beginning with the Kth: 1/8 to 8/8 are all")


def pytest_collection_modifyitems(config, items):
    shard = config.getoption("--shard")
    if shard:
        first, count = map(int, shard.split("/"))
        items[:] = items[first - 1 :: count]


@pytest.fixture(scope="module")
def browser(request, tmp_path_factory):
    from browser import Browser, find_browser

    if request.config.getoption("--no-browser"):
        pytest.skip("--no-browser")
    program = find_browser()
    if not program:
        pytest.skip("no Chromium or Chrome in PATH")
    browser = Browser(program, str(tmp_path_factory.mktemp("browser")))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of a model; at the end there must be no complaint, and nothing else loaded."""
    from page_check import report

    pages = []

    def open_page(model, *options, **settings):
        page = browser.open(report(model, tmp_path, *options).as_uri(), **settings)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert page.complaints() == []
        assert len(page.requests()) == 1
