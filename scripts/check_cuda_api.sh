#!/bin/bash
# Compares interpose/cuda/cuda_api.def with the cuda.h that is installed: every function must be in the table, with a
# class or as harmless. `make lint` runs it; without a cuda.h there is nothing to compare.
#
#   scripts/check_cuda_api.sh [CUDA_HOME or a cuda.h]
set -u
cd "$(dirname "$0")/.." || exit 1
table=${TABLE:-interpose/cuda/cuda_api.def}
at=${1:-$(scripts/cuda_home.sh)}
header=$at
[ -d "$at" ] && header=$at/include/cuda.h
if [ ! -f "$header" ]; then
	echo "check_cuda_api: left out: no $header"
	exit 0
fi
version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$header")

# With this macro the header declares every symbol under its own name, old and per-thread forms too.
declared=$(${CC:-gcc} -E -P -D__CUDA_API_VERSION_INTERNAL "$header" | tr '\n\t' '  ' | tr ';' '\n' |
	sed -nE 's/.*\bCUresult +(cu[A-Z][A-Za-z0-9_]*) *(\(.*\)) *$/\1 \2/p' | sort -u)
[ -n "$declared" ] || {
	echo "check_cuda_api: no function found in $header"
	exit 1
}

printf '%s\n' "$declared" | awk -v table="$table" -v version="$version" '
BEGIN {
	while ((getline line < table) > 0) {
		if (line ~ /^DF_CU(_NONE)?\(/) {
			sub(/^DF_CU(_NONE)?\(/, "", line)
			split(line, w, /, */)
			if (w[1] in known) {
				print w[1] ": twice in " table
				bad = 1
			}
			known[w[1]] = w[3] + 0
		}
	}
}
{
	have[$1] = 1
	if ($1 in known)
		next
	what = $0 ~ /CUstream[ ,)]/ ? "takes a stream" : "is new"
	print $1 ": " what " and is not classified in " table
	bad = 1
}
END {
	for (s in known)
		if (!(s in have) && known[s] <= version + 0 && known[s] > 0) {
			print s ": in " table ", but not in cuda.h " version
			bad = 1
		}
	exit bad
}'
