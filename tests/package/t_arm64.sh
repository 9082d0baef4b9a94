#!/bin/bash
# Description: the wheel and the Debian package for arm64: their contents, and jobs with them under an emulator.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
wheel=$(ls "$SRC"/build/dist/dfshim-*_aarch64.whl 2>/dev/null)
deb=$(ls "$SRC"/build/dist/dfshim_*_arm64.deb 2>/dev/null)
[ -n "$wheel$deb" ] || skip "no package for arm64 in build/dist: make wheel ARCH=aarch64, make deb ARCH=arm64"
app=$SRC/build/aarch64/clients/disorder
[ -x "$app" ] || skip "no clients for arm64: make ARCH=aarch64"
unset LD_PRELOAD
emulated() { env -u SRC -u B "$SRC/scripts/emulated.sh" "$@"; }
emulated "$app" --help >/dev/null 2>"$T/why"
[ $? != 77 ] || skip "no program of arm64 runs here"
[ -z "$wheel" ] || python3 -m zipfile -e "$wheel" "$T/wheel"
[ -z "$deb" ] || dpkg-deb -x "$deb" "$T/deb"
for root in "$T/wheel/dfshim" "$T/deb/usr"; do
	[ -d "$root" ] || continue
	tool=$root/bin/dfshim
	chmod +x "$tool"
	find "$root" \( -name '*.so' -o -name '*.so.[0-9]*' -o -path '*/bin/dfshim' \) >"$T/files"
	[ "$(wc -l <"$T/files")" -ge 9 ] || fail "$root: $(cat "$T/files")"
	while read -r f; do
		[ "$(od -An -tu2 -j18 -N2 "$f" | tr -d ' ')" = 183 ] || fail "$f is not for arm64"
	done <"$T/files"
	emulated "$tool" --version >"$T/out" 2>&1 || fail "--version: $(cat "$T/out")"
	grep -qxF "$("$B/dfshim" --version | grep '^with ')" "$T/out" || fail "it was built with other parts than here: $(cat "$T/out")"
	emulated "$tool" run --host -- "$app" --ranks 2 --colls 3 --iters 3 >"$T/out" 2>&1 || fail "run: $(tail -5 "$T/out")"
	grep -q OK "$T/out" || fail "run: $(cat "$T/out")"
	emulated "$tool" run --host --rules nccl --timeout "$(seconds 20)" -- "$app" --ranks 2 --colls 4 --iters 30 >"$T/out" 2>&1 &&
		fail "by NCCL's rules: it went on: $(cat "$T/out")"
	grep -q '^ORDER: ' "$T/out" || fail "by NCCL's rules: $(cat "$T/out")"
done
exit 0
