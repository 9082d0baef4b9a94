# Functions for the tests in this folder: run a job of tests/profiler/job, and check its traces with
# `dfshim check`. Sourced; the tests use its variables.
# shellcheck shell=bash
# shellcheck disable=SC2034
plugin=$B/libnccl-profiler-dfshim.so
df=$B/dfshim
bad=0
san=${SAN_RUNTIME-}
unset LD_PRELOAD

fail() {
	echo "FAIL: $*"
	bad=1
}

# start FOLDER WORLD VARIABLE... -- PROGRAM...: starts a process for each rank, with RANK in the
# arguments replaced by its number. Stores the process ids in `pids`.
start() {
	local dir=$1 world=$2 rank vars=()
	shift 2
	while [ "$1" != -- ]; do vars+=("$1") && shift; done
	shift
	pids=()
	mkdir -p "$dir"
	for ((rank = 0; rank < world; rank++)); do
		env RANK=$rank WORLD_SIZE="$world" DFSHIM_TRACE="$dir/trace" "${vars[@]}" "${@/#RANK/$rank}" >"$dir/$rank.out" 2>"$dir/$rank.err" &
		pids+=($!)
	done
}

# ends FOLDER: all processes of the job must exit with status 0.
ends() {
	local pid
	for pid in "${pids[@]}"; do
		wait "$pid" || fail "$1: status $?: $(cat "$T/$1"/*.err | head -3)"
	done
}

# stands FOLDER NR TYPE: waits until the job hangs and NR records of this type are in its trace, and
# kills it.
stands() {
	local dir=$1 want=$2 i
	for ((i = 0; i < ${LIMIT:-60} * 10; i++)); do
		[ "$(cat "$dir"/*.out | grep -c hangs)" -lt "${#pids[@]}" ] ||
			[ "$("$df" show --json --type "$3" "$dir/trace" 2>/dev/null | wc -l)" -lt "$want" ] || break
		sleep 0.1
	done
	kill -9 "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
}

# says FOLDER STATUS PATTERN: the checker must exit with STATUS and print a first line that matches
# PATTERN.
says() {
	"$df" check "$1/trace" >"$1/check" 2>&1
	local got=$?
	{ [ $got = "$2" ] && head -1 "$1/check" | grep -qE "$3"; } || fail "${1##*/}: status $got, not $2 with $3: $(head -12 "$1/check")"
}
