#!/bin/bash
# Runs every fuzz target (tests/fuzz/f_*.c) for SECONDS_EACH seconds with libFuzzer,
# AddressSanitizer and UBSan. Seeds are in tests/fuzz/seeds/<target>/. Findings go to
# build/fuzz/found/<target>/. INPUT_SECONDS: the time limit of an input (60). The limit is so large
# that only an endless input exceeds it, even on a busy machine.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${SECONDS_EACH:-60}
bad=0 ran=0
TIMEFORMAT='%U %S'
if ! echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n){(void)p;(void)n;return 0;}' |
	clang -x c -fsanitize=fuzzer -o /dev/null - 2>/dev/null; then
	echo "fuzz: no clang with libFuzzer here; nothing was run"
	exit 77
fi
for f in tests/fuzz/f_*.c; do
	[ -e "$f" ] || continue
	name=$(basename "$f" .c)
	make -j"$(nproc)" --no-print-directory SAN=fuzz CC=clang "build/fuzz/tests/fuzz/$name" || {
		echo "fuzz: $name: FAILED: it cannot be built"
		exit 1
	}
	corpus=build/fuzz/corpus/$name found=build/fuzz/found/$name
	mkdir -p "$corpus" "$found"
	seeds=()
	[ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
	if { time ASAN_OPTIONS=detect_leaks=0 "build/fuzz/tests/fuzz/$name" \
		-max_total_time="$seconds" -timeout="${INPUT_SECONDS:-60}" \
		-rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found/" "$corpus" \
		"${seeds[@]}" \
		>"build/fuzz/$name.log" 2>&1; } 2>build/fuzz/time; then
		inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log")
		echo "fuzz: $name: ok, $inputs inputs," \
			"$(awk '{print int($1 + $2)}' build/fuzz/time) s of processors"
	else
		reason=$(grep -m 1 -oE '(ERROR|runtime error): .*' "build/fuzz/$name.log")
		echo "fuzz: $name: FAILED: ${reason:-$(tail -n 1 "build/fuzz/$name.log")}; inputs" \
			"in $found"
		tail -40 "build/fuzz/$name.log"
		bad=1
	fi
	ran=$((ran + 1))
done
echo "fuzz: $ran targets, $seconds s each"
exit $bad
