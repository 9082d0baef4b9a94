#!/bin/bash
# Runs the programs of docs/cookbook.md by NCCL's rules on the CPU until they hang, and writes
# dfshim's report into the page. Also writes the result of those programs that dfshim executes to
# the end, or reports differently.
#
#   TORCH_PYTHON=/path/python scripts/cookbook.sh [--check] [NAME...]
#
# --check: writes nothing. Checks that the page shows the program that runs, and that the verdict,
# the advice and the lines of the program are still reported. TORCH_PYTHON: a Python with a CUDA
# build of PyTorch. PAGE: another page than docs/cookbook.md. Exits with 77 without PyTorch.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build} page=${PAGE:-docs/cookbook.md} check=""
case $B in /*) ;; *) B=$PWD/$B ;; esac
[ "${1-}" != --check ] || { check=1 && shift; }
[ $# -gt 0 ] || { mapfile -t names < <(basename -s .py docs/cookbook/*.py) &&
	set -- "${names[@]}"; }
[ -n "${TORCH_PYTHON-}" ] && "$TORCH_PYTHON" -c 'import torch' 2>/dev/null || {
	echo "skipped: TORCH_PYTHON does not name a Python with PyTorch"
	exit 77
}
for name; do
	[ -f "docs/cookbook/$name.py" ] || {
		echo "cookbook: no program docs/cookbook/$name.py" >&2
		exit 2
	}
done
# The ranks share an output, so each line must be one write.
unset PYTHONUNBUFFERED
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
# dfshim executes these as well, without --rules nccl; the page shows the result.
ours=" order resource sync receive one_tensor mismatch "
# Prints the output of the job, or the verdict if it hangs.
outcome() { # LOG TRACES
	if grep -qE '^rank [0-9]+ has finished$' "$1"; then
		grep -E '^rank [0-9]+ has finished$' "$1" | sort
	else
		"$B/dfshim" check "$2" | shorten - | grep -E '^([A-Z_]+|Fix): '
	fi
}
# Keeps the sentence, the place where the orders part, the advice, and the place in the program.
# Replaces times, which differ from run to run.
shorten() {
	awk 'NR == 1 || /^Fix: /
		/^First divergence|^Python stacks/ { on = 1 }
		/^$/ { on = 0 }
		on && !/^Fix: /' "$1" |
		sed -E 's/[0-9]+\.[0-9] s\b/5.0 s/g
			s/\(pid [0-9]+( on [^,)]*)?/(pid 4242/
			s/0x[0-9a-f]{6,}/0x.../g'
}
# Keeps the parts that a reader relies on: the verdict word, the advice, and the lines of the
# program.
essence() { sed -nE \
	'1s/^([A-Z_]+).*/\1/p; /^Fix: /p; s/^  [^:]*: .*\b([a-z]+\.py:[0-9]+) <module>.*/\1/p' \
	"$1" | sort -u; }
# block N NAME: prints the N-th block of its entry in the page.
block() { awk -v n="$1" -v m="<!-- $2 -->" \
	'$0 == m {on = 1} /^<!-- end -->$/ {on = 0}
	on && /^```/ {at++; next} on && at == 2 * n - 1' "$page"; }
for name; do
	(cd docs/cookbook && timeout -k 5 200 "$B/dfshim" run --host -n 2 --rules nccl --trace \
		"$tmp/$name" --timeout 5 -- \
		"$TORCH_PYTHON" "$name.py") >"$tmp/$name.log" 2>&1
	"$B/dfshim" check "$tmp/$name" >"$tmp/$name.said" 2>&1
	{
		echo '```python'
		sed 1,2d "docs/cookbook/$name.py"
		printf '```\n\n```\n'
		shorten "$tmp/$name.said"
		echo '```'
		if [[ $ours == *" $name "* ]]; then
			(cd docs/cookbook && timeout -k 5 200 "$B/dfshim" run --host -n 2 --trace \
				"$tmp/$name.ours" --timeout 5 -- \
				"$TORCH_PYTHON" "$name.py") >"$tmp/$name.ours.log" 2>&1
			outcome "$tmp/$name.ours.log" "$tmp/$name.ours" >"$tmp/$name.outcome"
			printf '\nWithout `--rules nccl`, executed by dfshim:\n\n```\n'
			cat "$tmp/$name.outcome"
			echo '```'
		fi
	} >"$tmp/$name.new"
	if [ -z "$check" ]; then
		scripts/insert.sh "$page" "$name" "$tmp/$name.new" || bad=1
		continue
	fi
	block 2 "$name" >"$tmp/$name.old"
	diff <(block 1 "$name") <(sed 1,2d "docs/cookbook/$name.py") || {
		echo "cookbook: $name: $page shows another program (<) than" \
			"docs/cookbook/$name.py (>)"
		bad=1
	}
	[[ $ours != *" $name "* ]] || diff <(block 3 "$name" |
		sed 's/:.*//') <(sed 's/:.*//' "$tmp/$name.outcome") || {
		echo "cookbook: $name: $page says (<) something else of it under dfshim than now" \
			"(>): $(tail -3 "$tmp/$name.ours.log")"
		bad=1
	}
	diff <(essence "$tmp/$name.old") <(shorten "$tmp/$name.said" | essence -) || {
		echo "cookbook: $name: $page has another verdict (<) than now (>):" \
			"$(head -1 "$tmp/$name.said"); $(tail -3 "$tmp/$name.log")"
		bad=1
	}
done
echo "cookbook: $# programs"
exit $bad
