#!/bin/bash
# Description: files that `make install` puts into another folder work there, and `make uninstall` removes them. Without its prerequisites make prints one line.
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/lib/installed.sh"
case $B in "$SRC"/*) ;; *) skip "the build folder is not below the sources" ;; esac
root=$T/root
cd "$SRC" || exit 1
case $B in */thread) san=thread ;; */address) san=address ;; *) san="" ;; esac
SAN_COMPILE=${san:+-fsanitize=$san}
mk() { env -u MAKEFLAGS make --no-print-directory -s SAN="$san" B="${B#"$SRC"/}" PREFIX=/opt/df DESTDIR="$root" "$@"; }
mk install >"$T/install" 2>&1 || fail "make install: $(tail -5 "$T/install")"
at=$root/opt/df
for f in bin/dfshim lib/libdfshim.so lib/libdfhost.so lib/libnccl-profiler-dfshim.so lib/dfhost/libcuda.so.1 lib/dfhost/libcupti.so.13 lib/dfshim/libdfnccl.so include/dfccl.h share/man/man1/dfshim.1 share/man/man7/libdfshim.7 \
	share/bash-completion/completions/dfshim lib/pkgconfig/dfshim.pc share/dfshim/sim.schema.json; do
	[ -s "$at/$f" ] || fail "$f is not installed"
done
for f in docs/man/*.1; do
	[ -s "$at/share/man/man1/$(basename "$f")" ] || fail "$f is not installed"
done
# No installed file contains the path of the build folder.
! grep -rIl "$SRC" "$at" || fail "text files that name the sources' folder"

# The installed tool uses the installed libraries, and runs a job with them.
cd "$T" || exit 1
env -u SRC -u B PATH="$at/bin:$PATH" dfshim run --host -- "$C/disorder" --ranks 2 --colls 3 --iters 3 >"$T/out" 2>&1 ||
	fail "the installed copy: $(tail -5 "$T/out")"
grep -q OK "$T/out" || fail "the installed copy: $(cat "$T/out")"
env -u SRC -u B "$at/bin/dfshim" run --host --rules nccl --timeout "$(seconds 20)" -- "$C/disorder" --ranks 2 --colls 4 --iters 30 >"$T/out" 2>&1 &&
	fail "the installed copy by NCCL's rules went on: $(cat "$T/out")"
grep -q '^ORDER: ' "$T/out" || fail "the installed copy by NCCL's rules: $(tail -5 "$T/out")"
# In a folder of ldconfig, libraries with the sonames of NVIDIA's would be linked under NVIDIA's
# names.
for f in "$at"/lib/*.so*; do
	readelf -d "$f" | grep -E 'SONAME.*\[lib(nccl|cuda|cudart)\.so' && fail "$f is in a folder of ldconfig's"
done
# shellcheck disable=SC2016 # for the shell below
"$at/bin/dfshim" run --host -- sh -c 'for f in $LD_PRELOAD; do realpath $f; done' | grep -qx "$(realpath "$at")/lib/libdfshim.so" ||
	fail "another libdfshim.so than the installed one is preloaded"
"$at/bin/dfshim" sim "$at/share/dfshim/sim/single_free_32_64_d1e-5.json" --rounds 50 --seed 1 >"$T/sim" 2>&1 ||
	fail "sim: $(tail -3 "$T/sim")"
jq -e . "$at/share/dfshim/sim.schema.json" >/dev/null || fail "the schema is no JSON"
[ "$(PKG_CONFIG_PATH=$at/lib/pkgconfig pkg-config --variable=preload dfshim)" = /opt/df/lib/libdfshim.so ] ||
	fail "pkg-config: $(PKG_CONFIG_PATH=$at/lib/pkgconfig pkg-config --variable=preload dfshim)"
native "$root" /opt/df
completion "$at/share/bash-completion/completions/dfshim" "$at/bin/dfshim"

# A folder name that contains LD_PRELOAD's separators.
mv "$at" "$T/a b:c"
for n in 1 2; do
	env -u SRC -u B "$T/a b:c/bin/dfshim" run --host -n $n -- "$C/disorder" --ranks 2 --colls 3 --iters 3 >"$T/out" 2>&1 ||
		fail "in a folder with a blank, -n $n: $(tail -5 "$T/out")"
	grep -q OK "$T/out" || fail "in a folder with a blank, -n $n: $(cat "$T/out")"
done
lib=$("$T/a b:c/bin/dfshim" lib)
[ "$(realpath "$lib")" = "$(realpath "$T/a b:c")/lib/libdfshim.so" ] && [[ $lib != *[\ :]* ]] || fail "dfshim lib in a folder with a blank: $lib"
links=$(find /tmp -maxdepth 1 -type l -lname "$(realpath "$T/a b:c")/bin")
[ "$(wc -l <<<"$links")" = 1 ] || fail "not one link to the folder: $links"
rm -f "$links"
ln -s "$T" "$links"
"$T/a b:c/bin/dfshim" run --host -- true 2>"$T/said" && fail "a link that leads somewhere else is followed"
grep -q "$links: is not this user's link to" "$T/said" || fail "the link that is refused is not named: $(cat "$T/said")"
rm -f "$links"
if [ "$(id -u)" = 0 ]; then
	ln -s "$(realpath "$T/a b:c")/bin" "$links" && chown -h 65534 "$links"
	"$T/a b:c/bin/dfshim" run --host -- true 2>"$T/said" && fail "another user's link is followed"
	rm -f "$links"
fi
mv "$T/a b:c" "$at"

cd "$SRC" || exit 1
mk uninstall >"$T/uninstall" 2>&1
left=$(find "$root" -type f)
[ -z "$left" ] || fail "make uninstall leaves $left"

# Without a prerequisite make prints one line with the missing file and how to install it.
env -u MAKEFLAGS make -s PREREQS=jansson.h all >"$T/bare" 2>&1 && fail "make goes on without jansson.h"
[ "$(wc -l <"$T/bare")" = 1 ] && grep -q "missing: jansson.h.*scripts/prereqs.sh" "$T/bare" || fail "bare: $(cat "$T/bare")"
exit 0
