#!/bin/sh
echo "bazel coverage is not set up here; use gcov on the object folders" >&2
exit 1
