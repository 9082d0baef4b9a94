#!/bin/bash
# Description: dfshim run stops a job for a hang. It exits with the verdict's status, whatever the processes or their launcher return, and prints the verdict last. A job that fails by itself keeps its status.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
unset DFSHIM_TRACE
# A cycle through device-wide waits, which dfshim may not release here.
cat >"$T/sync.txt" <<-'END'
	ranks 2
	procs
	comm A 0 1
	comm B 0 1
	0: AR A s1; AR B s2; dsync; AR A s1; dsync; AR B s2; dsync
	1: AR A s1; AR B s2; dsync; AR B s2; dsync; AR A s1; dsync
END
# ends STATUS LINE ARGS...: checks the status of dfshim run and its last line.
ends() {
	local want=$1 line=$2 rc
	shift 2
	DFSHIM_RELEASE=none timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host "$@" >"$T/out" 2>&1
	rc=$?
	[ $rc = "$want" ] || fail "$*: status $rc, not $want: $(cat "$T/out")"
	[ -z "$line" ] || tail -1 "$T/out" | grep -q "$line" || fail "$*: the last line: $(cat "$T/out")"
}
nr=0 quiet=$(seconds 20)
app='"$0" --timeout 90 "$1"'
last='^dfshim run: stopped for a hang, status 12: SYNC: .*the report is above'
for rules in dfshim nccl; do
	for launcher in "exec $app" "$app; exit 0" "$app; exit 1" "$app; kill -ABRT \$\$" "$app; kill -SEGV \$\$"; do
		ends 12 "$last" --rules $rules --timeout "$quiet" -- sh -c "$launcher" "$S" "$T/sync.txt"
		[ "$(grep -c '^[A-Z_]*: ' "$T/out")" = 1 ] || fail "$rules, $launcher: more than one verdict: $(cat "$T/out")"
		# The processes are ended before an error reaches them, so they do not report one
		# another's end.
		! grep -q "NCCL error\|has died\|FAILED" "$T/out" || fail "$rules, $launcher: $(cat "$T/out")"
	done
done
# The traces give the same verdict afterwards.
ends 12 "the report is above; the traces are in $(realpath "$T")/traces" --timeout "$quiet" --trace "$T/traces" -- "$S" --timeout 90 "$T/sync.txt"
# So does the folder that DFSHIM_TRACE names.
DFSHIM_TRACE="$T/named" ends 12 "the report is above; the traces are in $(realpath "$T")/named" --timeout "$quiet" -- "$S" --timeout 90 "$T/sync.txt"
"$B/dfshim" check "$T/traces" >"$T/check"
[ $? = 12 ] || fail "check: $(cat "$T/check")"
# A replay that hangs names the call sites of the program, not those of the replay.
"$B/dfshim" replay --rules nccl --timeout "$quiet" "$T/traces" >"$T/replayed" 2>&1
[ $? = 12 ] && grep -q 'in cudaDeviceSynchronize at script' "$T/replayed" && grep -q 'AllReduce(.*) at script' "$T/replayed" && ! grep -q 'dfshim+0x' "$T/replayed" ||
	fail "replay: $(cat "$T/replayed")"
# A folder for each rank, inside a folder whose name contains a %. By NCCL's rules the processes
# know one another only by their traces.
mkdir "$T/in"
(
	cd "$T/in" || exit 1
	ends 10 'ORDER: r0 and r1 .*; the traces are in 100%)$' -n 2 --rules nccl --timeout "$quiet" --trace '100%%/%h/rank%r-%p' -- \
		"$C/disorder" --timeout 90
) || exit 1
files=$(cd "$T/in" && echo 100%/*/*/*)
[[ $files =~ ^100%/([^/ ]*)/rank0-([0-9]+)/rank0-[^/]*-([0-9]+).dft\ 100%/([^/ ]*)/rank1-([0-9]+)/rank1-[^/]*-([0-9]+).dft$ ]] &&
	[ "${BASH_REMATCH[1]}" = "$(hostname -s)" ] && [ "${BASH_REMATCH[2]}" = "${BASH_REMATCH[3]}" ] || fail "a folder for each rank: $files"
# A job whose communicators are to be ended.
DFSHIM_TIMEOUT_ACTION=abort ends 12 "$last" --timeout "$quiet" -- "$S" --timeout 90 "$T/sync.txt"
# Without --timeout, the setting alone makes a verdict stop the job.
DFSHIM_TIMEOUT_ACTION=abort DFSHIM_TIMEOUT_MS=$((2000 * SLOW)) ends 12 "$last" -- "$S" --timeout 90 "$T/sync.txt"
# SLOW while the other ranks live, MISSING after the job has ended.
ends 20 '^dfshim run: stopped for a hang, status 20: MISSING: ' --rules nccl --timeout 0.8 -- \
	"$S" --timeout 90 "$SRC/tests/deadlock/catalogue/MP-06.txt"
# Errors of a process after another one was stopped are consequences. Rank 1 records where its
# thread waits, but its time-out is too long to judge.
mkfifo "$T/fifo"
# shellcheck disable=SC2016 # expanded inside
ends 40 "status 40: HOST: r1 is in a wait outside NCCL and CUDA" -n 2 --rules nccl --timeout "$quiet" -- \
	sh -c '[ "$RANK" = 0 ] || export DFSHIM_TIMEOUT_MS="$2"; exec "$0" "$1"' "$C/orphan" "$T/fifo" $((3600 * SLOW))

# A job that dfshim does not stop.
ends 3 "" --timeout 90 -- sh -c 'exit 3'
ends 137 "rank 0 ended by signal 9" --timeout 90 -- sh -c 'kill -KILL $$'
# A job whose rank is killed before its first call must not be reported as OK.
# shellcheck disable=SC2016 # expanded inside
for ends_with in 'kill -KILL $$' 'kill -SEGV $$'; do
	ends $((128 + $(kill -l "$(expr "$ends_with" : '.*-\([A-Z]*\)')"))) "" -n 2 --grace 1 --trace "$T/start$((++nr))" -- \
		sh -c '[ "$RANK" = 0 ] || '"$ends_with"'; exec "$0"' "$C/ddp"
	grep -q '^CRASH: the process of rank 1 was ended by signal' "$T/out" && ! grep -q '^OK:' "$T/out" || fail "$ends_with: $(cat "$T/out")"
	line=$(grep '^CRASH: ' "$T/out")
	# The traces give the same verdict afterwards, also for the second of two jobs in one
	# folder.
	ends 137 "" --trace "$T/start$nr" -- sh -c 'kill -KILL $$'
	second=$(grep '^CRASH: ' "$T/out")
	[ "$second" != "$line" ] && "$B/dfshim" check "$T/start$nr" | grep -qxF "$second" ||
		fail "first: $line, second: $second, check: $("$B/dfshim" check "$T/start$nr")"
	ends 0 "" -n 2 --trace "$T/start$nr" -- "$C/ddp"
	"$B/dfshim" check "$T/start$nr" | grep -q '^OK: all [1-9]' || fail "an earlier job: $("$B/dfshim" check "$T/start$nr")"
done
exit 0
