#!/bin/bash
# What the tables of functions (interpose/nccl/nccl_api.def, interpose/cuda/cuda_api.def) say, and what the first lacks.
#
#   scripts/gen_api.sh names              all names, one a line
#   scripts/gen_api.sh kinds              name and kind
#   scripts/gen_api.sh driver [INCLUDE]   functions of the CUDA driver that have a wrapper
#   scripts/gen_api.sh header [INCLUDE]   names that nccl.h and nccl_device/*.h there declare for the host
#   scripts/gen_api.sh missing [INCLUDE]  rows to add for a newer NCCL: its declarations
set -eu
src=$(cd "$(dirname "$0")/.." && pwd)
def=$src/interpose/nccl/nccl_api.def
include=${2:-$("$src/scripts/cuda_home.sh")/include}

names() {
	sed -n 's/^NCCL_FN([0-9]*, [A-Z_]*, [^(]*, \(nccl[A-Za-z0-9]*\), (.*/\1/p' "$def"
}
# Declarations on one line each: nccl.h's own, and the extern "C" host functions of the device API.
declarations() {
	{
		tr '\n' ' ' <"$include/nccl.h" | sed 's/;/;\n/g' |
			grep -oE '(ncclResult_t|const char ?\*|void|ncclTeam_t|int) +nccl[A-Za-z0-9]+ ?\([^)]*\)'
		if [ -d "$include/nccl_device" ]; then
			cat "$include"/nccl_device/*.h | tr '\n' ' ' | sed 's/;/;\n/g' |
				grep -oE 'NCCL_EXTERN_C +__host__ +[A-Za-z_]+ +nccl[A-Za-z0-9]+ ?\([^)]*\)' |
				sed 's/NCCL_EXTERN_C *__host__ *//'
		fi
	} | sed 's/  */ /g' | sort -u
}
of() {
	sed -E 's/^.*[ *](nccl[A-Za-z0-9]+) ?\(.*/\1/'
}

case ${1-} in
names) names ;;
kinds) sed -n 's/^NCCL_FN([0-9]*, \([A-Z_]*\), [^(]*, \(nccl[A-Za-z0-9]*\), (.*/\2 \1/p' "$def" ;;
driver)
	# What the installed cuda.h has of it.
	printf '#include <cuda.h>\n#define DF_CU(symbol, ...) @symbol\n#define DF_CU_NONE(...)\n#include "%s"\n' \
		"$src/interpose/cuda/cuda_api.def" |
		${CC:-gcc} -E -P -D__CUDA_API_VERSION_INTERNAL -I"$include" - | grep -oE '@cu[A-Za-z0-9_]+' | tr -d @
	;;
header) declarations | of | sort -u ;;
missing)
	declarations | while read -r line; do
		names | grep -qx "$(of <<<"$line")" || echo "$line"
	done
	;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
