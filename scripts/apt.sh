# To be sourced by scripts that define `say`.

# apt_install PACKAGE: false where there is no apt-get, no right to use it, or it fails.
apt_install() {
    local log
    export DEBIAN_FRONTEND=noninteractive
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    say "installing $1"
    log=$(mktemp)
    if { apt-get update && apt-get install -y --no-install-recommends "$1"; } >"$log" 2>&1; then
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
}
