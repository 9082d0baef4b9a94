#!/bin/bash
# Description: dfshim ci with jobs that succeed, hang by NCCL's rules, only could hang, or fail by themselves: status, summary, report. It ends in time and leaves nothing behind.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
# ci STATUS TITLE ARGS...: checks the status, the summary's title, and that a report exists.
ci() {
	local want=$1 title=$2 quiet rc
	shift 2
	# Only jobs that hang get a short time-out. On a busy machine other jobs make no progress
	# for a while too.
	case $want in 0 | 3 | 14) quiet=90 ;; *) quiet=$(seconds 20) ;; esac
	rm -f "$T/sum.md" "$T/report.html"
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" ci --timeout "$quiet" --summary "$T/sum.md" --report "$T/report.html" "$@" \
		>"$T/out" 2>"$T/err"
	rc=$?
	[ $rc = "$want" ] || fail "$*: status $rc, not $want: $(cat "$T/out" "$T/err")"
	[ "$(head -1 "$T/sum.md")" = "### dfshim: $title" ] || fail "$*: the summary begins: $(head -3 "$T/sum.md")"
	[ "$title" = "nothing checked" ] || grep -q '<!doctype html' "$T/report.html" || fail "$*: no report"
}
program() { # NAME, its text on standard input
	{
		printf 'ranks 2\nprocs\n'
		cat
	} >"$T/$1.txt"
}

ci 0 "no deadlock" -n 2 -- "$C/ddp"
grep -q '^no potential deadlock' "$T/out" || fail "what predict says is not printed: $(cat "$T/out")"
ci 0 "no deadlock" --host=2 -n 2 -- "$C/disorder" --inorder --iters 5

# Different orders in threads of one process, with synchronisations.
ci 10 ORDER -- "$C/disorder"
grep -q '^ORDER: ' "$T/out" && grep -q '^~~~~text$' "$T/sum.md" && grep -q 'Shortest cycle' "$T/sum.md" ||
	fail "the summary says too little: $(cat "$T/sum.md")"

# The report is printed only once.
[ "$(cat "$T/out" "$T/err" | grep -c '^Shortest cycle')" = 1 ] || fail "the report is printed otherwise than once: $(cat "$T/out" "$T/err")"

# The number of operations depends on the rank.
program branch <<-'END'
	comm A 0 1
	0: AR A s; AR A s; dsync
	1: AR A s; dsync
END
ci 20 MISSING -- "$S" --timeout 50 "$T/branch.txt"

# Two communicators in opposite orders, with synchronisations between the operations.
program groups <<-'END'
	comm A 0 1
	comm B 0 1
	0: AR A s1; AR B s2; dsync; AR A s1; dsync; AR B s2; dsync
	1: AR A s1; AR B s2; dsync; AR B s2; dsync; AR A s1; dsync
END
ci 12 SYNC -- "$S" --timeout 50 "$T/groups.txt"

# Both ranks send before they receive. The messages are short enough to be buffered here.
program cross <<-'END'
	comm A 0 1
	0: send A 1 s n=16; recv A 1 s n=16; dsync
	1: send A 0 s n=16; recv A 0 s n=16; dsync
END
ci 14 "potential deadlock" -- "$S" --timeout 50 "$T/cross.txt"
grep -q 'POTENTIAL DEADLOCK' "$T/sum.md" || fail "no witness in the summary: $(cat "$T/sum.md")"
# The output begins with the result and fits on a terminal. The details are in the report.
[[ $(head -1 "$T/out") == "POTENTIAL DEADLOCK: "* ]] && [ "$(wc -l <"$T/out")" -le 40 ] || fail "it says: $(cat "$T/out")"
grep -q '^r0 runs Send to r1, called at script' "$T/out" && grep -q '^r1 runs Send to r0, called at script' "$T/out" ||
	fail "not the two calls: $(cat "$T/out")"
grep -q "^Replayed from the start by NCCL's rules it hangs: ORDER" "$T/out" || fail "not confirmed: $(cat "$T/out")"
grep -q 'POTENTIAL DEADLOCK: the recorded order' "$T/report.html" && grep -q '(blocked at &gt;)' "$T/report.html" ||
	fail "the report has no witness"

# Many ranks and steps do not lengthen the output.
{
	printf 'ranks 8\nprocs\ncomm A 0 1 2 3 4 5 6 7\n'
	for ((r = 0; r < 8; r++)); do
		printf '%d: ' $r
		for ((i = 0; i < 80; i++)); do printf 'AR A s n=16; '; done
		printf 'send A %d s n=16; recv A %d s n=16; dsync\n' $(((r + 1) % 8)) $(((r + 7) % 8))
	done
} >"$T/many.txt"
ci 14 "potential deadlock" -- "$S" --timeout 50 "$T/many.txt"
[ "$(wc -l <"$T/out")" -le 40 ] || fail "$(wc -l <"$T/out") lines: $(cat "$T/out")"
grep -q '^and 2 more ranks$' "$T/out" || fail "it says: $(cat "$T/out")"

# All messages of a group run together, however many there are.
{
	printf 'ranks 2\nprocs\ncomm A 0 1\n'
	for r in 0 1; do
		printf '%d: {; ' $r
		for what in send recv; do for ((i = 0; i < 40; i++)); do printf '%s A %d s n=16; ' $what $((1 - r)); done; done
		printf '}; dsync\n'
	done
} >"$T/group.txt"
ci 0 "no deadlock" -- "$S" --timeout 50 "$T/group.txt"

# A program's name with Markdown and HTML must neither end the block nor become markup.
evil="$T/x
~~~~
<b>*[l](http:y)"
cp "$C/disorder" "$evil"
ci 10 ORDER -- "$evil"
grep -q 'http:y' "$T/sum.md" || fail "the summary does not name the program: $(cat "$T/sum.md")"
[ "$(grep -c '^ *~~~' "$T/sum.md")" = 2 ] || fail "the program's name ends the block: $(cat "$T/sum.md")"
awk '/^~~~~/ { block = !block } !block' "$T/sum.md" | grep -F '<b>' && fail "the program's name is markup: $(cat "$T/sum.md")"

# A % in the name of a folder is no pattern.
ci 0 "no deadlock" --trace "$T/100%r kept" -n 2 -- "$C/ddp"
"$B/dfshim" check "$T/100%r kept" >/dev/null || fail "the traces are not in their folder: $(ls "$T")"
"$B/dfshim" replay --host --trace "$T/%p%%" "$T/100%r kept" >"$T/out" 2>"$T/err" || fail "replay: $(cat "$T/out" "$T/err")"
"$B/dfshim" check "$T/%p%%" >/dev/null || fail "the replay's traces are not in their folder: $(ls "$T")"

# Failures other than hangs.
ci 3 "the job failed" -n 2 -- bash -c '"$0" --iters 5 --inorder --ranks 2 >/dev/null; exit 3' "$C/disorder"

# nothing STATUS WHY PROGRAM...: the job leaves no trace, and one line says why.
nothing() {
	local status=$1 why=$2
	ci "$status" "nothing checked" -- "${@:3}"
	[ "$(grep -c '^dfshim ci: ' "$T/err")" = 1 ] && grep -q "^dfshim ci: nothing was checked (the job.s .*$why" "$T/err" ||
		fail "${*:3}: not \"$why\": $(cat "$T/err")"
	! grep -q 'no trace files' "$T/err" || fail "${*:3}: dfshim run looks for traces: $(cat "$T/err")"
}
nothing 1 "loaded by true: " "$(type -P true)"
nothing 127 "the program did not start$" "$T/no such program"
nothing 1 "status is 1, see its own error first): .*loaded by false: " "$(type -P false)"
# A launcher that clears LD_PRELOAD; a program that is linked with libnccl_static.a.
nothing 1 "loaded by env: if your program is not among them, pass LD_PRELOAD on" env -u LD_PRELOAD true
cp "$(type -P true)" "$T/static" && printf 'NCCL_CROSS_NIC\0' >>"$T/static"
nothing 1 ": static contains NCCL itself" "$T/static"
if /sbin/ldconfig -V 2>/dev/null | grep -q . && ! ldd /sbin/ldconfig >/dev/null 2>&1; then
	nothing 1 "no program of the job loaded libdfshim.so" /sbin/ldconfig -V
fi
if "${TORCH_PYTHON:-python3}" -c 'import torch.distributed' 2>/dev/null; then
	cat >"$T/gloo.py" <<-'END'
		import torch, torch.distributed as dist
		dist.init_process_group("gloo")
		dist.all_reduce(torch.ones(1))
	END
	nothing 1 "although PyTorch was loaded with it .*the backend nccl" "${TORCH_PYTHON:-python3}" -c 'import torch'
	"$B/dfshim" ci -n 2 -- "${TORCH_PYTHON:-python3}" "$T/gloo.py" 2>"$T/err"
	[ $? = 1 ] && grep -q "the backend nccl" "$T/err" || fail "gloo: $(cat "$T/err")"
fi
ci 124 "nothing checked" --limit 1 -- sleep 50
"$B/dfshim" ci >/dev/null 2>&1
[ $? = 2 ] || fail "without a program"
"$B/dfshim" ci --summary "$T/none/sum.md" -- "$C/ddp" >/dev/null 2>"$T/err" && fail "a summary that cannot be written is no error"
grep -q "$T/none/sum.md" "$T/err" || fail "$(cat "$T/err")"

# SIGTERM ends the command.
"$B/dfshim" ci -- sleep 100 2>/dev/null &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "SIGTERM does not end it"
exit 0
