#!/bin/bash
# Description: an interrupted bench removes its folder and ends its job. The next bench removes the folder of a killed one.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
command -v pgrep >/dev/null || fail "no pgrep (procps), by which the job's processes are found: \`scripts/prereqs.sh check\` installs it"
pid=
trap '[ -z "$pid" ] || kill -TERM $pid 2>/dev/null' EXIT # after a failed check
small="--ranks 2 --sizes 1K --rounds 1 --turns 1"
# begin: starts a bench that does not end by itself. Stores its process id in `pid` and its folder
# in `dir`.
begin() {
	"$B/dfshim" algo bench --ranks 2 --sizes 16M --rounds 1000 --turns 100 >"$T/out" 2>&1 &
	pid=$!
	dir=
	while [ -z "$dir" ]; do
		kill -0 $pid 2>/dev/null || fail "the bench ended: $(cat "$T/out")"
		run=$(pgrep -P $pid -f 'dfshim run' | head -1)
		[ -n "$run" ] && dir=$(tr '\0' '\n' <"/proc/$run/cmdline" 2>/dev/null | grep '^/tmp/dfshim-bench-')
		sleep 0.05
	done
}
# gone: waits until no process of the job is left.
gone() {
	for _ in $(seq 600); do
		pgrep -f -- "--worker $dir" >/dev/null || return 0
		sleep 0.1
	done
	fail "the job goes on: $(pgrep -af -- "--worker $dir")"
}
for sig in TERM HUP; do
	begin
	kill -$sig $pid
	wait $pid
	rc=$?
	[ $rc = $((128 + $(kill -l $sig))) ] || fail "SIG$sig: status $rc"
	[ ! -e "$dir" ] || fail "SIG$sig leaves $dir"
	gone
done
# After SIGKILL the job ends too. The next bench removes the folder, but not a folder that is in
# use.
begin
first=$dir
kill -KILL $pid
wait $pid 2>/dev/null
gone
[ -d "$first" ] || fail "nothing was left: the next check can't fail"
begin
[ ! -e "$first" ] || fail "$first is still there"
"$B/dfshim" algo bench $small >"$T/small" || fail "a second bench: status $?"
[ -d "$dir" ] || fail "another bench removed $dir"
kill -TERM $pid
wait $pid
[ ! -e "$dir" ] || fail "$dir is left"
exit 0
