#!/bin/bash
# Runs the tests of one area after the other with a sanitizer: first the areas that .ci/run leaves
# out, then all others. A run is an area.
# shellcheck disable=SC2034,SC2154 # lib.sh reads them, and sets the others
set -u
. "$SRC/tests/soak/lib.sh"
areas() { # SANITIZER
	case $1 in
	tsan) echo "$TSAN_LEFT" ;;
	asan) echo "$ASAN_LEFT" ;;
	esac
	for d in "$SRC"/tests/*/; do
		d=$(basename "$d")
		compgen -G "$SRC/tests/$d/t_*" >/dev/null || continue
		# model/ contains none of our code; `make check` does not run the others either
		case $d in model | docs | gpu | rdma | package) ;; *) echo "$d/" ;; esac
	done
}
eval "$(sed -nE 's/^(TSAN|ASAN)_LEFT=/&/p' "$SRC/.ci/run")"
for san in tsan asan; do
	for area in $(areas $san | tr ' ' '\n' | awk '!seen[$0]++'); do
		left=$((BUDGET - $(date +%s) + begun))
		[ $left -gt 0 ] || break 2
		runs=$((runs + 1))
		rm -rf "$T/run" && mkdir -p "$T/run"
		# B names the build that the other parts use, so unset it.
		(cd "$SRC" && exec env -u B timeout -k 30 $left make $san TESTFILTER="$area") >"$T/run/log" 2>&1
		rc=$?
		grep -E '^[0-9]+ passed, ' "$T/run/log" | sed "s|^|$part: $san $area: |"
		[ $rc != 124 ] || break 2
		[ $rc = 0 ] || finding "make $san TESTFILTER=$area: $(grep -E '^FAIL|Error' "$T/run/log" | head -3 | tr '\n' ' ')"
	done
done
done_with
