#!/bin/sh
# chart_test.sh CHART RESULTS SVG PAGE: checks that SVG is the chart of the results, and that the page contains their
# table.
set -eu
python3 "$1" svg "$2" | diff -u "$3" -
python3 "$1" table "$2" > "$TEST_TMPDIR/table.md"
# The table's lines in the page; a later table may have the same header.
grep -Fxf "$TEST_TMPDIR/table.md" "$4" | head -n "$(wc -l < "$TEST_TMPDIR/table.md")" > "$TEST_TMPDIR/found.md"
diff -u "$TEST_TMPDIR/table.md" "$TEST_TMPDIR/found.md"
