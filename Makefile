.DEFAULT_GOAL := help
.PHONY: help demo test matrix smoke fuzz mutants soak lint bench versions schema pictures jar reference dist cold lock clean

PYTHON ?= python3
UV_VERSION := 0.13.7
READY := .venv/.ready
CLASSES := .venv/spark-classes.jsa

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Run the demonstration
	.venv/bin/python -m tidegate.demo

test: $(READY) $(CLASSES) ## Run all tests and the examples in docstrings (ARGS="-k name" narrows them, ARGS="-n 0" is one process)
	PYTHONHASHSEED=0 .venv/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

matrix: $(READY) $(CLASSES) ## Run the Spark tests on every version of Spark: more than an hour (ARGS="-k name" narrows them)
	.venv/bin/python -m scripts.matrix $(ARGS)

smoke: $(READY) ## Run a few of them on the older versions
	.venv/bin/python -m scripts.matrix --smoke $(ARGS)

fuzz: $(READY) ## Look for counterexamples with fresh seeds (MINUTES=10, JOBS=2, ARGS="-k dedupe")
	.venv/bin/python -m scripts.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS)) $(ARGS)

mutants: $(READY) ## Break rules one by one and see that tests notice: about a minute (ARGS="words" narrows them)
	.venv/bin/python -m scripts.mutants $(ARGS)

soak: $(READY) $(CLASSES) ## Run the tests that kill processes, with all their kills: half an hour
	TIDEGATE_KILLS=50 .venv/bin/python -m pytest -m kills --timeout 36000 $(ARGS)

lint: $(READY) ## Check style, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: $(READY) ## Run the benchmarks
	.venv/bin/python -m benchmarks $(ARGS)

versions: $(READY) ## Run one benchmark on every version of Spark (ARGS="--quick")
	.venv/bin/python -m benchmarks.versions $(ARGS)

schema: $(READY) ## Write the JSON schema of pipeline files anew
	.venv/bin/python -m tidegate.pipeline.schema > src/tidegate/pipeline/pipeline.schema.json

jar: $(READY) ## Compile what tidegate has in Java anew
	.venv/bin/python -m scripts.jar > src/tidegate/spark/jvm/tidegate.jar

reference: $(READY) ## Write docs/reference.md and docs/connectors.md anew, from docstrings and declarations
	.venv/bin/python -m scripts.reference > docs/reference.md
	.venv/bin/python -m scripts.connectors > docs/connectors.md

dist: $(READY) ## Build the package in dist/: its sources, and from those the wheel
	rm -rf build dist
	.venv/bin/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' > /dev/null
	.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	@ls dist

cold: dist ## Install the wheel into an empty environment and try it there (minutes)
	scripts/cold.sh

pictures: $(READY) ## Draw the pictures of docs/semantics.md anew
	.venv/bin/python -m scripts.pictures

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
	find src tests benchmarks scripts -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): requirements.lock pyproject.toml scripts/setup.sh
	scripts/setup.sh

# Only saves time: tests run without it too, so it may fail.
$(CLASSES): $(READY) tests/spark/class_archive.py
	-.venv/bin/python -m tests.spark.class_archive $@ > $(@:.jsa=.log) 2>&1
