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
RUN_VENV := $(VENV_$(BACKEND))
PYTEST := .venv/bin/python -m pytest

.PHONY: quickstart test check lint test-offline test-torch-xla test-cluster lock clean

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

lock: $(UV)
	$(UV) pip compile -q pyproject.toml --all-extras --universal --python-version $(PYTHON) --generate-hashes \
	  --no-annotate --no-header -o requirements.lock

.venv/.installed .venv-torch-xla/.installed: pyproject.toml requirements.lock | $(UV)
	$(UV) venv -q --allow-existing -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D)/bin/python -c requirements.lock -e ".[$(if $(findstring xla,$(@D)),$(EXTRAS_torch_xla),$(EXTRAS_jax))]"
	touch $@

.tpulaunch/tools/bin/uv:
	python3 -m venv .tpulaunch/tools
	.tpulaunch/tools/bin/pip install -q uv

clean:
	rm -rf .venv .venv-torch-xla .tpulaunch dist
