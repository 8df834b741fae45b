#!/bin/sh
# Writes a Debian package and a relocatable tarball of the files that //:install copies:
#
#   ./bazelw run //:deb -- FOLDER
#
# Their names contain the Debian release on which they were built: the library needs its libfmt. Equal files give equal
# packages: all times are SOURCE_DATE_EPOCH, or else the version's date in CHANGELOG.md. DEBFULLNAME and DEBEMAIL name
# the package's maintainer.
set -eu
umask 022

die() { printf 'deb: %s\n' "$*" >&2; exit 2; }

name=$1 install=$2 tree=$3 changelog=$4 cmake=$5  # from the BUILD file
[ $# -eq 6 ] || die "usage: ./bazelw run //:deb -- FOLDER"
case $6 in
  /*) folder=$6 ;;
  *) folder=${BUILD_WORKING_DIRECTORY:-$PWD}/$6 ;;
esac
mkdir -p "$folder"
version=$(sed -n 's/^Version: //p' "$tree/lib/pkgconfig/tandem.pc")
newest=$(sed -n '/^## \[/{s/^## \[\(.*\)\].*/\1/p;q}' "$changelog")
case $newest in
  "$version" | Unreleased) ;;
  *) die "base/version.h has version $version, but the newest version of CHANGELOG.md is $newest" ;;
esac
released=$(sed -n "s/^## \[$version\] - //p" "$changelog")
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(date -u -d "${released:-today 0:00}" +%s)}"
. /etc/os-release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The tarball: with the CMakeLists.txt for FetchContent.
top=tandem-$version-$ID$VERSION_ID-$(uname -m)
[ "$name" = libtandem-dev ] || top=$top-cuda
"$install" --tree "$tree" "$work/$top" > /dev/null
strip "$work/$top/bin/tandem-run"
install -m 644 "$cmake" "$work/$top"
tar -C "$work" --sort=name --owner=root:0 --group=root:0 --mtime="@$SOURCE_DATE_EPOCH" -cf - "$top" |
  gzip -9n > "$folder/$top.tar.gz"

# The package.
rm "$work/$top/CMakeLists.txt" "$work/$top/share/doc/tandem/LICENSE"  # copyright has its text
root=$work/root
mkdir -p "$root/DEBIAN"
mv "$work/$top" "$root/usr"
documents=$root/usr/share/doc/$name
mv "$root/usr/share/doc/tandem" "$documents"
version=$version+${ID%ian}$VERSION_ID
maintainer="${DEBFULLNAME:-The tandem authors} <${DEBEMAIL:-maintainers@tandem.example}>"
gzip -9n > "$documents/changelog.gz" << EOF
tandem ($version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF

# Packages of the libraries that programs link, and of those that tandem-run links.
depends=$({
  for flag in $(sed -n 's/^Libs://p' "$tree/lib/pkgconfig/tandem.pc"); do
    dpkg -S "/usr/lib/$(uname -m)-linux-gnu/lib${flag#-l}.so" 2> /dev/null | cut -d: -f1
  done
  for library in $(ldd "$root/usr/bin/tandem-run" | awk '$3 ~ "^/" {print $3}'); do
    package=$(dpkg -S "*$library" 2> /dev/null) || continue  # CUDA's libraries may belong to no package
    # shellcheck disable=SC2016  # dpkg's variables
    dpkg-query -W -f '${Package} (>= ${source:Upstream-Version})\n' "${package%%:*}"
  done
} | sort -u | sed 's/^/, /' | tr -d '\n')

(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums)
variant=
[ "$name" = libtandem-dev ] || variant="
Provides: libtandem-dev (= $version)
Conflicts: libtandem-dev
Replaces: libtandem-dev"
cat > "$root/DEBIAN/control" << EOF
Package: $name
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$root/usr" | cut -f1)
Depends: g++$depends
Suggests: libopenmpi-dev$variant
Section: libdevel
Priority: optional
Description: distributed training of neural networks in C++
 Headers, a static library, files for CMake and pkg-config, the launcher
 tandem-run and a template of a project.
EOF
dpkg-deb --root-owner-group -Zxz -z2 --threads-max=1 --build "$root" "$folder"
echo "written: $folder/$top.tar.gz"
