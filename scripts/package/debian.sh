#!/bin/bash
# Builds a Debian package for this machine's release: build/dist/dfshim_*.deb. Called by `make deb`.
#
# Builds the files of git again in a folder of its own, with Debian's tools and with the headers of
# CUDA and NCCL of this build. lintian's errors are errors.
set -eu
cd "$(dirname "$0")/../.."
missing=""
for p in debhelper:dh dpkg-dev:dpkg-buildpackage lintian:lintian; do
	command -v "${p#*:}" >/dev/null || missing="$missing ${p%:*}"
done
[ -z "$missing" ] || {
	echo "make deb: missing:$missing: scripts/prereqs.sh deb" >&2
	exit 1
}
version=$(sed -n 's/.*DF_VERSION "\(.*\)"/\1/p' runtime/base/version.h)
work=build/deb
src=$work/dfshim-$version
rm -rf "$work"
mkdir -p "$src" build/dist
rm -f build/dist/dfshim_*.deb # if a step fails, no earlier package is left
git archive HEAD | tar -x -C "$src"
cp -r scripts/package/debian "$src/debian"
# Headers from wheels are not in git.
[ ! -d build/cuda ] || { mkdir "$src/build" && cp -r build/cuda "$src/build/"; }
{
	echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
	echo "Upstream-Name: dfshim"
	echo
	echo "Files: *"
	sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
	echo "License: BSD-3-clause"
	sed '1,/^Copyright/d' LICENSE | sed -e '/./,$!d' -e 's/^$/./' -e 's/^/ /'
} >"$src/debian/copyright"
{
	echo "dfshim ($version) unstable; urgency=medium"
	echo
	echo "  * See CHANGELOG.md in /usr/share/doc/dfshim."
	echo
	echo " -- $(sed -n 's/^Maintainer: //p' scripts/package/debian/control)  $(git log -1 --format=%aD)"
} >"$src/debian/changelog"
echo CHANGELOG.md >"$src/debian/docs"
export BUILD_COMMIT
BUILD_COMMIT=$(git rev-parse --short=12 HEAD)
(cd "$src" && dpkg-buildpackage -b -us -uc -j"$(nproc)") >"$work/log" 2>&1 || {
	tail -30 "$work/log" >&2
	exit 1
}
deb=$(ls "$work"/dfshim_"$version"_*.deb)
lintian --fail-on error "$deb"
cp "$deb" build/dist/
echo "build/dist/$(basename "$deb")"
