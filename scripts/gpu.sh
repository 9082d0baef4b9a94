#!/bin/bash
# Runs the tests that need a GPU for `make check-gpu`, `make bench-gpu` and `make gpu-bundle`. Skips
# with a reason if there is no GPU. Writes one JSON file into the folder RESULTS after each test.
# Parts that are run one after the other add up. LIMIT: seconds for a test (300).
#
#   scripts/gpu.sh check|bench RESULTS [PATTERN]
#   scripts/gpu.sh bundle                 # builds and copies the needed files into $B/gpu
#
# A machine with a GPU often lacks build tools. Run there: B=build/gpu scripts/gpu.sh check RESULTS,
# with the checkout and the folder build/gpu of a machine that has them.
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1-} results=${2:-build/results} pattern=${3:-*}
export SRC=$PWD B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac

# bundle: copies the files that the tests start, with their libraries; no objects, no debug
# information.
if [ "$what" = bundle ]; then
	to=$B/gpu
	rm -rf "$to"
	mkdir -p "$to/lib"
	(cd "$B" && find libdfshim.so libdfhost.so libdfnccl.so dfshim clients tests/gpu \
		tests/deadlock/interpreter/script tests/cuda/use_* \
		tests/kernels/reduce_cuda -type f -perm /111 2>/dev/null) | while read -r f; do
		mkdir -p "$to/$(dirname "$f")"
		strip -o "$to/$f" "$B/$f" 2>/dev/null || cp "$B/$f" "$to/$f"
	done
	ldd "$B/dfshim" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' |
		grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' |
		xargs -r cp -Lt "$to/lib"
	du -sh "$to" | sed 's/\s.*/ in build\/gpu/'
	exit 0
fi

mkdir -p "$results"
results=$(cd "$results" && pwd)
export RESULTS=$results
file=$results/$what-gpu.json
reason=
# GPU_NODE: see tests/gpu/lib.sh.
node=${GPU_NODE:-/dev/nvidiactl}
if [ ! -e "$node" ]; then
	reason="no GPU: $node does not exist"
elif [ -n "${GPU_NODE-}" ]; then
	: # a caller that names another node also provides the driver
elif ! ldconfig -p | grep -q libcuda.so.1 &&
	[ -z "$(find /usr -name 'libcuda.so.1' 2>/dev/null | head -1)" ]; then
	reason="no driver: libcuda.so.1 was not found"
fi
if [ -n "$reason" ]; then
	echo "$what-gpu skipped: $reason"
	n=0
	[ "$what" != check ] || n=$(tests/run.sh --gpu --list 2>/dev/null | wc -l)
	python3 -c '
import json, sys

what, reason, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
none = {"passed": 0, "failed": 0, "skipped": n, "reason": reason, "tests": []}
json.dump(none if what == "check" else {"reason": reason, "figures": []}, sys.stdout)' \
		"$what" "$reason" "$n" >"$file"
	[ "$what" != check ] || echo "0 passed, 0 failed, $n skipped"
	exit 0
fi

# The clients link the runtime and NCCL. Python packages often contain both where neither is
# installed.
libs=$(python3 -c '
import importlib.util, glob, os

spec = importlib.util.find_spec("nvidia")
for p in spec.submodule_search_locations if spec else []:
    for f in glob.glob(p + "/*/lib/libnccl.so.2") + glob.glob(p + "/*/lib/libcudart.so.13"):
        print(os.path.dirname(f), end=":")' 2>/dev/null)
export LD_LIBRARY_PATH=$B/lib:${LD_LIBRARY_PATH-}:/usr/local/cuda/lib64:$libs
gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort |
	uniq -c)
case $what in
check)
	# The tests limit each command by a variable of the same name.
	limit=${LIMIT:-300}
	unset LIMIT
	# Runs one test after the other and writes the results after each, because a borrowed
	# machine may stop this script at any time. Results of earlier calls for other parts stay.
	rc=0
	for t in $(tests/run.sh --gpu --list "${3:-gpu/}" | awk '{print $1}'); do
		tests/run.sh --gpu --jobs 1 --timeout "$limit" --json "$file.part" "$t" 2>&1 |
			tee -a "$results/check-gpu.log"
		[ "${PIPESTATUS[0]}" = 0 ] || rc=1
		[ -s "$file.part" ] && python3 -c '
import json, os, sys

file, part, gpus = sys.argv[1:]
r = json.load(open(file)) if os.path.exists(file) else {}
new = json.load(open(part))["tests"]
names = {t["test"] for t in new}
tests = [t for t in r.get("tests", []) if t["test"] not in names] + new
status = [t["status"] for t in tests]
r = {"passed": status.count(0), "failed": sum(s not in (0, 77) for s in status),
     "skipped": status.count(77), "gpus": gpus, "tests": tests}
with open(file + ".new", "w") as f:
    json.dump(r, f, indent=1)
os.rename(file + ".new", file)' "$file" "$file.part" "$gpus"
		rm -f "$file.part"
	done
	[ -s "$file" ] || exit 1
	python3 -c '
import json, sys

r = json.load(open(sys.argv[1]))
print("{passed} passed, {failed} failed, {skipped} skipped, all parts".format(**r))' "$file"
	exit $rc
	;;
bench)
	figures() {
		python3 -c '
import json, os, re, sys

figures = {}
for line in open(sys.argv[1]):
    if line.startswith("BENCH "):
        w = line.split()
        peer = re.search(r" peer (\S+) (\S+) ratio (\S+)", line)
        figures[w[1]] = {"name": w[1], "value": w[2], "unit": w[3], "verdict": w[-1],
                         "peer": peer and {"name": peer[1], "value": peer[2], "ratio": peer[3]}}
with open(sys.argv[3] + ".new", "w") as f:
    json.dump({"gpus": sys.argv[2], "figures": list(figures.values())}, f, indent=1)
os.rename(sys.argv[3] + ".new", sys.argv[3])' "$results/bench-gpu.log" "$gpus" "$file"
	}
	# The file is written with each figure, because the script may be stopped at any time.
	scripts/bench.sh "$pattern" gpu 2>&1 | tee -a "$results/bench-gpu.log" |
		while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in BENCH*) figures ;; esac
	done
	rc=${PIPESTATUS[0]}
	[ -s "$file" ] || figures
	exit "$rc"
	;;
*) echo "gpu.sh: check, bench or bundle" >&2 && exit 2 ;;
esac
