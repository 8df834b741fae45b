#!/bin/sh
# Installs headers, library, CMake and pkg-config files and tandem-run:
#
#   ./bazelw run //:install -- PREFIX          (or --prefix PREFIX; DESTDIR is prepended)
#
# The installed files do not contain the prefix, so the folder may be moved afterwards.
set -eu

usage="./bazelw run //:install -- PREFIX"
die() { printf 'install: %s\n' "$*" >&2; exit 2; }

tree=
prefix=
while [ $# -gt 0 ]; do
  case $1 in
    --tree) [ $# -ge 2 ] || die "--tree needs a folder"; tree=$2; shift ;;
    --prefix) [ $# -ge 2 ] || die "--prefix needs a folder"; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --help) echo "$usage          (or --prefix PREFIX; DESTDIR=FOLDER is prepended)"; exit 0 ;;
    -*) die "unknown flag '$1'; usage: $usage" ;;
    *) [ -z "$prefix" ] || die "expected one prefix, got '$prefix' and '$1'"; prefix=$1 ;;
  esac
  shift
done
[ -n "$prefix" ] || die "no prefix given; usage: $usage"
[ -d "$tree" ] || die "--tree: '$tree' is not a folder"

# A relative prefix is relative to the user's folder, which `bazel run` passes in BUILD_WORKING_DIRECTORY.
case $prefix in
  /*) ;;
  *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix ;;
esac
to=${DESTDIR:-}$prefix

# Remove headers of an earlier version.
rm -rf "$to/include/tandem" "$to/lib/cmake/tandem"
(cd "$tree" && find -L . -type f) | while read -r file; do
  case $file in
    ./bin/*) mode=755 ;;
    *) mode=644 ;;  # Bazel's outputs are read-only and executable
  esac
  install -D -m "$mode" "$tree/$file" "$to/$file"
done
echo "installed in $to"
