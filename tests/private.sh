#!/bin/bash
# Runs a command against a private installation of the server, with the extension of this
# build in it, and leaves nothing behind.
#
# Usage: private.sh PG_CONFIG PROFILE COMMAND [ARGUMENT...]
#
# A server finds its libraries and extensions relative to the place of its executable
# (make_relative_path() in PostgreSQL's src/port/path.c). So a directory that holds a copy of
# the executable and links to all else is an installation of its own. The extension goes there
# and never into the system's directories: that needs no right to write them, and several
# builds can be tested at the same time. The command gets PG_CONFIG for it, and TMPDIR, so that
# what it makes is gone even if it is killed.
set -euo pipefail
cd "$(dirname "$0")/.."

original=$1 profile=$2
shift 2

# Clusters of tests are made by the hundred and never have to survive a crash of the machine, so
# they belong in memory where there is enough of it. What is measured belongs on a disk.
base=/tmp
if [[ $profile == dev ]] && [[ $(findmnt -no FSTYPE,OPTIONS -T /dev/shm) == tmpfs*rw* ]] &&
    [[ $(findmnt -no OPTIONS -T /dev/shm) != *noexec* ]] &&
    (( $(df --output=avail -k /dev/shm | tail -n 1) > 8 * 1024 * 1024 ))
then base=/dev/shm; fi

root=$(mktemp -d $base/stillpoint-XXXXXX)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Servers run as another user when root runs this.
chmod 755 "$root"

bindir=$("$original" --bindir)
libdir=$("$original" --pkglibdir)
sharedir=$("$original" --sharedir)

# Links every entry of a directory into its counterpart below $root, but for the one named.
link() {
    local directory=$1 without=$2
    mkdir -p "$root$directory"
    find "$directory" -mindepth 1 -maxdepth 1 ! -name "$without" -exec ln -st "$root$directory" {} +
}
link "$libdir" stillpoint.so
link "$sharedir" extension
link "$sharedir/extension" 'stillpoint*'
link "$bindir" postmaster
for program in postgres initdb pg_ctl pg_config; do
    # A program that is reached by a link looks for its files where the link leads.
    cp --remove-destination "$bindir/$program" "$root$bindir/$program"
done

private=$root$bindir/pg_config
if [[ $("$private" --pkglibdir) != "$root$libdir" || $("$private" --sharedir) != "$root$sharedir" ]]
then
    echo "private.sh: a copy of the server of $original does not look for its files beside itself" >&2
    exit 1
fi
${MAKE:-make} --silent --no-print-directory install \
    PG_CONFIG="$original" PROFILE="$profile" DESTDIR="$root" SUDO= </dev/null

export PG_CONFIG=$private
if [[ -z ${STILLPOINT_TEST_KEEP:-} ]]; then export TMPDIR=$root; fi
status=0
"$@" || status=$?
exit "$status"
