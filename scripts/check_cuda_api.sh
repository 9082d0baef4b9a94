#!/bin/bash
# Compares interpose/cuda/cuda_api.def with the installed cuda.h: the table must have every
# function, with a class or as harmless. `make lint` runs it; without a cuda.h there is nothing to
# compare.
#
#   scripts/check_cuda_api.sh [FOLDER OF cuda.h]
set -u
cd "$(dirname "$0")/.." || exit 1
include=${1:-$(scripts/cuda_home.sh)/include}
if [ ! -f "$include/cuda.h" ]; then
	echo "check_cuda_api: left out: no $include/cuda.h"
	exit 0
fi
version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$include/cuda.h")

scripts/gen_api.sh rows | awk -F'\t' -v version="$version" '
NR == FNR {
	have[$1] = $2
	next
}
{
	if ($1 in known) {
		print $1 ": twice in the table"
		bad = 1
	}
	known[$1] = 1
	if (!($1 in have) && $3 + 0 <= version + 0) {
		print $1 ": in the table, but not in cuda.h " version
		bad = 1
	}
}
END {
	for (s in have)
		if (!(s in known)) {
			print s ": " (have[s] ~ /CUstream[ ,)]/ ? "takes a stream" : "is new") \
				" and is not classified in the table"
			bad = 1
		}
	if (!NR || NR == FNR) {
		print "no function found in cuda.h, or none in the table"
		bad = 1
	}
	exit bad
}' <(scripts/gen_api.sh declared "$include") -
