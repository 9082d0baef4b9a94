#!/bin/bash
# Runs the README's commands on a machine that has nothing: a minimal Debian of this machine's
# release with a compiler and make, in a folder of its own. The tree is copied into it as git has
# it, uncommitted changes included.
#
#   scripts/bare.sh [demo] [tests] [check]        (default: demo tests)
#
#   demo    make demo
#   tests   everything that `make check` builds
#   check   make check
#
# The parts run in the given order on one such machine. Packages are downloaded from this machine's
# sources, with its settings of apt and of pip. DIR: the folder (default /tmp; about 4 GB). SEED and
# TESTFILTER are passed on. Exits with status 77 and the reason if it cannot run here.
set -u
cd "$(dirname "$0")/.." || exit 1

skip() {
	echo "skipped: $*"
	exit 77
}

[ $# -gt 0 ] || set -- demo tests
for part; do
	case $part in
	demo | tests | check) ;;
	*) echo "bare.sh: unknown part '$part'" >&2 && exit 2 ;;
	esac
done

[ "$(id -u)" = 0 ] || skip "needs root, for mounts and chroot"
# shellcheck disable=SC1091 # the machine's
release=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME-}")
[ -n "$release" ] || skip "this machine is no Debian"
unshare --mount --pid --fork true 2>/dev/null || skip "no private mounts here (unshare)"
scripts/prereqs.sh bare >/dev/null 2>&1 || skip "no mmdebstrap here"

dir=$(mktemp -d "${DIR:-/tmp}/dfshim-bare-XXXXXX")
root=$dir/root
# The file systems that are mounted below $dir are in a name space of their own, which has ended by
# then.
trap 'rm -rf --one-file-system "$dir"' EXIT
trap 'exit 143' TERM INT

# The sources of this release, and apt's settings that reach them.
mapfile -t sources < <(grep -lsE "^(Suites:|deb )(.* )?$release( |\$)" /etc/apt/sources.list \
	/etc/apt/sources.list.d/*)
apt-config dump | grep -E '^Acquire::(http|https|Retries|Check|AllowInsecure)' >"$dir/apt.conf"
if ! mmdebstrap --quiet --mode=root --variant=apt --include=gcc,make,libc6-dev \
	--aptopt="$dir/apt.conf" \
	"$release" "$root" "${sources[@]}" >"$dir/log" 2>&1; then
	tail -20 "$dir/log" >&2
	skip "mmdebstrap could not make a $release"
fi
echo "bare: $release, $(chroot "$root" dpkg-query -f '.\n' -W | wc -l) packages"

# pip's settings that reach its packages, and the certificates that apt and pip trust.
for f in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
	[ ! -f "$f" ] || install -D -m 644 "$f" "$root/etc/pip.conf"
done
keep=()
for v in $(compgen -e | grep -E '^(PIP_.*|(http|https|no)_proxy|SSL_CERT_FILE)$' |
	grep -vE '^PIP_(CERT|FIND_LINKS)$'); do
	keep+=("$v=${!v}")
done
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
	install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/dfshim-certificates.crt"
	keep+=(SSL_CERT_FILE=/etc/dfshim-certificates.crt PIP_CERT=/etc/dfshim-certificates.crt)
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null

mkdir -p "$root/dfshim"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
	[ ! -e "$f" ] || printf '%s\0' "$f"
done | tar --null -T - -c | tar -x -C "$root/dfshim" || exit 1

# inside COMMAND: runs it on the bare machine.
inside() {
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		LANG=C.UTF-8 ${SEED:+SEED="$SEED"} ${TESTFILTER:+TESTFILTER="$TESTFILTER"} \
		"${keep[@]}" unshare --mount --pid --fork --kill-child bash -c '
		mount -t proc proc "$1/proc" && mount -t sysfs sys "$1/sys" &&
		mount --rbind /dev "$1/dev" &&
			mount -t tmpfs tmpfs "$1/dev/shm" && mount -t tmpfs tmpfs "$1/tmp" &&
			exec chroot "$1" bash -c "cd /dfshim && $2"
	' bare "$root" "$1" </dev/null
}

bad=0
for part; do
	begun=$SECONDS
	case $part in
	tests) inside "scripts/prereqs.sh build check && make -j$(nproc) tests" ;;
	*) inside "make $part" ;;
	esac
	rc=$?
	[ $rc = 0 ] && how=ok || how="FAILED (status $rc)"
	echo "bare: $part: $how, $((SECONDS - begun)) s"
	[ $rc = 0 ] || bad=1
done
exit $bad
