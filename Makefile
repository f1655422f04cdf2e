# Every target sets up what it needs: a virtual environment in the tree, packages, the build.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
BUILD ?= build/$(notdir $(VENV))
JOBS ?= 2

.PHONY: demo test bench format lint sanitize build goldens sample clean

$(VENV)/ready: requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade pip
	$(VENV)/bin/pip install --quiet -r requirements-dev.txt
	touch $@

# The extension is built beside the package, so that the tree itself is importable.
build: $(VENV)/ready
	@PATH="$(abspath $(VENV))/bin:$$PATH" tools/build_in_place.sh $(PY) $(BUILD)

# The golden files and the stored sample, written anew; docs/testing.md says when.
goldens: build
	$(PY) tools/goldens.py

sample: build
	$(PY) tools/make_sample.py

clean:
	rm -rf build jax2onnx/_core*.so
