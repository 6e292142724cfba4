#!/usr/bin/env bash
# Makes .venv from requirements.lock and sees to it that Java is there. Does nothing when nothing changed.
#
#   PYTHON=python3.12 scripts/setup.sh    picks the interpreter for a new .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly oldest_python=3.11
readonly oldest_java=17
readonly ready=.venv/.ready

export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'setup: %s\n' "$*" >&2; }
. scripts/apt.sh
fail() {
    say "$@"
    exit 1
}

python_is_new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < (${oldest_python/./, }))" >/dev/null 2>&1
}

# The oldest supported version first: it is the one the tests run on.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        python_is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON does not run, or is older than $oldest_python"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.13 python3; do
        if python_is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python $oldest_python or newer found; install one (Debian 12, as root: apt-get install python3 python3-venv)" \
        "or name it in the variable PYTHON"
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# Debian keeps ensurepip, which venv needs, in a package of its own.
make_venv() {
    local python package
    python=$(find_python)
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if ! can_make_venv "$python" && ! { apt_install "$package" && can_make_venv "$python"; }; then
        fail "$python cannot make virtual environments; as root: apt-get install $package"
    fi
    rm -rf .venv
    "$python" -m venv .venv
}

# Prints the major version of the Java that Spark would start; nothing where there is none.
java_version() {
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    { "$java" -version 2>&1 || true; } | sed -nE '/ version "/ { s/^.* version "(1\.)?([0-9]+).*$/\2/p; q; }'
}

java_is_new_enough() {
    local found
    found=$(java_version)
    [ "${found:-0}" -ge "$oldest_java" ]
}

need_java() {
    local package=openjdk-$oldest_java-jre-headless found
    java_is_new_enough && return
    found=$(java_version)
    found=${found:+Java $found}
    if [ -n "${JAVA_HOME:-}" ]; then
        fail "Spark needs Java $oldest_java or newer, JAVA_HOME=$JAVA_HOME holds ${found:-none: no bin/java that runs};" \
            "point JAVA_HOME at a newer one or unset it"
    fi
    apt_install "$package" && java_is_new_enough && return
    fail "Spark needs Java $oldest_java or newer, found ${found:-none};" \
        "as root: apt-get install $package, or set JAVA_HOME to a newer Java"
}

# What .venv is made from, as one number.
inputs() {
    { pwd && cat requirements.lock pyproject.toml scripts/setup.sh; } |
        .venv/bin/python -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

install_packages() {
    say "installing the packages of requirements.lock into .venv (minutes, the first time)"
    # setuptools first, at its pinned version: pyspark is published as source only and is built with it.
    awk '/^[^ #]/ { wanted = /^setuptools==/ } wanted' requirements.lock |
        .venv/bin/python -m pip install --quiet --require-hashes -r /dev/stdin
    .venv/bin/python -m pip install --quiet --require-hashes --no-build-isolation --use-pep517 \
        -r requirements.lock
    .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
}

need_java
if ! { python_is_new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    make_venv
fi
wanted=$(inputs)
if [ "$(cat "$ready" 2>/dev/null)" != "$wanted" ]; then
    rm -f "$ready"
    install_packages
    echo "$wanted" >"$ready"
fi
touch "$ready"
