# `make demo` and `make test` need Python >= 3.11, make and a package index; they set up the rest.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One study of each experiment; neither needs a download.
DEMO := quickstart digits-quick
STORAGE := sweep-results
TRACKING := sqlite:///mlflow.db
# The modules that publish a table; the others are what these share.
BENCHMARKS = $(basename $(notdir $(shell grep -lE 'harness import .*publish' tests/benchmarks/*.py)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint bench clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Run a sweep of each experiment, then print their fronts and reports' paths
	@for study in $(DEMO); do \
		$(BIN)/sweeps run $$study --name demo-$$study \
			--storage $(STORAGE) --tracking-uri $(TRACKING) || exit; \
	done
	@for study in $(DEMO); do \
		$(BIN)/sweeps pareto demo-$$study --storage $(STORAGE) || exit; \
		echo "Report: $(CURDIR)/$(STORAGE)/demo-$$study/report.html"; \
	done

test: lint ## Lint, then run the tests
	$(BIN)/python -m pytest

lint: $(INSTALLED) ## Check style, formatting, types and the layers between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED) ## Run the benchmarks, which append to tests/benchmarks/results
	@for module in $(BENCHMARKS); do \
		echo "== $$module"; $(BIN)/python -m tests.benchmarks.$$module || exit 1; \
	done

clean: ## Remove the virtual environment and build outputs; results and mlflow.db stay
	rm -rf $(VENV) build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find cluster privnets sweeps tests tracking -name __pycache__ -type d -prune -exec rm -rf {} +

# Written last, so that an interrupted installation is taken up again.
$(INSTALLED): pyproject.toml constraints.txt $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	touch $@

$(BIN)/python:
	@for python in python3.11 python3.12 python3.13 python3; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Creating $(VENV) with $$python; installing takes minutes the first time."; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "Python 3.11 or later is needed, and none was found on PATH." >&2; exit 1
