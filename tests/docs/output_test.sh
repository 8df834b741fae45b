#!/bin/sh
# output_test.sh PROGRAM FILE: the program, run in an empty folder, prints exactly the text of the file.
set -eu
program=$(realpath "$1")
expected=$(realpath "$2")
cd "$TEST_TMPDIR"
"$program" > printed.txt
diff -u "$expected" printed.txt
