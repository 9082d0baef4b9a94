#!/bin/bash
# Builds a Debian package for this machine's release: build/dist/dfshim_*.deb. `make deb` runs it.
#
# Builds the files of git again in a folder of its own, with Debian's tools and with the headers of
# CUDA and NCCL of this build. An error of lintian is an error. ARCH=aarch64: builds for arm64 with
# Debian's cross compiler. The dependencies are those of the packages of scripts/package/sysroot.sh.
set -eu
cd "$(dirname "$0")/../.."
missing=""
for p in debhelper:dh dpkg-dev:dpkg-buildpackage lintian:lintian; do
	command -v "${p#*:}" >/dev/null || missing="$missing ${p%:*}"
done
arch=$(dpkg --print-architecture) how=()
[ -z "${ARCH-}" ] || {
	arch=arm64 how=(-a arm64 -d)
	command -v "$ARCH-linux-gnu-gcc" >/dev/null && [ -f "build/root/$ARCH/complete" ] ||
		missing="$missing gcc-$ARCH-linux-gnu"
}
[ -z "$missing" ] || {
	echo "make deb: missing:$missing: scripts/prereqs.sh deb" >&2
	exit 1
}
version=$(sed -n 's/.*DF_VERSION "\(.*\)"/\1/p' runtime/base/version.h)
work=build/deb${ARCH:+/$ARCH}
src=$work/dfshim-$version
rm -rf "$work"
mkdir -p "$src" build/dist
rm -f build/dist/dfshim_*_"$arch".deb # if a step fails, no earlier package is left
git archive HEAD | tar -x -C "$src"
cp -r scripts/package/debian "$src/debian"
# Headers from wheels are not in git.
[ ! -d build/cuda ] || { mkdir "$src/build" && cp -r build/cuda "$src/build/"; }
if [ -n "${ARCH-}" ]; then
	mkdir -p "$src/build/root"
	ln -s "$PWD/build/root/$ARCH" "$src/build/root/"
	# GPU code is the same for every kind of machine.
	! make --no-print-directory ARCH= -n build/kernels/daemon.fatbin >/dev/null 2>&1 || {
		make --no-print-directory ARCH= build/kernels/daemon.fatbin
		install -D build/kernels/daemon.fatbin "$src/build/kernels/daemon.fatbin"
	}
fi
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
	echo " -- $(sed -n 's/^Maintainer: //p' scripts/package/debian/control) " \
		"$(git log -1 --format=%aD)"
} >"$src/debian/changelog"
echo CHANGELOG.md >"$src/debian/docs"
export BUILD_COMMIT
BUILD_COMMIT=$(git rev-parse --short=12 HEAD)
# The option -nc skips the cleaning: the folder is new, and cleaning it would remove the files that
# were just put into build/.
(cd "$src" && env -u MAKEFLAGS -u MAKEOVERRIDES dpkg-buildpackage -b -nc -us -uc "${how[@]}" \
	-j"$(nproc)") >"$work/log" 2>&1 || {
	tail -30 "$work/log" >&2
	exit 1
}
deb=$(ls "$work"/dfshim_"$version"_"$arch".deb)
lintian --fail-on error "$deb"
cp "$deb" build/dist/
echo "build/dist/$(basename "$deb")"
