#!/bin/sh
# Runs a program in an empty folder: it must print exactly the text in a file.
set -eu
program=$(realpath "$1")
expected=$(realpath "$2")
cd "$TEST_TMPDIR"
"$program" > printed.txt
diff -u "$expected" printed.txt
