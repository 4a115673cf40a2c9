#!/bin/sh
# Checks what a build needs and says how to get what is missing (Debian and Ubuntu). Changes nothing.
# usage: preflight.sh [lint]    with `lint`, rustfmt and clippy are needed too
cd "${0%/*}" || exit 1
missing=0

need() {
    missing=1
    printf 'missing: %s\n    get it: %s\n' "$1" "$2" >&2
}

rust="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh   (then open a new shell)"
if ! command -v cargo >/dev/null 2>&1; then
    need "cargo, Rust 1.89 or newer" "$rust"
else
    version=$(cargo --version | sed 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/')
    major=${version% *} minor=${version#* }
    if [ "$major" -lt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -lt 89 ]; }; then
        need "Rust 1.89 or newer (found $(cargo --version))" "rustup update stable, or: $rust"
    fi
fi

if ! python=$(. ./find_python.sh); then
    need "Python 3.11 or newer" "sudo apt install python3 python3-venv   (Ubuntu 22.04: python3.11 python3.11-venv)"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    name=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    need "Python's venv module" "sudo apt install $name"
fi

command -v cc >/dev/null 2>&1 || need "a C compiler (cc)" "sudo apt install build-essential"

if [ "${1:-}" = lint ] && [ "$missing" -eq 0 ]; then
    for tool in fmt clippy; do
        cargo "$tool" --version >/dev/null 2>&1 || need "cargo $tool" "rustup component add rustfmt clippy"
    done
fi

# Without it everything works; the tests of the two pages say that they skip.
chromium=${TACIT_CHROMIUM:-}
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    [ -n "$chromium" ] || chromium=$(command -v "$name" || true)
done
[ -n "$chromium" ] || printf 'optional: Chromium, for tests of the web pages, which skip without it\n    get it: sudo apt install chromium\n' >&2

exit "$missing"
