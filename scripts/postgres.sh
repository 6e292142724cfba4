#!/usr/bin/env bash
# Runs a throw-away PostgreSQL for tests: the first line it prints is the connection string. It goes, with
# all data, when standard input ends; so it does not outlive the process that started it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly no_server=3 # the exit code by which tests tell that there is none to be had

say() { printf 'postgres: %s\n' "$*" >&2; }
. scripts/apt.sh

# Prints the folder of the newest server's programs; nothing where there is none.
programs() {
    local candidate
    for candidate in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) \
        "$(pg_config --bindir 2>/dev/null || true)"; do
        if [ -x "$candidate/initdb" ] && [ -x "$candidate/postgres" ]; then
            echo "$candidate"
            return
        fi
    done
}

# One at a time: tests that run side by side would find apt-get in use.
need_server() {
    local lock
    exec {lock}<scripts/postgres.sh
    flock "$lock"
    bin=$(programs)
    if [ -z "$bin" ] && apt_install postgresql {lock}<&-; then bin=$(programs); fi
    exec {lock}<&-
    [ -z "$bin" ] || return 0
    say "no PostgreSQL server found; as root: apt-get install postgresql"
    exit "$no_server"
}

# The server refuses to run as root: there it runs as the user that Debian's package made.
as_owner() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=postgres --regid=postgres --init-groups "$@"
    else
        "$@"
    fi
}

make_cluster() {
    folder=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-postgres-XXXXXX")
    [ "$(id -u)" -ne 0 ] || chown postgres:postgres "$folder"
    as_owner "$bin/initdb" --pgdata "$folder/data" --username postgres --auth trust \
        --encoding UTF8 --locale C.UTF-8 --no-sync >&2
}

# Durability is for data that outlives the server.
start_server() {
    local options="-c listen_addresses=127.0.0.1 -c port=$1 -c unix_socket_directories=$folder"
    options+=" -c fsync=off -c max_connections=20"
    as_owner "$bin/pg_ctl" start --wait --timeout 1800 --silent --pgdata "$folder/data" \
        --log "$folder/server.log" --options "$options" >&2
}

start_on_a_free_port() {
    local attempt
    for attempt in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 10000))
        if start_server "$port"; then return; fi
        say "attempt $attempt, port $port:"
        tail -n 5 "$folder/server.log" >&2
    done
    return 1
}

remove_cluster() {
    as_owner "$bin/pg_ctl" stop --mode immediate --silent --pgdata "$folder/data" >&2 || true
    rm -rf "$folder"
}

for variable in ${!PG@}; do unset "$variable"; done # they would steer the server's programs
need_server
folder=
trap '[ -z "$folder" ] || remove_cluster' EXIT
make_cluster
start_on_a_free_port
echo "postgresql://postgres@127.0.0.1:$port/postgres"
cat >/dev/null || true
