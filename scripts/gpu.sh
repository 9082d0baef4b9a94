#!/bin/bash
# `make check-gpu`, `make bench-gpu`: what needs a GPU; skips with a reason where there is none. The results
# are one JSON file in the folder given.
#
#   scripts/gpu.sh check|bench RESULTS [PATTERN]
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1-} results=${2:-build/results} pattern=${3:-*}
export SRC=$PWD B=${B:-build}
mkdir -p "$results"
file=$results/$what-gpu.json

reason=
if [ ! -e /dev/nvidiactl ]; then
	reason="no GPU: /dev/nvidiactl does not exist"
elif ! ldconfig -p | grep -q libcuda.so.1 && [ -z "$(find /usr/lib* -name 'libcuda.so.1' 2>/dev/null | head -1)" ]; then
	reason="no driver: libcuda.so.1 was not found"
fi
if [ -n "$reason" ]; then
	echo "$what-gpu skipped: $reason"
	if [ "$what" = check ]; then
		n=$(tests/run.sh --gpu --list 2>/dev/null | wc -l)
		jq -n --arg r "$reason" --argjson n "$n" \
			'{passed: 0, failed: 0, skipped: $n, reason: $r, tests: []}' >"$file"
		echo "0 passed, 0 failed, $n skipped"
	else
		jq -n --arg r "$reason" '{reason: $r, figures: []}' >"$file"
	fi
	exit 0
fi
gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c)
case $what in
check)
	tests/run.sh --gpu --jobs 1 --timeout 300 --json "$file.tmp"
	rc=$?
	[ -f "$file.tmp" ] || exit 1
	jq --arg g "$gpus" '. + {gpus: $g}' "$file.tmp" >"$file"
	rm -f "$file.tmp"
	exit $rc
	;;
bench)
	log=$results/bench-gpu.log
	: >"$log"
	for f in tests/gpu/b_*.sh; do
		[ -e "$f" ] || continue
		name=$(basename "$f" .sh)
		# shellcheck disable=SC2053 # a pattern
		[[ ${name#b_} == $pattern ]] || continue
		timeout 900 "$f" 2>&1 | tee -a "$log"
	done
	grep '^BENCH ' "$log" | jq -R -s --arg g "$gpus" '{gpus: $g, figures: (split("\n") | map(select(length > 0) |
		split(" ") | {name: .[1], value: (.[2] | tonumber? // .), unit: .[3], verdict: .[-1]}))}' >"$file"
	;;
*) echo "gpu.sh: check or bench" >&2 && exit 2 ;;
esac
