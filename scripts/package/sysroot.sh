#!/bin/bash
# Unpacks into build/root/ARCH the libraries that a build for another kind of machine links, and
# that its programs need under an emulator. scripts/prereqs.sh runs it. Prints nothing if all is
# there.
#
#   scripts/package/sysroot.sh ARCH       aarch64
#
# The packages are of this machine's release of Debian. apt has a state of its own for them, so this
# machine's list of architectures and packages stays as it is. The folder has a package database
# like dpkg's, in which dpkg-shlibdeps finds the dependencies for `make deb ARCH=arm64`.
set -eu
cd "$(dirname "$0")/../.."
arch=$1
case $arch in
aarch64) debian=arm64 ;;
*) echo "sysroot.sh: no machine '$arch' is known here" >&2 && exit 2 ;;
esac
packages=(libc6 libjansson-dev check)
root=$PWD/build/root/$arch
[ "$(cat "$root/complete" 2>/dev/null)" != "${packages[*]}" ] || exit 0

# shellcheck disable=SC1091 # the machine's
release=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME-}" || true)
if [ -z "$release" ] || ! command -v apt-get >/dev/null; then
	echo "sysroot.sh: this machine is no Debian; its libraries for $arch are expected in" \
		"build/root/$arch" >&2
	exit 1
fi
apt=$PWD/build/root/apt
rm -rf "$root" "$apt"
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/parts" \
	"$root/var/lib/dpkg/info"
echo 1 >"$root/var/lib/dpkg/info/format" # names of the files in there have an architecture
grep -lsE "^(Suites:|deb )(.* )?$release( |\$)" /etc/apt/sources.list /etc/apt/sources.list.d/* |
	xargs cp -t "$apt/parts"
: >"$apt/status"
own=(-qq -o APT::Architecture="$debian" -o APT::Architectures="$debian" -o Dir::State="$apt/state" \
	-o Dir::State::status="$apt/status"
	-o Dir::Cache="$apt/cache" -o Dir::Etc::sourcelist=/dev/null -o \
		Dir::Etc::sourceparts="$apt/parts" -o APT::Sandbox::User="$(id -un)")
echo "sysroot: fetching ${packages[*]} for $arch into build/root/$arch"
apt-get "${own[@]}" update
apt-get "${own[@]}" -y --no-install-recommends --download-only install "${packages[@]}" >/dev/null
for deb in "$apt"/cache/archives/*.deb; do
	dpkg-deb -x "$deb" "$root"
	name=$(dpkg-deb -f "$deb" Package)
	mkdir "$apt/control"
	dpkg-deb -e "$deb" "$apt/control"
	for f in shlibs symbols; do
		[ ! -f "$apt/control/$f" ] ||
			cp "$apt/control/$f" "$root/var/lib/dpkg/info/$name:$debian.$f"
	done
	rm -r "$apt/control"
	dpkg-deb --fsys-tarfile "$deb" | tar -t |
		sed 's/^\.//; s/\/$//; /^$/d' >"$root/var/lib/dpkg/info/$name:$debian.list"
	{
		dpkg-deb -f "$deb"
		printf 'Status: install ok installed\n\n'
	} >>"$root/var/lib/dpkg/status"
done
echo "${packages[*]}" >"$root/complete"
