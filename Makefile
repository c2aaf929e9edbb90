# Two commands: `make quickstart` runs the main job on this machine, `make test` passes the tests.
# Each sets up what it needs: an environment of its own beside the sources, from the locked versions.

BACKEND ?= jax
HOSTS ?= 2
PYTHON ?= 3.11
DEMO ?= .tpulaunch/demo-$(BACKEND)

UV := $(shell command -v uv || echo .tpulaunch/tools/bin/uv)
VENV_jax := .venv
VENV_torch_xla := .venv-torch-xla
EXTRAS_jax := jax,fast,tfds,dev
EXTRAS_torch_xla := torch-xla,fast,dev
EXTRAS_bench := torch-xla,jax,fast,bench,dev
RUN_VENV := $(VENV_$(BACKEND))
PYTEST := .venv/bin/python -m pytest

.PHONY: quickstart test check lint test-offline test-torch-xla test-cluster test-release bench bench-short lock clean

quickstart: $(RUN_VENV)/.installed
	$(RUN_VENV)/bin/python -m tpuworker.demo $(DEMO) --backend $(BACKEND)
	$(RUN_VENV)/bin/tpulaunch run $(DEMO)/job.yaml --local --hosts $(HOSTS)

# What needs no cluster comes first, and the first failure ends the run.
test: check test-torch-xla test-cluster

check: lint test-offline

lint: .venv/.installed
	.venv/bin/ruff check --quiet .
	.venv/bin/ruff format --quiet --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

test-offline: .venv/.installed
	$(PYTEST) -m "not cluster and not torch_xla and not release"

test-torch-xla: .venv-torch-xla/.installed
	.venv-torch-xla/bin/python -m pytest -m "torch_xla and not cluster and not release"

test-cluster: .venv/.installed
	$(PYTEST) -m "cluster and not release"

# What is slow or large, once per release: PyTorch's image, built with 45 GB of disk, and the longest journeys.
test-release: .venv/.installed
	$(PYTEST) -m release

# An hour on a quiet machine, and three minutes anywhere; tables go to bench/results.
bench: .venv-bench/.installed
	.venv-bench/bin/python -m bench

bench-short: .venv-bench/.installed
	.venv-bench/bin/python -m bench --short

lock: $(UV)
	$(UV) pip compile -q pyproject.toml --all-extras --universal --python-version $(PYTHON) --generate-hashes \
	  --no-annotate --no-header -o requirements.lock

.venv/.installed .venv-torch-xla/.installed .venv-bench/.installed: pyproject.toml requirements.lock | $(UV)
	$(UV) venv -q --allow-existing -p $(PYTHON) $(@D)
	$(UV) pip install -q --compile-bytecode -p $(@D)/bin/python -c requirements.lock -e ".[$(or $(EXTRAS$(subst -,_,$(patsubst .venv%,%,$(@D)))),$(EXTRAS_jax))]"
	touch $@

.tpulaunch/tools/bin/uv:
	python3 -m venv .tpulaunch/tools
	.tpulaunch/tools/bin/pip install -q uv

clean:
	rm -rf .venv .venv-torch-xla .venv-bench .tpulaunch dist
