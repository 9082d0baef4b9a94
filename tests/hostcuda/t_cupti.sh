#!/bin/bash
# CUPTI's names: a process with libdfhost.so preloaded finds its functions. They refuse with one
# line and never crash. The table has all functions of the installed headers, and every row is
# exported.
set -eu
export LC_ALL=C
[ -e "$B/libdfhost.so" ] || { echo "skipped: built without the CUDA headers"; exit 77; }
sed -nE 's/^DF_CUPTI(_SERVED)?\((.*)\)$/\2/p' interpose/hostcuda/cupti/cupti.def | sort -u >"$T/table"
[ "$(grep -c '^DF_CUPTI' interpose/hostcuda/cupti/cupti.def)" = "$(wc -l <"$T/table")" ]
for release in 12 13; do
	nm -D --defined-only "$B/dfhost/libcupti.so.$release" | sed -nE "s/.* [TW] (.*)@@libcupti.so.$release$/\1/p" | sort |
		diff "$T/table" -
done
headers=("${CUDA_HOME:-/usr/local/cuda}"/include/cupti*.h)
if [ -e "${headers[0]}" ]; then
	grep -ohE '\bCUPTIAPI\s+cupti[A-Za-z0-9_]+|^cupti[A-Z][A-Za-z0-9_]*\(' "${headers[@]}" | grep -oE 'cupti[A-Za-z0-9_]+' | sort -u |
		comm -23 - "$T/table" >"$T/missing"
	[ ! -s "$T/missing" ] || { echo "not in the table: $(cat "$T/missing")"; exit 1; }
fi
tests/hostcuda/preload.sh p_cupti >"$T/out" 2>&1 || { cat "$T/out"; exit 1; }
[ "$(grep -c 'cuptiSubscribe and the rest of CUPTI return' "$T/out")" = 1 ] || { cat "$T/out"; exit 1; }
