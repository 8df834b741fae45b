#!/bin/sh
# chart_test.sh CHART RESULTS SVG PAGE: checks that SVG is the chart of the results, and that the page contains their
# table.
set -eu
python3 "$1" svg "$2" | diff -u "$3" -
python3 "$1" table "$2" > "$TEST_TMPDIR/table.md"
grep -Fxf "$TEST_TMPDIR/table.md" "$4" | grep -v '^|---' > "$TEST_TMPDIR/found.md"
grep -v '^|---' "$TEST_TMPDIR/table.md" | diff -u - "$TEST_TMPDIR/found.md"
