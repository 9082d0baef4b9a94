#!/bin/bash
# Description: random programs that complete by dfshim's rules. A deadlock that `dfshim predict` finds in their traces happens when its witness is replayed by NCCL's rules. A deadlock that predict does not find does not happen.
set -u
# A fixed seed gives the same programs in every check.
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
R=$B/tests/deadlock/generator/random
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
unset DFSHIM_TRACE
# Makes messages buffered up to the size that label.h assumes.
export DFSHIM_SLOT_KB=64

# execute TRACES PROGRAM: executes a program by dfshim's rules. Its output is in PROGRAM.log.
execute() {
	mkdir -p "$1"
	DFSHIM_TRACE=$1 DFSHIM_BACKEND=host LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
		timeout "${LIMIT:-60}" "$B/tests/deadlock/interpreter/script" --timeout 50 "$2" >"$2.log" 2>&1
}

# one SEED: prints a line with the finding of predict (or "none"), or with "BAD".
one() {
	local d=$T/$1 rc
	rm -rf "$d"
	mkdir -p "$d"
	"$R" --print "$1" >"$d/prog"
	# Only programs that complete by dfshim's rules. Their traces do not show what NCCL would
	# do.
	head -1 "$d/prog" | grep -q "ours 0" || return 0
	DFSHIM_TRACE_MB=4 execute "$d/tr" "$d/prog" || {
		echo "BAD $1: did not finish by our rules: $(tail -1 "$d/prog.log")"
		return 0
	}
	timeout "${LIMIT:-60}" "$B/dfshim" predict --witness "$d/witness" "$d/tr" >"$d/predict" 2>&1
	rc=$?
	if [ $rc = 14 ]; then
		timeout "${LIMIT:-60}" "$B/dfshim" replay --timeout "$(seconds 15)" --witness "$d/witness" "$d/tr" >"$d/replay" 2>&1
		rc=$?
		if [ $rc -lt 10 ] || [ $rc -ge 60 ]; then
			echo "BAD $1: replay does not confirm (status $rc): $(head -1 "$d/predict"); $(head -1 "$d/replay")"
			return 0
		fi
		echo "found $1: $(head -1 "$d/predict" | cut -d: -f2-)"
	elif [ $rc = 0 ]; then
		DFSHIM_HOST_SLOTS=1024 DFSHIM_HOST_QUEUES=1024 timeout "${LIMIT:-60}" "$B/dfshim" replay --timeout "$(seconds 50)" --rules nccl "$d/tr" >"$d/replay" 2>&1
		rc=$?
		if [ $rc != 0 ]; then
			echo "BAD $1: nothing predicted, but by NCCL's rules (status $rc): $(head -1 "$d/replay")"
			return 0
		fi
		echo "none $1"
	else
		echo "BAD $1: predict ended with status $rc: $(tail -1 "$d/predict")"
		return 0
	fi
	rm -rf "$d"
}
if [ "${1-}" = --one ]; then
	one "$2"
	exit 0
fi

# Two threads that no record orders. A lock may forbid another order of them, and both the finding
# and the witness say so. (C shows that both threads existed at the same time. The order differs if
# the threads take longer to start than they sleep.)
cat >"$T/threads.txt" <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
comm C 0 1
0: sleep 100; AR A s
0.1: AR C s2; sleep 300; AR B s
1: sleep 100; AR A s
1.1: AR C s2; sleep 300; AR B s
PROGRAM
for try in 1 2 3 4 5; do
	rm -rf "$T/threads"
	execute "$T/threads" "$T/threads.txt" ||
		fail "two threads: did not finish by our rules: $(tail -1 "$T/threads.txt.log")"
	"$B/dfshim" predict --witness "$T/threads.w" "$T/threads" >"$T/threads.said"
	rc=$?
	! grep -q '^POTENTIAL DEADLOCK: an interleaving of the threads' "$T/threads.said" || break
done
[ $rc = 14 ] || fail "two threads: predict ended with status $rc: $(cat "$T/threads.said")"
for said in said w; do
	grep -qE '^(# )?Assumed: this order of the threads of .* was not recorded; locks and queues' "$T/threads.$said" ||
		fail "two threads (run $try): what is assumed is not said: $(head -4 "$T/threads.$said")"
done
"$B/dfshim" predict --json "$T/threads" | jq -e '.assumed | test("^this order of the threads of ")' >/dev/null ||
	fail "two threads: predict --json does not say what it assumes"
# The replay confirms this each time, although each call is in a group of its own.
for try in 1 2 3; do
	timeout "${LIMIT:-60}" "$B/dfshim" replay --timeout "$(seconds 5)" --witness "$T/threads.w" "$T/threads" >"$T/replay" 2>&1
	rc=$?
	[ $rc -ge 10 ] && [ $rc -lt 60 ] || fail "two threads: replay does not confirm (status $rc): $(head -1 "$T/replay")"
done

# Two threads that take turns, as PyTorch's do around backward(). Nothing in the records shows this
# except the name of the thread that computes gradients.
for name in worker pt_autograd_0; do
	{
		printf 'ranks 2\ncomm A 0 1\ncomm B 0 1\n'
		for r in 0 1; do
			echo "$r: AR A s; hs a$r; hw b$r; AR A s; hs c$r; hw d$r; AR A s"
			echo "$r.1: name $name; hw a$r; AR B s; hs b$r; hw c$r; AR B s; hs d$r"
		done
	} >"$T/turns.txt"
	execute "$T/$name" "$T/turns.txt" ||
		fail "threads in turns: did not finish by our rules: $(tail -1 "$T/turns.txt.log")"
	"$B/dfshim" predict "$T/$name" >"$T/turns.$name"
	echo $? >"$T/status.$name"
done
[ "$(cat "$T/status.worker")" = 14 ] || fail "two threads of no known kind: $(cat "$T/turns.worker")"
[ "$(cat "$T/status.pt_autograd_0")" = 0 ] || fail "PyTorch's threads take turns: $(cat "$T/turns.pt_autograd_0")"

# A message that is too long to be buffered follows a collective of its communicator on one rank and
# precedes it on the other, on another stream. By NCCL's rules the two wait for each other.
cat >"$T/streams.txt" <<'PROGRAM'
ranks 2
comm A 0 1
0: AR A s; recv A 1 s2 n=140000
1: send A 0 s2 n=140000; AR A s
PROGRAM
execute "$T/streams" "$T/streams.txt" ||
	fail "two streams: did not finish by our rules: $(tail -1 "$T/streams.txt.log")"
"$B/dfshim" predict --witness "$T/streams.w" "$T/streams" >"$T/streams.said"
rc=$?
[ $rc = 14 ] || fail "two streams: predict ended with status $rc: $(cat "$T/streams.said")"
timeout "${LIMIT:-60}" "$B/dfshim" replay --timeout "$(seconds 5)" --witness "$T/streams.w" "$T/streams" >"$T/replay" 2>&1
rc=$?
[ $rc = 10 ] || fail "two streams: replay ended with status $rc: $(head -1 "$T/replay")"

from=$SEED
seq "$from" $((from + ${PROGRAMS:-24} - 1)) | xargs -P 4 -I{} "$0" --one {} >"$T/lines"
echo "seeds from $from: $(grep -c ^found "$T/lines") predicted and confirmed, $(grep -c ^none "$T/lines") without"
grep ^BAD "$T/lines" && fail "$(grep -c ^BAD "$T/lines") programs"
grep -q ^found "$T/lines" || fail "nothing was predicted"
exit 0
