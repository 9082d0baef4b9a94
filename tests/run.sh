#!/bin/bash
# Runs the tests: build/tests/*/t_* (programs) and tests/*/t_*.sh.
#
#   tests/run.sh [--list] [--gpu] [--jobs N] [--timeout S] [--json FILE] [--without FILTER] [FILTER...]
#
# N tests run at a time (three for each processor, 12 at most). FILTER: a part of "area/t_name"; several are alternatives.
# --without leaves tests out. A test passes with status 0, is skipped with 77 (the last line of its output is the reason),
# and fails otherwise. A time-out (--timeout, or "Limit: N s" in its head where that is more) is a failure: the test's traces are kept
# and our own checker says what it sees in them. tests/bench, tests/fuzz are not run here; tests/gpu only with --gpu; tests/docs only by a filter: `make lint` does.
#
# A test finds in its environment: B (absolute build folder), SRC (root of the sources), T (a scratch
# folder of its own), DFSHIM_TRACE (a folder below T), SLOW (1; in a sanitizer's build and under an emulator the factor by which
# samples shrink and limits of time grow), LIMIT (there the seconds that one command may take, else unset and each
# test's own), SAN_RUNTIME (what has to be preloaded in front of such a build's
# libraries, with a blank behind it; else empty). Last line: "N passed, N failed, N skipped".
#
# Tests run in the locale C, because they compare sorted text and decimal points.
#
# A sanitizer's report in any process of a test makes the test fail, whatever the test makes of that
# process's status.
set -u
SRC=$(cd "$(dirname "$0")/.." && pwd)
B=${B:-build}
# LD_PRELOAD, which the tests set, cannot hold a path with blanks or colons: such sources are tested through a link.
case $SRC in
*[' :']*)
	# Not below TMPDIR, whose name may have blanks too.
	link=$(mktemp -d /tmp/dfshim-tests-XXXXXX) && ln -s "$SRC" "$link/src" || exit 1
	trap 'rm -rf "$link"' EXIT
	B=${B/#"$SRC"/"$link/src"} "$link/src/tests/run.sh" "$@"
	exit
	;;
esac
case $B in /*) ;; *) B=$SRC/$B ;; esac
export SRC B LC_ALL=C
unset LANGUAGE
# A user's PATH need not have tc.
export PATH=$PATH:/usr/sbin:/sbin

# limit_of NAME: seconds; a test that needs more time than the others says so in its head.
limit_of() {
	local own
	own=$(cat "$SRC/tests/$1".{sh,c} 2>/dev/null | sed -n '1,12s/^[ #]*\*\? Limit: \([0-9]*\) s$/\1/p')
	echo $((${own:-0} > limit ? own : limit))
}

# excerpt FILE: its first lines and its last ones, which mostly say why a test failed.
excerpt() {
	awk -v first=6 -v last=24 '
		NR <= first { print; next }
		{ end[NR % last] = $0 }
		END {
			i = NR - last + 1
			if (i > first + 1)
				printf "... %d lines left out: %s\n", i - first - 1, FILENAME
			for (i = i > first ? i : first + 1; i <= NR; i++)
				print end[i % last]
		}' "$1"
}

# -- one test: prints one line, and its output when it fails -----------------------------------------
run_one() {
	local name=$1 limit=$2 start rc secs cpu words
	limit=$(limit_of "$name")
	export T=$B/test-out/$name
	rm -rf "$T"
	mkdir -p "$T/trace"
	export DFSHIM_TRACE=$T/trace
	local san
	for san in TSAN ASAN UBSAN LSAN; do
		export "${san}_OPTIONS=$(printenv ${san}_OPTIONS) log_path=$T/sanitizer"
	done
	local command=("$B/tests/$name")
	if [ -f "$SRC/tests/$name.sh" ]; then
		command=("$SRC/tests/$name.sh")
	elif [ ! -x "$B/tests/$name" ]; then
		echo "not built" >"$T/log"
		command=(false)
	fi
	start=$(date +%s%N)
	(cd "$SRC" && exec timeout -k 10 "$limit" "${command[@]}") >>"$T/log" 2>&1 </dev/null
	rc=$?
	# Seconds of processors: a test that needs many more of the clock's waits instead of working.
	times >"$T/times"
	cpu=$(awk 'NR == 2 { split($1 "m" $2, t, /[ms]+/); print t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$T/times")
	# Commands that the test bounds by themselves are in no process group of ours: they would go on in the background.
	if [ $rc = 124 ] || [ $rc = 137 ]; then
		(
			mark=T=$T
			unset T
			grep -lzxF "$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | xargs -r kill -9 2>/dev/null
		)
	fi
	secs=$((($(date +%s%N) - start) / 10000000))
	secs=$((secs / 100)).$(printf %02d $((secs % 100)))
	# In a forked child LeakSanitizer misses its parent's threads; that alone is no report.
	if grep -hqvE '^(==[0-9]+==Running thread [0-9]+ was not suspended\. False leaks are possible\.)?$' \
		"$T"/sanitizer.* 2>/dev/null; then
		{
			echo "sanitizers report (status $rc otherwise):"
			head -n 50 "$T"/sanitizer.*
		} >"$T/sanitizers"
		rc=66
	fi
	case $rc in
	0) words="ok  " ;;
	77) words="skip" ;;
	*) words="FAIL" ;;
	esac
	{
		printf '%s %s (%s s, %s s of processors)' "$words" "$name" "$secs" "$cpu"
		if [ $rc = 77 ]; then
			printf ': %s\n' "$(grep -v '^[[:space:]]*$' "$T/log" | tail -1)"
		elif [ $rc != 0 ]; then
			if [ $rc = 124 ] || [ $rc = 137 ]; then
				printf ': TIME-OUT after %s s\n' "$limit"
			else
				printf ': status %s\n' "$rc"
			fi
			{
				excerpt "$T/log"
				[ ! -f "$T/sanitizers" ] || head -n 60 "$T/sanitizers"
			} | sed 's/^/    | /'
			if { [ $rc = 124 ] || [ $rc = 137 ]; } && [ -n "$(ls -A "$T/trace")" ] &&
				"$B/dfshim" --list 2>/dev/null | grep -qx check; then
				echo "    what the traces in $T/trace say:"
				env -u DFSHIM_TRACE timeout 60 "$B/dfshim" check "$T/trace" 2>&1 | sed 's/^/    > /'
			fi
		else
			printf '\n'
		fi
	} >"$T/report"
	[ ! -f "$T/sanitizers" ] || cat "$T/sanitizers" >>"$T/log"
	printf '%s\t%s\t%s\n' "$rc" "$name" "$secs" >"$T/result"
	# Not by cat: tests that end together and copy into one file would overwrite each other's.
	printf '%s\n' "$(<"$T/report")"
	[ $rc != 0 ] || rm -rf "$T/trace"
}

if [ "${1-}" = --one ]; then
	run_one "$2" "$3"
	exit 0
fi

# -- all ------------------------------------------------------------------------------------------------
# Tests wait two thirds of their time for what they test, so three keep a processor busy.
jobs=$(nproc) && jobs=$((jobs < 4 ? 3 * jobs : 12)) limit=120 list="" gpu="" json=""
filters=() without=()
case $B in
*/thread | */address)
	limit=600
	SLOW=${SLOW:-8}
	export LIMIT="${LIMIT:-450}"
	;;
esac
# Under an emulator a program of another machine takes about ten times as long.
if [ -n "${QEMU_LD_PREFIX-}" ]; then
	limit=600
	SLOW=${SLOW:-4}
	export LIMIT="${LIMIT:-450}"
fi
case $B in
*/thread) SAN_RUNTIME="$(gcc -print-file-name=libtsan.so) " ;;
*/address) SAN_RUNTIME="$(gcc -print-file-name=libasan.so) " ;;
esac
export SLOW="${SLOW:-1}" SAN_RUNTIME="${SAN_RUNTIME-}"
# Check's own limits for each case.
export CK_TIMEOUT_MULTIPLIER=$SLOW
while [ $# -gt 0 ]; do
	case $1 in
	--list) list=1 ;;
	--gpu) gpu=1 ;;
	--jobs) jobs=$2 && shift ;;
	--timeout) limit=$2 && shift ;;
	--json) json=$2 && shift ;;
	--without) without+=("$2") && shift ;;
	--help | -h) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0" && exit 0 ;;
	-*) echo "run.sh: unknown option $1" >&2 && exit 2 ;;
	*) filters+=("$1") ;;
	esac
	shift
done

names=()
for f in "$SRC"/tests/*/t_*.c "$SRC"/tests/*/t_*.sh; do
	[ -e "$f" ] || continue
	name=${f#"$SRC"/tests/}
	name=${name%.*}
	case $name in
	bench/* | fuzz/* | lib/*) continue ;;
	docs/*) [ ${#filters[@]} -gt 0 ] || continue ;;
	gpu/*) [ -n "$gpu" ] || continue ;;
	*) [ -z "$gpu" ] || continue ;;
	esac
	for p in "${without[@]}"; do
		[[ $name != *$p* ]] || continue 2
	done
	if [ ${#filters[@]} -gt 0 ]; then
		for p in "${filters[@]}"; do
			[[ $name == *$p* ]] && names+=("$name") && break
		done
	else
		names+=("$name")
	fi
done
if [ ${#names[@]} = 0 ]; then
	echo "no test matches: ${filters[*]-}" >&2
	echo "0 passed, 0 failed, 0 skipped"
	exit 1
fi
mapfile -t names < <(printf '%s\n' "${names[@]}" | sort -u)
if [ -n "$list" ]; then
	printf '%s\n' "${names[@]}"
	exit 0
fi

for name in "${names[@]}"; do
	rm -f "$B/test-out/$name/result"
done
# The longest tests are first, so that none keeps one processor busy alone at the end.
for name in "${names[@]}"; do
	echo "$(limit_of "$name") $name"
done | sort -s -k1,1nr | cut -d' ' -f2 | xargs -P "$jobs" -I{} "$0" --one {} "$limit"

passed=0 failed=0 skipped=0 failures=()
for name in "${names[@]}"; do
	rc=1
	[ -f "$B/test-out/$name/result" ] && rc=$(cut -f1 "$B/test-out/$name/result")
	case $rc in
	0) passed=$((passed + 1)) ;;
	77) skipped=$((skipped + 1)) ;;
	*) failed=$((failed + 1)) && failures+=("$name") ;;
	esac
done
if [ -n "$json" ]; then
	mkdir -p "$(dirname "$json")"
	for name in "${names[@]}"; do
		cat "$B/test-out/$name/result"
	done | python3 -c '
import json, sys

tests = []
for line in sys.stdin:
    status, name, seconds = line.rstrip("\n").split("\t")
    with open(f"{sys.argv[1]}/{name}/log", errors="replace") as log:
        tests.append({"test": name, "status": int(status), "seconds": float(seconds), "output": log.read()[-4000:]})
passed, failed, skipped = map(int, sys.argv[2:])
json.dump({"passed": passed, "failed": failed, "skipped": skipped, "tests": tests}, sys.stdout, indent=1)
' "$B/test-out" $passed $failed $skipped >"$json"
fi
for name in "${failures[@]-}"; do
	[ -z "$name" ] || echo "failed: $name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $((passed + skipped)) -gt 0 ]
