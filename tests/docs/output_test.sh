#!/bin/sh
# output_test.sh PROGRAM FILE: runs the program in an empty folder and compares its output with the file.
set -eu
program=$(realpath "$1")
expected=$(realpath "$2")
cd "$TEST_TMPDIR"
"$program" > printed.txt
diff -u "$expected" printed.txt
