#!/bin/sh
echo "bazel coverage is not supported; use gcov on the object folders" >&2
exit 1
