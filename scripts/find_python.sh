#!/bin/sh
# Prints the first Python of at least 3.11 (TACIT_PYTHON first, if set); fails if there is none.
for python in ${TACIT_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$python"
        exit 0
    fi
done
exit 1
