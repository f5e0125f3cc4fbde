#!/bin/bash
# Runs the tests of every crate and ends with one line that counts them.
#
# Usage: run.sh CARGO-SELECTION...
#
# A failing test stops nothing: the others run too, and the exit status tells.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
"${CARGO:-cargo}" test "$@" --no-fail-fast 2>&1 | tee "$log" || status=$?

# cargo's own line: "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; ..."
awk '/^test result: / {
         for (i = 2; i <= NF; i++) {
             if ($i ~ /^passed/) passed += $(i - 1)
             if ($i ~ /^failed/) failed += $(i - 1)
             if ($i ~ /^ignored/) skipped += $(i - 1)
         }
     }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit "$status"
