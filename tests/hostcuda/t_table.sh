#!/bin/bash
# Compares the table interpose/hostcuda/cudart/api.def with the installed runtime: every function
# that NVIDIA's library exports is a row; exactly the rows are exported, under the right version
# node; errors have the same names.
set -eu
table=interpose/hostcuda/cudart/api.def
host=$B/libdfhost.so
[ -e "$host" ] || { echo "skipped: built without the CUDA headers"; exit 77; }

# rows PATTERN: prints the names of these rows. exports LIBRARY VERSION: prints the defined
# functions with that version.
rows() { sed -nE "s/^DF_CUDA($1)\(([A-Za-z0-9_]+).*/\2/p" $table | sort; }
exports() { nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | sed -n "s/@*$2\$//p" | sort; }

diff <(rows '|_13|_REFUSED|_REFUSED_13') <(exports "$host" @libcudart.so.13)
diff <(rows '|_12|_12_AS|_REFUSED|_REFUSED_12') <(exports "$host" @libcudart.so.12)
# The driver: all functions of cuda.h, found by name. check_cuda_api.sh compares the table itself.
diff <(scripts/gen_api.sh rows | cut -f1 | cat - <(printf '%s\n' df_hostcuda df_hostcuda_code) | sort) \
	<(nm -D --defined-only "$host" | sed -nE 's/.* [TW] (.*)@@DFHOST_1$/\1/p' | sort)
[ -z "$(rows '|_13|_REFUSED|_REFUSED_13' | uniq -d)" ]

real=$(ldd "$B/tests/hostcuda/programs/p_names" | awk '/libcudart.so.1[23]/ { print $3 }')
if [ -z "$real" ]; then
	echo "skipped: no libcudart to compare with"
	exit 77
fi
version=${real##*/libcudart.so.}
case $(readlink -f "$real") in
*.so.13.0.*) diff <(rows '|_13|_REFUSED|_REFUSED_13') <(exports "$real" @libcudart.so.13) ;;
*) # another release may lack functions, or have new ones, which would then be called in it
	comm -13 <(exports "$host" "@libcudart.so.$version") <(exports "$real" "@libcudart.so.$version") |
		sed 's/^/not in the table: /' ;;
esac
# NVIDIA's names for the error codes that the headers define.
"$B/tests/hostcuda/programs/p_names" | grep -v unrecognized >"$T/real"
tests/hostcuda/preload.sh p_names | grep -v unrecognized >"$T/ours"
diff "$T/real" "$T/ours"
# Calling a refused function gives one warning that names it.
[ "$(tests/hostcuda/preload.sh p_errors 2>&1 | grep -c 'cudaGetExportTable is not served')" = 1 ]
