#!/bin/bash
# Runs a command in an environment in which programs of arm64 run by themselves: under
# qemu-user-static, with the libraries of scripts/package/sysroot.sh. The kernel finds the emulator
# by binfmt_misc, in a user name space of its own, so this machine's settings stay as they are.
# `make check-arm64` runs it.
#
#   scripts/emulated.sh COMMAND...
#
# Exits with status 77 and the reason if that is not possible here.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
skip() {
	echo "skipped: $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
}
[ "$(uname -m)" != aarch64 ] || exec "$@"
qemu=$(command -v qemu-aarch64-static) || skip "no qemu-aarch64-static here (qemu-user-static)"
export QEMU_LD_PREFIX=$root/build/root/aarch64
[ -d "$QEMU_LD_PREFIX/lib" ] ||
	skip "no libraries in $QEMU_LD_PREFIX: scripts/package/sysroot.sh aarch64"
# shellcheck disable=SC2016 # the inner shell expands it
inside='mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
	printf "%s" ":arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00" \
		"\x00\x00\x00\x00\x02\x00\xb7\x00:" \
		"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff" \
		"\xff\xff\xff\xff\xfe\xff\xff\xff:$0:F" \
		>/proc/sys/fs/binfmt_misc/register && exec "$@"'
unshare --user --map-root-user --mount sh -c "$inside" "$qemu" true 2>/dev/null ||
	skip "the kernel gives no name space a binfmt_misc of its own (Linux 6.7)"
exec unshare --user --map-root-user --mount sh -c "$inside" "$qemu" "$@"
