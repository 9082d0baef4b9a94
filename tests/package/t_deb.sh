#!/bin/bash
# Description: the package of `make deb` is installed into a folder of its own, used there, and removed by dpkg.
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/lib/installed.sh"
deb=$(ls "$SRC"/build/dist/dfshim_*_"$(dpkg --print-architecture)".deb 2>/dev/null) || skip "no package in build/dist: make deb"
[ "$deb" -nt "$B/libdfshim.so" ] || skip "the package is older than the libraries: make deb"
[ "$(id -u)" = 0 ] || skip "only root can install packages"
unset LD_PRELOAD
# dpkg uses a database of its own, so this machine's packages remain unchanged.
root=$T/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
: >"$root/var/lib/dpkg/status"
own() { dpkg --root="$root" --force-depends --log=/dev/null "$@" >"$T/dpkg" 2>&1; }
own -i "$deb" || fail "dpkg -i: $(tail -5 "$T/dpkg")"
tool=$root/usr/bin/dfshim
"$tool" --version >"$T/version" && cmp -s <(head -1 "$T/version") <("$B/dfshim" --version | head -1) &&
	grep -q '^with libdfshim.so libdfhost.so ' "$T/version" || fail "--version: $(cat "$T/version")"
for f in lib/libdfshim.so lib/libdfhost.so lib/dfshim/libdfnccl.so lib/libdfplan.so lib/libnccl-profiler-dfshim.so lib/dfhost/libcuda.so.1 \
	lib/dfhost/libcudart.so.12 lib/dfhost/libcudart.so.13 share/dfshim/python/dfshim/host/site/sitecustomize.py include/dfccl.h \
	share/man/man1/dfshim.1.gz share/doc/dfshim/copyright; do
	[ -s "$root/usr/$f" ] || fail "/usr/$f is missing"
done
cd "$T" || exit 1
env -u SRC -u B "$tool" run --host -- "$C/disorder" --ranks 2 --colls 3 --iters 3 >"$T/out" 2>&1 || fail "run: $(tail -5 "$T/out")"
grep -q OK "$T/out" || fail "run: $(cat "$T/out")"
env -u SRC -u B "$tool" run --host --rules nccl --timeout "$(seconds 20)" -- "$C/disorder" --ranks 2 --colls 4 --iters 30 >"$T/out" 2>&1 &&
	fail "by NCCL's rules: it went on: $(cat "$T/out")"
grep -q '^ORDER: ' "$T/out" || fail "by NCCL's rules: $(cat "$T/out")"
native "$root" /usr
completion "$root/usr/share/bash-completion/completions/dfshim" "$tool"
own -P dfshim || fail "dpkg -P: $(tail -5 "$T/dpkg")"
left=$(find "$root/usr" -type f 2>/dev/null)
[ -z "$left" ] || fail "dpkg -P leaves $left"
exit 0
