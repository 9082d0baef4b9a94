#!/bin/bash
# Description: the profiler plugin with a folder that cannot be written, without memory, without room in files, and with calls that NCCL does not make: one clear line, and the job goes on.
set -u
. "$SRC/tests/profiler/job.sh"
[ -x "$B/tests/profiler/job" ] || { echo "not built" && exit 77; }

# goes_on NAME PATTERN COMMAND...: the command must exit with 0 and print a single line that matches
# PATTERN.
goes_on() {
	local name=$1 pattern=$2
	shift 2
	timeout "${LIMIT:-60}" "$@" >"$T/$name" 2>&1 || fail "$name: status $?: $(cat "$T/$name")"
	{ [ "$(wc -l <"$T/$name")" = 1 ] && grep -qE "$pattern" "$T/$name"; } || fail "$name: $(cat "$T/$name")"
}
job=("$B/tests/profiler/job" "$plugin" 5 0 2 all)
: >"$T/file"
goes_on unwritable "DFSHIM WARN cannot write the trace to DFSHIM_TRACE=$T/file/x \(Not a directory\)" env DFSHIM_TRACE="$T/file/x" "${job[@]}"
goes_on short "DFSHIM WARN a trace of .* is more than this process may write to a file .*ulimit -f" env DFSHIM_TRACE="$T/short-trace" bash -c 'ulimit -f 100 && exec "$@"' - "${job[@]}"
[ -n "$san" ] || goes_on memory "DFSHIM WARN cannot write the trace to DFSHIM_TRACE=$T/memory-trace \(Cannot allocate memory\)" \
	env DFSHIM_TRACE="$T/memory-trace" DFSHIM_TRACE_MB=600 bash -c 'ulimit -v 400000 && exec "$@"' - "${job[@]}"
goes_on setting "DFSHIM WARN .*DFSHIM_TRACE_MB=many" env DFSHIM_TRACE="$T/setting-trace" DFSHIM_TRACE_MB=many "${job[@]}"
exit $bad
