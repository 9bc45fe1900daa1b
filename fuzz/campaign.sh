#!/usr/bin/env bash
# Fuzzes every target with libFuzzer, two at a time. `fuzz/campaign.sh [SECONDS [TARGET...]]`; 600 seconds each unless
# said otherwise. Needs `cargo install cargo-fuzz` and a C++ compiler, no nightly toolchain.
#
# What breaks a promise is left in fuzz/found, beside each target's log; the last table says what was done. What grew
# lies in fuzz/target/corpus; `fuzz/campaign.sh keep` adds what covers more to fuzz/corpus, some 50 files and 64 KiB a
# target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

TARGETS="header split convert model quant tokenizer template reply stream"
WORK=${CARGO_TARGET_DIR:-target}
GROWN=$WORK/corpus
BINARIES=$WORK/x86_64-unknown-linux-gnu/release
KEPT_BYTES=65536
KEPT_FILES=50
# An input that takes this many seconds is a finding; raise it on a busy machine.
TIMEOUT=${FUZZ_TIMEOUT:-120}
# In memory, if there is such a folder: three targets write files.
[ -d /dev/shm ] && export TMPDIR=${TMPDIR:-/dev/shm}

# More memory than `cargo test` allows: opening a file leaks some hundred bytes by design, and does so millions of times.
fuzz() { # SECONDS TARGET
    mkdir -p "$GROWN/$2"
    "$BINARIES/$2" "$GROWN/$2" "corpus/$2" -max_total_time="$1" -timeout="$TIMEOUT" -rss_limit_mb=2048 \
        -report_slow_units="$TIMEOUT" -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="found/$2-" >"found/$2.log" 2>&1
}

row() { # TARGET
    awk -v target="$1" '
        match($0, /cov: [0-9]+/) { cov = substr($0, RSTART + 5, RLENGTH - 5) }
        match($0, /ft: [0-9]+/) { ft = substr($0, RSTART + 4, RLENGTH - 4) }
        /number_of_executed_units/ { runs = $2 }
        /slowest_unit_time_sec/ { slow = $2 }
        /peak_rss_mb/ { rss = $2 }
        /Test unit written/ { found = found " " $NF }
        END { printf "%-10s %10s %7s %8s %6s s %6s MB %s\n", target, runs, cov, ft, slow, rss, found ? found : "-" }
    ' "found/$1.log"
}

keep() {
    local target bytes size name
    for target in $TARGETS; do
        rm -rf "$GROWN/$target.kept"
        mkdir -p "$GROWN/$target"
        cp -r "corpus/$target" "$GROWN/$target.kept"
        # Edges alone: how often each was taken would keep thousands of inputs.
        "$BINARIES/$target" -merge=1 -use_counters=0 "$GROWN/$target.kept" "$GROWN/$target" >"found/$target.merge.log" 2>&1
        bytes=$(cat corpus/"$target"/* | wc -c)
        while read -r size name; do
            bytes=$((bytes + size))
            [ "$bytes" -gt $KEPT_BYTES ] || cp -n "$GROWN/$target.kept/$name" "corpus/$target/${name:0:12}"
        done < <(cd "$GROWN/$target.kept" && find . -type f -name '????????????????????????????????????????' \
            -printf '%s %f\n' | sort -n | awk '{ all[NR] = $0 } END {
                step = NR > most ? NR / most : 1
                for (i = 1; i <= NR; i += step) print all[int(i)] }' most=$KEPT_FILES)
    done
}

if [ "${1:-}" = --one ]; then
    fuzz "$2" "$3"
    exit
fi
mkdir -p found
if [ "${1:-}" = keep ]; then
    keep
    exit
fi
seconds=${1:-600}
[ $# = 0 ] || shift
# No sanitizer: the crates are safe Rust but for the map of files, and the inputs a second are twice as many without.
cargo fuzz build --fuzz-dir . --debug-assertions --sanitizer none
status=0
# shellcheck disable=SC2086
printf '%s\n' ${*:-$TARGETS} | xargs -P 2 -n 1 "./$(basename "$0")" --one "$seconds" || status=1
printf '%-10s %10s %7s %8s %8s %9s %s\n' target inputs edges features slowest memory found
for target in ${*:-$TARGETS}; do row "$target"; done
exit $status
