#!/bin/bash
# Description: the libraries export the table's names, which include all of the installed NCCL's,
# and no others.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
B=${B:-$SRC/build}
T=${T:-$(mktemp -d)}
shim=$B/libdfshim.so
cuda=$("$SRC/scripts/cuda_home.sh")
fails=0

"$SRC/scripts/gen_api.sh" names | sort >"$T/table"
[ "$(wc -l <"$T/table")" -ge 53 ] || { echo "the table is not read" && exit 1; }
[ "$(uniq -d "$T/table")" = "" ] || { echo "twice in the table: $(uniq -d "$T/table")" && fails=1; }
nm -D --defined-only "$shim" | awk '{print $3}' | sed 's/@.*//' | sort >"$T/exported"

# none WHAT: each line of stdin is a mistake. A pipe's end runs in a process of its own, so it
# writes to a file.
none() {
	local found
	found=$(cat)
	[ -z "$found" ] || echo "$1:" $found | tee -a "$T/mistakes"
}
rm -f "$T/mistakes"
{ cat "$T/table" && sed 's/^/p/' "$T/table"; } | sort | comm -23 - "$T/exported" | none "not exported"
grep -E '^p?nccl' "$T/exported" | sed 's/^p//' | sort -u | comm -23 - "$T/table" |
	none "exported, but not in the table"
# NCCL on the CPU exports each name, too. Functions that it does not implement fail by name.
nm -D --defined-only "$B/libdfnccl.so" | awk '$3 ~ /^p?nccl/ {print $3}' | sort >"$T/hostnccl"
{ cat "$T/table" && sed 's/^/p/' "$T/table"; } | sort | comm -3 - "$T/hostnccl" | none "in the table or in libdfnccl.so only"
# libdfshim.so exports the driver's functions that have a wrapper, and no others.
"$SRC/scripts/gen_api.sh" driver | sort >"$T/driver"
[ "$(wc -l <"$T/driver")" -ge 100 ] || { echo "the driver's table is not read" && fails=1; }
comm -23 "$T/driver" "$T/exported" | none "not exported for the driver"
grep -E '^cu[A-Z]' "$T/exported" | comm -13 "$T/driver" - | none "exported, but no wrapper of the driver's table"
# Beyond NCCL's and the driver's, only names of the export map are exported.
grep -vE "^(p?nccl|cu[A-Z])" "$T/exported" | while read -r name; do
	grep -qE "^[[:space:]]*$name;" "$SRC/interpose/load/export.map" || echo "$name"
done | none "exported, but not named in export.map"

lib=$(ls "$cuda"/lib64/libnccl.so.2 "$cuda"/lib/libnccl.so.2 2>/dev/null | head -1)
if [ -n "$lib" ]; then
	nm -D --defined-only "$lib" | awk '{print $3}' | sed 's/@.*//' | grep -E '^p?nccl' | sort |
		comm -23 - "$T/exported" | none "in $lib, but not exported"
	echo "compared with $lib"
fi
if [ -e "$cuda/include/nccl.h" ]; then
	"$SRC/scripts/gen_api.sh" header "$cuda/include" | sort | comm -23 - "$T/table" |
		none "in the headers below $cuda, but not in the table"
	echo "compared with $cuda/include/nccl.h"
fi
# The library needs nothing but the C library.
readelf -d "$shim" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
	grep -vE '^(libc\.so|ld-linux|libpthread\.so|libdl\.so|librt\.so|lib(t|a|ub)san\.so|libm\.so|libgcc_s\.so|libstdc)' |
	none "needed by libdfshim.so"
[ $fails = 0 ] && [ ! -s "$T/mistakes" ]
