#!/bin/sh
# Runs the README's program with the given flags: it prints the loss of the second epoch once, and the loss is low.
set -eu
output=$("$@")
echo "$output"
lines=$(echo "$output" | grep -c '^epoch 1: loss ')
[ "$lines" -eq 1 ] || { echo "expected one line for epoch 1, got $lines"; exit 1; }
echo "$output" | awk '/^epoch 1: loss / {found = 1; if ($4 + 0 > 0 && $4 + 0 < 1.0) ok = 1} END {exit !(found && ok)}'
