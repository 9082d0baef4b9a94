#!/bin/bash
# Description: programs that distinguish DFSHIM_RELEASE=none, safe, device and all. A release is counted, traced, and logged once.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# steps KIND FIRST SECOND: prints a rank's steps. KIND names the wait.
steps() {
	case $1 in
	device) echo "AR c$2 nb$2 in=i$2 out=o$2; dsync; AR c$3 nb$3; ssync nb$2; read o$2; ssync nb$3" ;;
	work) echo "AR c$2 nb$2 out=o$2; K nb$2 o$2 y$2; dsync; AR c$3 nb$3; ssync nb$2; read y$2" ;;
	stream) echo "AR c$2 nb$2 out=o$2; ssync nb$2; AR c$3 nb$3; dsync; read o$2" ;;
	event) echo "AR c$2 nb$2 out=o$2; rec e nb$2; esync e; AR c$3 nb$3; dsync; read o$2" ;;
	esac
}

# one PROGRAM POLICY OK|WORD: the program must complete with a release, or hang with this verdict.
one() {
	local d=$T/$1.$2 rc n recorded
	mkdir -p "$d/tr"
	printf 'prog %s\nranks 2\ncomm c0 0 1\ncomm c1 0 1\n0: %s\n1: %s\n' "$1" "$(steps "$1" 0 1)" "$(steps "$1" 1 0)" >"$d/program"
	DFSHIM_TRACE=$d/tr DFSHIM_STATS=$d/stats DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=2 DFSHIM_RELEASE=$2 \
		DFSHIM_TIMEOUT_MS=$([ "$3" = OK ] && echo 60000 || echo 500) DFSHIM_TIMEOUT_ACTION=abort \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$S" --timeout 60 "$d/program" >"$d/out" 2>&1
	rc=$?
	n=$(sed -n 's/.*"releases": \([0-9]*\).*/\1/p' "$d/stats")
	if [ "$3" = OK ]; then
		[ $rc = 0 ] || fail "$1 with $2: status $rc: $(cat "$d/out")"
		[ "$n" -ge 1 ] || fail "$1 with $2: finished without a release"
	else
		[ $rc = 3 ] && grep -q "^$3:" "$d/out" || fail "$1 with $2: not $3 (status $rc): $(cat "$d/out")"
		[ "$n" = 0 ] || fail "$1 with $2: $n releases"
	fi
	recorded=$("$B/dfshim" show "$d/tr" | grep -cE ' release +dev ')
	[ "$recorded" = "$n" ] || fail "$1 with $2: $n releases counted, $recorded recorded"
	[ "$(grep -c 'WARN released' "$d/out")" = $((n > 0)) ] || fail "$1 with $2: logged $(grep -c 'WARN released' "$d/out") times"
	echo "$1 with $2: $3, $n released"
}

# A row for each program: the expected ends with none, safe, device and all.
while read -r program none safe device all; do
	one "$program" none "$none"
	one "$program" safe "$safe"
	one "$program" device "$device"
	one "$program" all "$all"
done <<'END'
device SYNC OK OK OK
work SYNC SYNC OK OK
stream DATA DATA DATA OK
event DATA DATA DATA OK
END
# The report advises another order of issue if work after the operations prevents the release.
grep -q '^Remedy: can be released: ' "$T/device.none/out" && grep -q '^Fix: synchronise the stream' "$T/device.none/out" ||
	fail "device with none: $(cat "$T/device.none/out")"
grep -q '^Remedy: released only with DFSHIM_RELEASE=device or all: ' "$T/work.safe/out" &&
	grep -q '^Fix: issue the operations in the same order' "$T/work.safe/out" || fail "work with safe: $(cat "$T/work.safe/out")"
exit 0
