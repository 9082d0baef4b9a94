#!/bin/bash
# Prints contents of the function tables (interpose/nccl/nccl_api.def, interpose/cuda/cuda_api.def),
# and functions that the first one lacks.
#
#   scripts/gen_api.sh names               all names, one a line
#   scripts/gen_api.sh kinds               name and kind
#   scripts/gen_api.sh rows                symbol, base, since, per thread, class and object
#   scripts/gen_api.sh declared [INCLUDE]  declarations of cuda.h there: symbol and parameters
#   scripts/gen_api.sh calls [INCLUDE]     cuda_calls.def: see interpose/cuda/cuda_api.def
#   scripts/gen_api.sh codes [INCLUDE]     cuda_codes.def: result codes of CUDA's driver and runtime
#   scripts/gen_api.sh driver [INCLUDE]    functions of the CUDA driver that have a wrapper
#   scripts/gen_api.sh header [INCLUDE]    names of the host in nccl.h and nccl_device/*.h there
#   scripts/gen_api.sh missing [INCLUDE]   rows to add for a newer NCCL: its declarations
set -eu
src=$(cd "$(dirname "$0")/.." && pwd)
def=$src/interpose/nccl/nccl_api.def
include=${2:-$("$src/scripts/cuda_home.sh")/include}

# Prints kind and name.
kinds() {
	sed -f "$src/scripts/list_rows.sed" "$def" |
		sed -n 's/^NCCL_FN([0-9]*, \([A-Z_]*\), [^(]*, \(nccl[A-Za-z0-9]*\), (.*/\2 \1/p'
}
names() {
	kinds | cut -d' ' -f1
}
# Joins declarations to one line each: those of nccl.h, and the extern "C" host functions of the
# device API.
declarations() {
	local prototype='nccl[A-Za-z0-9]+ ?\([^)]*\)'
	{
		tr '\n' ' ' <"$include/nccl.h" | sed 's/;/;\n/g' |
			grep -oE "(ncclResult_t|const char ?\*|void|ncclTeam_t|int) +$prototype"
		if [ -d "$include/nccl_device" ]; then
			cat "$include"/nccl_device/*.h | tr '\n' ' ' | sed 's/;/;\n/g' |
				grep -oE "NCCL_EXTERN_C +__host__ +[A-Za-z_]+ +$prototype" |
				sed 's/NCCL_EXTERN_C *__host__ *//'
		fi
	} | sed 's/  */ /g' | sort -u
}
of() {
	sed -E 's/^.*[ *](nccl[A-Za-z0-9]+) ?\(.*/\1/'
}

# Prints fields between tabs. The symbol's form for the per-thread default stream is a row of its
# own.
rows() {
	sed -f "$src/scripts/list_rows.sed" "$src/interpose/cuda/cuda_api.def" |
		awk -v OFS='\t' '/^DF_CU(_NONE)?\(/ {
		none = /^DF_CU_NONE/
		sub(/^[A-Z_]*\(/, "")
		sub(/\)$/, "")
		split($0, field, /, /)
		what = none ? "" : substr($0, length(field[1] field[2] field[3]) + 7)
		base = field[1]
		sub(/_v[0-9]+$/, "", base)
		print field[1], base, field[2], 0, what
		if (split(field[3], form, /[()]/) > 1)
			print field[1] "_" form[1], base, form[2], 1, what
	}'
}
# Prints a symbol, a tab and its parameters. With this macro the header declares every symbol under
# its own name, old and per-thread forms too.
declared() {
	${CC:-gcc} -E -P -D__CUDA_API_VERSION_INTERNAL "$include/cuda.h" | tr '\n\t' '  ' |
		tr ';' '\n' |
		sed -nE 's/.*\bCUresult +(cu[A-Z][A-Za-z0-9_]*) *(\(.*\)) *$/\1\t\2/p' | sort -u
}
calls() {
	rows | awk -F'\t' '
	NR == FNR {
		params[$1] = $2
		next
	}
	$5 == "" {
		if (!none++)
			print "#ifdef DF_CU_NONE"
		printf "DF_CU_NONE(%s, %s, %s, %s)\n", $1, $2, $3, $4
		next
	}
	# Both forms have the same parameters, sometimes under other names.
	$1 in params {
		form = $1
		sub(/_pt(sz|ds)$/, "", form)
		n = split(substr(params[form], 2, length(params[form]) - 2), param, /,/)
		args = ""
		for (i = 1; i <= n; i++)
			if (match(param[i], /[A-Za-z_][A-Za-z0-9_]* *$/) &&
			    param[i] !~ /^ *void *$/)
				args = args (i > 1 ? ", " : "") substr(param[i], RSTART)
		printf "DF_CU(%s, %s, %s, %s, %s, %s, (%s))\n", $1, $2, $3, $4, $5,
			params[form], args
	}
	END {
		print "#endif"
		exit NR == FNR
	}' <(declared) -
}

codes() {
	${CC:-gcc} -E -P -isystem "$include" -include cuda.h "$include/driver_types.h" |
		tr '\n' ' ' |
		grep -oE 'enum [^{}]*cudaError(_enum)? *\{[^}]*\}' |
		grep -oE '\b(cuda|CUDA_)[A-Za-z0-9_]+ *=' |
		sed -E 's/^(CUDA_[A-Z0-9_]+).*/DF_CU_RESULT(\1)/
			s/^(cuda[A-Za-z0-9]+).*/DF_CUDA_ERROR(\1)/'
}

case ${1-} in
names | kinds | rows | declared | calls | codes) "$1" ;;
driver)
	calls | sed -nE 's/^DF_CU\(([A-Za-z0-9_]+),.*/\1/p'
	;;
header) declarations | of | sort -u ;;
missing)
	declarations | while read -r line; do
		names | grep -qx "$(of <<<"$line")" || echo "$line"
	done
	;;
*) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0" && exit 2 ;;
esac
