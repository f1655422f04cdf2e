# Every target sets up what it needs: a virtual environment in the tree, packages, the build.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
BUILD ?= build/$(notdir $(VENV))
JOBS ?= 2

.PHONY: demo test bench format lint sanitize build clean

$(VENV)/ready: requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade pip
	$(VENV)/bin/pip install --quiet -r requirements-dev.txt
	touch $@

# The extension is built beside the package, so that the tree itself is importable.
build: $(VENV)/ready
	@PATH="$(abspath $(VENV))/bin:$$PATH" tools/build_in_place.sh $(PY) $(BUILD)

clean:
	rm -rf build jax2onnx/_core*.so
