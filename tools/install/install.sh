#!/bin/sh
# Copies headers, library, CMake and pkg-config files and tandem-run below a prefix:
#
#   ./bazelw run //:install -- PREFIX          (or --prefix PREFIX; DESTDIR is put before it)
#
# Nothing in the copy knows the prefix, so that it may be moved afterwards.
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
    --help) echo "$usage          (or --prefix PREFIX; DESTDIR=FOLDER is put before it)"; exit 0 ;;
    -*) die "no such flag: $1" ;;
    *) [ -z "$prefix" ] || die "one prefix, please: $prefix, and what is $1?"; prefix=$1 ;;
  esac
  shift
done
[ -n "$prefix" ] || die "where to?  $usage"
[ -d "$tree" ] || die "no such folder: $tree"

# `bazel run` starts this in another folder, and tells the user's.
case $prefix in
  /*) ;;
  *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix ;;
esac
to=${DESTDIR:-}$prefix

# Headers of an earlier version must not stay among the new ones.
rm -rf "$to/include/tandem" "$to/lib/cmake/tandem"
(cd "$tree" && find -L . -type f) | while read -r file; do
  case $file in
    ./bin/*) mode=755 ;;
    *) mode=644 ;;  # Bazel's own outputs are read-only and executable
  esac
  install -D -m "$mode" "$tree/$file" "$to/$file"
done
echo "installed below $to"
