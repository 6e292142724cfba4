#!/usr/bin/env bash
# Installs the wheel of dist/ into an empty environment, and tries it away from this checkout: are all
# files in it, and does it name everything that it needs?
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
.venv/bin/python -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet dist/tidegate-*.whl
cd "$place"
export PATH=$place/venv/bin:$PATH

tidegate --version
tidegate init starter
tidegate validate starter/pipeline.yaml
tidegate demo demo-output
