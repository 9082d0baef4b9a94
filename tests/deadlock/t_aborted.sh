#!/bin/bash
# Description: after a verdict with DFSHIM_TIMEOUT_ACTION=abort every stuck communicator reports ncclRemoteError, NCCL's last error has the verdict in each process, streams work, and the program ends. If a program gives up by itself, its traces give the same verdict.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# aborted WORD RULES: executes the program on standard input, in which c0 and c1 get stuck, with
# threads and with processes. RULES is dfshim or nccl.
aborted() {
	local how ms rc
	local rules=("LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so")
	[ "$2" = dfshim ] || rules=("${NCCL_RULES[@]}")
	cat >"$T/steps"
	for how in "" procs; do
		{ printf 'prog %s\nranks 3\n%s\ncomm c0 0 1 2\ncomm c1 0 1 2\nafter c0 c1\n' "$1" "$how" && cat "$T/steps"; } >"$T/program"
		# A process that starts or arrives late must not be reported. If it is, repeat with
		# a longer time-out.
		for ms in 500 5000 30000; do
			rm -rf "$T/tr.$1.$how"
			mkdir -p "$T/tr.$1.$how"
			env DFSHIM_TRACE="$T/tr.$1.$how" DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 \
				DFSHIM_TIMEOUT_MS=$ms DFSHIM_TIMEOUT_ACTION=abort NCCL_DEBUG=WARN "${rules[@]}" \
				timeout -k 5 "${LIMIT:-100}" "$S" --timeout 60 "$T/program" >"$T/out" 2>&1
			rc=$?
			grep -qE "^($1|SLOW):" "$T/out" && break
		done
		[ $rc = 3 ] || fail "$1 $how: status $rc: $(cat "$T/out")"
		# While a job lives, a missing rank may only be late (SLOW). The traces then say
		# MISSING.
		grep -qE "^$1:" <(cat "$T/out"; [ "$1" != MISSING ] || "$B/dfshim" check "$T/tr.$1.$how") || fail "$1 $how: the verdict is another: $(cat "$T/out")"
		# Rank 2 has nothing unfinished in case MISSING. The other ranks' processes inform
		# it.
		all_ended "$1 $how" 0 1 2
		# The error that the program gets names the verdict, in each process.
		[ "$2" = nccl ] || [ "$(grep -cE "dfshim ends communicators of this process: ($1|SLOW): " "$T/out")" = $((${#how} ? 3 : 1)) ] ||
			fail "$1 $how: the error of a process lacks the verdict: $(cat "$T/out")"
	done
	echo "$1 by $2"
}

aborted DATA dfshim <<'END'
0: AR c0 nb0; ssync nb0; AR c1 nb1; ssync nb1
1: AR c1 nb1; ssync nb1; AR c0 nb0; ssync nb0
2: AR c0 nb0; AR c1 nb1; ssync nb1
END
aborted MISSING dfshim <<'END'
0: AR c0 nb0; AR c1 nb1; ssync nb0; ssync nb1
1: AR c0 nb0; AR c1 nb1; ssync nb0; ssync nb1
2: spin; AR c0 nb0; AR c1 nb1
END
for rules in nccl dfshim; do
	aborted MISMATCH $rules <<'END'
0: AR c0 nb0; AR c1 nb1; ssync nb0; ssync nb1
1: AR c0 nb0 n=9; AR c1 nb1 n=9; ssync nb0; ssync nb1
2: AR c0 nb0; AR c1 nb1; ssync nb0; ssync nb1
END
done
# A program that exits with status 4 by itself after the report of its hang: its traces give the
# same verdict.
printf '%s\n' "ranks 2" "comm A 0 1" "comm B 0 1" "0: AR A s1; ssync s1; AR B s2" "1: AR B s2; ssync s2; AR A s1" >"$T/program"
for executor in daemon nccl; do
	for patience in 4 30 90; do
		rm -rf "$T/tr.report"
		mkdir -p "$T/tr.report"
		env DFSHIM_TRACE="$T/tr.report" DFSHIM_BACKEND=host DFSHIM_EXECUTOR=$executor DFSHIM_TIMEOUT_MS=500 DFSHIM_TIMEOUT_ACTION=report \
			LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" timeout -k 5 "${LIMIT:-100}" "$S" --timeout "$patience" \
			"$T/program" >"$T/out" 2>&1
		rc=$?
		grep -q '^DATA:' "$T/out" && break
	done
	[ $rc = 4 ] || fail "its own time-out, $executor: status $rc: $(cat "$T/out")"
	"$B/dfshim" check "$T/tr.report" >"$T/said"
	grep -q '^DATA:' "$T/said" || fail "its own time-out, $executor: $(cat "$T/said" "$T/out")"
done
exit 0
