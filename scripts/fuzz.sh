#!/bin/sh
# usage: fuzz.sh SECONDS [TARGET...]    runs the fuzz targets under libFuzzer, starting from the valid inputs of fuzz/targets
set -eu
cd "${0%/*}/.."
seconds=$1
shift
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "needed: rustup toolchain install nightly && cargo install cargo-fuzz" >&2
    exit 1
fi
cargo run --locked --quiet -p tacit-fuzz-targets --example seeds -- fuzz/corpus
for target in ${*:-$(cargo +nightly fuzz list)}; do
    echo "== $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=3072 -malloc_limit_mb=2048 \
        -timeout=20 -print_final_stats=1 -verbosity=0
done
