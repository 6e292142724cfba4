#!/usr/bin/env bash
# Makes .cache/matrix/VERSION, an environment with that pyspark and otherwise the packages of requirements.lock.
# Does nothing when nothing changed. VERSION is one of spark-versions.lock, such as 4.0.5.
# Needs .venv; ends with 3 if the package index cannot be reached, and with 1 if anything else fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly version=$1
readonly place=.cache/matrix/$version
readonly ready=$place/.ready
readonly unreachable=3

export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'matrix: %s\n' "$*" >&2; }

pinned=$(grep -F "pyspark==$version " spark-versions.lock) || {
    say "spark-versions.lock has no pyspark $version"
    exit 1
}

# What the environment is made from, as one number.
inputs() {
    { pwd && echo "$pinned" && cat requirements.lock scripts/matrix.sh; } |
        .venv/bin/python -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

# The packages of requirements.lock for which an awk condition over `name` holds.
locked() {
    awk "/^[^ #]/ { split(\$1, part, \"==\"); name = part[1] } $1" requirements.lock
}

install() {
    "$place/bin/python" -m pip install --quiet --require-hashes --no-build-isolation --use-pep517 \
        -r /dev/stdin
}

install_packages() {
    say "installing pyspark $version and the packages of requirements.lock into $place (a minute or two)"
    # setuptools first: pyspark is published as source only and is built with it. Joined by &&, as nothing
    # ends by itself inside a condition.
    locked 'name == "setuptools"' | install &&
        { locked 'name != "pyspark"' && echo "$pinned"; } | install &&
        "$place/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e .
}

index_answers() {
    "$place/bin/python" -m pip index versions pyspark >/dev/null 2>&1
}

wanted=$(inputs)
[ "$(cat "$ready" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$place"
.venv/bin/python -m venv "$place"
if ! install_packages; then
    index_answers || {
        say "the package index cannot be reached"
        exit "$unreachable"
    }
    exit 1
fi
echo "$wanted" >"$ready"
