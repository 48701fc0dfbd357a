# `make install` needs Python >= 3.11, make and a package index; targets that need it run it first.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Runs share no cache: several run at once.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
# Tests start many processes, which would compile all modules again without this.
export PYTHONDONTWRITEBYTECODE :=
AUDIT := .audit
# One study of each experiment; neither needs a download.
DEMO := quickstart digits-quick
STORAGE := sweep-results
TRACKING := sqlite:///mlflow.db
# Tests of what depends on the versions of Ray, MLflow and Optuna.
VERSIONED := tests/cluster tests/tracking tests/sweeps/engine tests/sweeps/planning tests/sweeps/publishing
# Modules that publish a table; the others hold shared code.
BENCHMARKS = $(basename $(notdir $(shell grep -lE 'harness import .*publish' benchmarks/*.py)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-slow tests-with-ray tests-of-privnets other-tests tests-of-tracking
.PHONY: test-capture test-versions test-lowest test-newest lint docs record pages bench benchmarks-page audit licences clean

help: ## Describe each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Install everything into .venv

demo: $(INSTALLED) ## Run a sweep of each experiment; print the fronts and the paths of the reports
	@for study in $(DEMO); do \
		$(BIN)/sweeps run $$study --name demo-$$study \
			--storage $(STORAGE) --tracking-uri $(TRACKING) || exit; \
	done
	@echo "Open in a browser:"
	@for study in $(DEMO); do echo "  $(CURDIR)/$(STORAGE)/demo-$$study/report.html"; done

# Three processes at once, in this order. Tests that start Ray take longest: they go first.
test: $(INSTALLED) ## Run the tests and lint
	@$(MAKE) --no-print-directory --jobs 3 --keep-going \
		tests-with-ray tests-of-privnets other-tests tests-of-tracking lint

tests-with-ray:
	$(PYTEST) -m ray --ignore=tests/privnets --ignore=tests/tracking

tests-of-privnets:
	nice -n 19 $(PYTEST) tests/privnets

tests-of-tracking:
	nice -n 19 $(PYTEST) tests/tracking

other-tests:
	nice -n 19 $(PYTEST) -m 'not ray' --ignore=tests/privnets --ignore=tests/tracking

test-versions: test-lowest test-newest ## Run the Ray, tracking and search tests on both ends of versions

test-lowest: OPTIONS := --constraint constraints-lowest.txt
test-newest: OPTIONS := --upgrade --upgrade-strategy eager
test-lowest test-newest: test-%: $(BIN)/python
	$(BIN)/python -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet $(OPTIONS) --editable '.[dev]'
	.venv-$*/bin/python -m pytest -p no:cacheprovider $(VERSIONED)

test-slow: lint ## Run the slow tests: chaos campaigns, deployments, long fuzz runs
	$(PYTEST) --slow -m slow

# NULL_CUDA is a folder with libnullcuda.so and libcuda.so.1, which count kernels and compute none.
test-capture: .venv-cuda/.installed ## Count the kernels of captured steps, without a GPU (NULL_CUDA=folder)
	LD_LIBRARY_PATH="$(NULL_CUDA)" LD_PRELOAD="$(NULL_CUDA)/libnullcuda.so" \
		TORCH_CUDNN_V8_API_DISABLED=1 .venv-cuda/bin/python -m campaigns.capture

.venv-cuda/.installed: pyproject.toml $(BIN)/python
	$(BIN)/python -m venv .venv-cuda
	.venv-cuda/bin/python -m pip install --quiet torch==2.11.0 numpy scipy pandas scikit-learn pillow \
		pydantic platformdirs dp-accounting safetensors threadpoolctl filelock pyarrow ruamel.yaml
	touch $@

lint: $(INSTALLED) ## Check style, formatting, types and the layers of packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED) ## Build the documentation into docs/_build/html, warnings as errors
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html docs docs/_build/html

record: $(INSTALLED) ## Train the sweeps of docs/recorded.yaml that are unfinished; record them; write pages
	$(BIN)/python docs/recorded_pages.py record --storage $(STORAGE) --tracking-uri $(TRACKING)

pages: $(INSTALLED) ## Write the docs' claims, results and conformity pages
	$(BIN)/python docs/recorded_pages.py write
	$(BIN)/python tests/conformity/test_conformity.py

bench: $(INSTALLED) ## Run the benchmarks; they append to benchmarks/results
	@for module in $(BENCHMARKS); do \
		echo "== $$module"; $(BIN)/python -m benchmarks.$$module || exit 1; \
	done

benchmarks-page: $(INSTALLED) ## Write the tables of docs/benchmarks.md from the benchmarks' results
	$(BIN)/python docs/benchmarks_page.py

audit: $(BIN)/python ## Look up the pinned versions in PyPI's list of vulnerabilities (needs pypi.org)
	$(BIN)/python -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@$(AUDIT)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict \
		|| { echo "A vulnerability is known, or the lookup failed: see above." >&2; exit 1; }

licences: $(INSTALLED) ## Write DEPENDENCIES.md; fail on a licence incompatible with Apache-2.0
	$(BIN)/python docs/licences.py > DEPENDENCIES.md
	$(BIN)/python docs/licences.py --check

clean: ## Remove the virtual environment and build outputs; results and mlflow.db stay
	rm -rf $(VENV) $(VENV)-cuda $(VENV)-lowest $(VENV)-newest $(AUDIT) build dist docs/_build docs/_generated *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find cluster privnets sweeps tests tracking -name __pycache__ -type d -prune -exec rm -rf {} +

# Written last, so that an interrupted installation is repeated.
$(INSTALLED): pyproject.toml constraints.txt $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,docs]'
	touch $@

$(BIN)/python:
	@for python in python3.11 python3.12 python3.13 python3; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Creating $(VENV) with $$python; installing takes minutes the first time."; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "Python 3.11 or later is required; none was found on PATH." >&2; exit 1
