# Every target sets up what it needs: a virtual environment in the tree, packages from the registries, the build.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
BUILD ?= build/$(notdir $(VENV))
export JOBS ?= 2
export PATH := $(abspath $(VENV))/bin:$(PATH)

C_SOURCES := $(shell git ls-files 'src/*.c' 'src/*.h' 'tests/*.c' 'tests/*.h' 'include/*.h' 2>/dev/null)

.PHONY: help demo test test-c test-text test-python test-programs test-forms forms test-full test-modules test-matrix test-matrix-short bench format lint races sanitize graft-tools test-graft graft-sample fuzz fuzz-short fuzz-programs fuzz-programs-checker fuzz-programs-readers build release goldens sample coverage coverage-count portability portability-tools accessibility wheels test-documents compile-elsewhere clean

help:
	@echo "make demo          export a small model, check it against JAX; leaves demo/model.onnx and demo/report.html"
	@echo "make test          all tests: C under sanitizers, Python, the other supported Python and JAX in short"
	@echo "make test-text     the text tests alone, seconds after a change; ARGS=--write writes the expected parts anew"
	@echo "make test-full     the Python tests with every variant of every layer, all activations, Keras' applications"
	@echo "make test-modules  which module was running, against the truth, for every equation of every layer and model"
	@echo "make test-matrix   the whole suite on the oldest and the newest supported Python and JAX"
	@echo "make bench         conversion time as a ratio of tracing time, memory, first export"
	@echo "make sanitize      the Python suite with the extension under AddressSanitizer and UBSan"
	@echo "make races         8 threads and 4 processes, 200 (COUNT=) exports each, to one path"
	@echo "make fuzz          ten minutes (SECONDS=) of fuzzing every command that reads a file"
	@echo "make fuzz-programs COUNT=10000   random JAX programs: exported, checked line by line, run against JAX"
	@echo "make forms         2000 (COUNT=) programs of every family of forms; what is not fused is listed"
	@echo "make test-graft    provenance put back after a dozen tools of others, which are installed first; prints a table"
	@echo "make coverage      what becomes of every primitive of the installed JAX; writes docs/primitives.md"
	@echo "make portability   run sixty models in the other runtimes; writes docs/portability.md"
	@echo "make portability-tools   run quantisers, converters and other tools on the same models"
	@echo "make goldens       write the expected graphs anew and show what changed"
	@echo "make accessibility the page of j2o report under axe-core; needs npm and Chromium"
	@echo "make wheels        source distribution and wheels in dist/, tested in fresh environments of every Python here"
	@echo "make test-documents   the commands of README.md in order, after a fresh installation of what is committed"
	@echo "make compile-elsewhere   the sources through clang and, for Windows, mingw-w64"
	@echo "make format, lint  clang-format and ruff"

$(VENV)/ready: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@echo "Setting up $(VENV): JAX, ONNX Runtime and the tools for the tests (a minute or two, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --upgrade pip
	@$(VENV)/bin/pip install --quiet -r requirements-dev.txt
	@touch $@

# The extension is built beside the package, so that the tree itself is importable.
build: $(VENV)/ready
	@tools/build_in_place.sh $(PY) $(BUILD)

# The same with all optimisations: what is installed, and what the benchmarks measure.
release: $(VENV)/ready
	@tools/build_in_place.sh $(PY) $(BUILD)-release -Db_lto=true -Doptimization=3

demo: build
	@$(PY) examples/demo.py --j2o $(BUILD)/j2o

test: lint test-c fuzz-short test-python test-programs test-forms test-matrix-short

test-c: $(VENV)/ready
	@tools/test_c.sh $(PY) build/sanitized

# The text tests alone, after a small build: make test-text ARGS="--write -k softmax"
test-text: $(VENV)/ready
	@tools/test_text.sh $(PY) build/text $(ARGS)

test-python: build
	@$(PY) -m pytest -n $(JOBS) tests/python

# Random programs, new ones for every change of the sources; a failure says how to run it again.
test-programs: build
	@$(PY) tests/fuzz/programs/run.py --count 200 --of-tree
	@$(PY) tests/fuzz/programs/run.py --count 40 --of-tree --readers

# Programs that say the same in other ways become the same operators: a few of every family, others for every change.
test-forms: build
	@$(PY) tests/forms/run.py --of-tree

forms: build
	@$(PY) tests/forms/run.py --count $(or $(COUNT),2000)

fuzz-programs: build
	@$(PY) tests/fuzz/programs/run.py --count $(or $(COUNT),10000)

fuzz-programs-checker: build
	@$(PY) tests/fuzz/programs/run.py --count $(or $(COUNT),2000) --checker-only

fuzz-programs-readers: build
	@$(PY) tests/fuzz/programs/run.py --count $(or $(COUNT),2000) --readers

# Every layer and model, not only the sample of them.
test-full: build
	@$(PY) -m pytest -n $(JOBS) -m "full or not full" tests/python

test-modules: build
	@KERAS_BACKEND=jax PYTHONPATH=. $(PY) tests/python/module_truth.py

test-matrix: $(VENV)/ready
	@$(PY) tools/test_matrix.py

test-matrix-short: $(VENV)/ready
	@$(PY) tools/test_matrix.py --short

bench: release
	@$(PY) bench/run.py

# Threads and processes that export to one path: 8 × 200 and 4 × 200, with one file and with two.
races: build
	@JAX2ONNX_EXPORTS_AT_ONCE=$(or $(COUNT),200) $(PY) -m pytest -n 0 tests/python/test_output.py -k export_to_one_path

sanitize: $(VENV)/ready
	@tools/test_c.sh $(PY) build/sanitized
	@tools/test_sanitized.sh $(PY) build/sanitized-extension

# Other people's tools, in an environment of their own, on models of ours: how much provenance comes back after each.
GRAFT_VENV ?= .venv-graft
GRAFT := build/graft
graft-tools: $(GRAFT_VENV)/ready
$(GRAFT_VENV)/ready: tests/graft/requirements.txt
	$(PYTHON) -m venv $(GRAFT_VENV)
	$(GRAFT_VENV)/bin/pip install --quiet -r tests/graft/requirements.txt
	touch $@

test-graft: build $(GRAFT_VENV)/ready
	@PYTHONPATH=. $(PY) tests/graft/programs.py $(GRAFT)/models
	@$(GRAFT_VENV)/bin/python tests/graft/foreign_tools.py $(GRAFT)/models $(GRAFT)/processed
	@$(PY) tests/graft/truth.py $(GRAFT)/models $(GRAFT)/processed
	@$(PY) tests/graft/measure.py $(BUILD)/j2o $(GRAFT)/models $(GRAFT)/processed

# The sample that the tests of every day use, cut out of the same models.
graft-sample: test-graft
	@$(PY) tests/graft/sample.py $(GRAFT)/models $(GRAFT)/processed tests/data/graft_sample.zip

fuzz: $(VENV)/ready
	@tools/fuzz.sh $(PY) build/fuzz $(or $(SECONDS),600)

# Two minutes of it, with inputs that follow from the sources.
fuzz-short: $(VENV)/ready
	@tools/fuzz.sh $(PY) build/fuzz 120

format: $(VENV)/ready
	@clang-format -i $(C_SOURCES)
	@ruff check -q --fix . ; ruff format -q .

lint: $(VENV)/ready
	@clang-format --dry-run -Werror $(C_SOURCES)
	@ruff format -q --check . && ruff check -q .
	@$(PY) tools/check_house.py

# The golden files and the stored sample, written anew; docs/testing.md says when.
goldens: build
	@$(PY) tools/goldens.py

sample: build
	@$(PY) tools/make_sample.py

# Where the models run: installs runtimes under build/portability, writes docs/portability.md and the stored runs.
portability: build
	@KERAS_BACKEND=jax $(PY) tools/portability/measure.py $(ARGS)
	@$(MAKE) portability-tools ARGS=

# What quantisers, converters and other tools make of the same models: accepted, and the numbers still JAX's.
portability-tools: build
	@KERAS_BACKEND=jax $(PY) tools/portability/tools.py $(ARGS)

coverage: build
	@$(PY) tools/coverage.py --write

# The same with the number of tests for each primitive counted anew: runs the suite.
coverage-count: build
	@rm -f build/primitives.txt
	@COUNT_PRIMITIVES=$(abspath build/primitives.txt) $(PY) -m pytest -n $(JOBS) --tb=no tests/python || true
	@$(PY) tools/coverage.py --count build/primitives.txt --write

# axe-core comes from the registry of npm, into the build folder.
accessibility: build
	@npm install --silent --no-save --prefix build/axe axe-core@4
	@$(PY) -m pytest -n 0 tests/python/test_report_accessibility.py

# What is committed, as it is published: docs/testing.md says what is tried.
wheels: $(VENV)/ready
	@$(PY) tools/wheels.py $(ARGS)

test-documents: $(VENV)/ready
	@$(PY) tools/run_documents.py --fresh

compile-elsewhere: build
	@$(PY) tools/compile_elsewhere.py $(BUILD)/src

clean:
	rm -rf build demo dist .matrix jax2onnx/_core*.so
