#!/bin/bash
# Installs what the build and the tests need and this machine lacks, and says what it does.
#
# Usage: setup.sh PG_CONFIG
#
# Says nothing and changes nothing when all is there. SUDO=sudo lets a user who is not root
# install Debian packages; without it the command to run is printed instead.
set -euo pipefail

pg_config=$1
SUDO=${SUDO:-}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# Packages whose work nobody else does here: told by what they give, not by their names, since
# a compiler or a server from elsewhere is as good.
missing=()

command -v cc >/dev/null && command -v make >/dev/null || missing+=(build-essential)

# The bindings to the server's headers are made by bindgen, which loads libclang.
libclang() {
    compgen -G "${LIBCLANG_PATH:-/nonexistent}/libclang*.so*" ||
        compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' ||
        compgen -G '/usr/lib*/libclang*.so*' ||
        compgen -G '/usr/lib/*/libclang*.so*'
}
libclang >/dev/null || missing+=(libclang-dev)
command -v clang >/dev/null || missing+=(clang)

# Debian keeps each major version in a directory of its own; any other path is the user's own
# server, which no package of ours could complete.
major=
[[ $pg_config =~ ^/usr/lib/postgresql/([0-9]+)/bin/pg_config$ ]] && major=${BASH_REMATCH[1]}

has_server() {
    [[ -x $pg_config ]] && [[ -x $("$pg_config" --bindir)/postgres ]] &&
        [[ -x $("$pg_config" --bindir)/pg_dump ]]
}
has_headers() {
    [[ -x $pg_config ]] && [[ -f $("$pg_config" --includedir-server)/postgres.h ]]
}
if [[ -n $major ]]; then
    has_server || missing+=("postgresql-$major")
    has_headers || missing+=("postgresql-server-dev-$major")
else
    has_server || die "$pg_config names no PostgreSQL server: set PG_CONFIG to the pg_config of one"
    has_headers || die "the server of $pg_config has no headers: install its development files"
fi

install_packages() {
    [[ -r /etc/debian_version ]] && command -v apt-get >/dev/null ||
        die "this is no Debian system: install what Debian calls ${missing[*]}, then run again"
    if [[ $EUID -ne 0 && -z $SUDO ]]; then
        die "missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]} (or: make setup SUDO=sudo)"
    fi
    say "installing the Debian packages ${missing[*]}"

    # Debian makes and starts a cluster when it installs a server. Nobody asked for one here:
    # demo and tests make their own.
    local no_cluster=/etc/postgresql-common/createcluster.d/stillpoint-setup.conf
    $SUDO mkdir -p "${no_cluster%/*}"
    local log
    log=$(mktemp)
    # shellcheck disable=SC2064  # the values of now are meant
    trap "$SUDO rm -f '$no_cluster' '$log'" EXIT
    $SUDO tee "$no_cluster" >/dev/null <<<'create_main_cluster = false'

    local apt=($SUDO env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    if ! { "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"; } \
        </dev/null >"$log" 2>&1
    then
        cat "$log" >&2
        die "apt-get failed; servers that this Debian does not carry are at https://apt.postgresql.org"
    fi
    say "installed"
}
if [[ ${#missing[@]} -gt 0 ]]; then
    install_packages
    if ! has_server || ! has_headers; then
        die "the packages are installed, but $pg_config has still no server with headers"
    fi
fi

command -v "${CARGO:-cargo}" >/dev/null || [[ -x ${HOME:-}/.cargo/bin/cargo ]] ||
    die "cargo is missing: install Rust with rustup (https://rustup.rs), then run again"
