.DEFAULT_GOAL := help
.PHONY: help demo test soak lint bench schema lock clean

PYTHON ?= python3
UV_VERSION := 0.13.7
READY := .venv/.ready

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Run the demonstration
	.venv/bin/python -m tidegate.demo

test: $(READY) ## Run all tests and the examples in docstrings (ARGS="-k name" narrows them)
	.venv/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

soak: $(READY) ## Run the tests that kill processes, with all their kills: about half an hour
	TIDEGATE_KILLS=50 .venv/bin/python -m pytest -m kills $(ARGS)

lint: $(READY) ## Check style, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: $(READY) ## Run the benchmarks
	.venv/bin/python -m benchmarks $(ARGS)

schema: $(READY) ## Write the JSON schema of pipeline files anew
	.venv/bin/python -m tidegate.pipeline.schema > src/tidegate/pipeline/pipeline.schema.json

lock: ## Pin the dependencies of pyproject.toml in requirements.lock (UPGRADE=1: at their newest)
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet uv==$(UV_VERSION)
	.cache/lock/bin/uv pip compile --quiet --no-config \
		--universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) \
		--all-extras --group dev pyproject.toml --output-file requirements.lock

clean: ## Remove caches and build output (.venv stays: delete it to start over)
	rm -rf .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info
	rm -rf demo-output spark-warehouse metastore_db derby.log artifacts
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): requirements.lock pyproject.toml scripts/setup.sh
	scripts/setup.sh
