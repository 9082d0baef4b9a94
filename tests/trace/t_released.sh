#!/bin/bash
# Description: traces of every released format are read as at their time. The expected output of dfshim is kept beside each trace.
#
# The files tests/trace/released/FORMAT/NAME/*.dft.gz never change. `order` and `done` are from a
# job of two ranks by NCCL's rules and by dfshim's. `every` has one record of each type, and a call
# and an operation of each kind. After an intended change of words UPDATE=1
# tests/trace/t_released.sh rewrites NAME.txt; review the difference. A new format needs a folder of
# its own.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)} B=${B:-$(cd "$(dirname "$0")/../.." && pwd)/build}
T=${T:-$(mktemp -d)}
at=$SRC/tests/trace/released bad=0
fail() {
	echo "FAILED: $*"
	bad=1
}
format=$("$B/dfshim" --version | sed -n 's/^trace format //p')
[ -d "$at/${format:-none}" ] || fail "no trace of format '$format' is kept in tests/trace/released"
# The names of programs in call stacks depend on the machine, so leave them out.
fields='[.type, .op, .a, .b, .c, .comm, .rank, .device, .call, .kind, .dtype, .redop, .proto] | map(. // "-" | tostring) | join(" ")'
for d in "$at"/*/*/; do
	name=$(basename "$d") here=$T/$(basename "$(dirname "$d")")-$(basename "$d")
	mkdir -p "$here"
	for f in "$d"*.dft.gz; do
		gzip -dc "$f" >"$here/$(basename "$f" .gz)"
	done
	{
		"$B/dfshim" check "$here" >"$here.out" 2>&1
		echo "check: status $?: $(head -1 "$here.out")"
		"$B/dfshim" predict "$here" >"$here.out" 2>&1
		echo "predict: status $?: $(head -1 "$here.out")"
		for f in "$here"/*.dft; do
			"$B/dfshim" show --json "$f" >"$here.out" 2>&1 || echo "show: status $?"
			echo "$(basename "$f"):"
			if [ "$name" = every ]; then
				jq -r "$fields" "$here.out"
			else
				jq -r '.type + " " + (.call // .kind // "-")' "$here.out" | sort | uniq -c
			fi
		done
	} >"$here.txt"
	[ -z "${UPDATE-}" ] || cp "$here.txt" "${d%/}.txt"
	diff "${d%/}.txt" "$here.txt" || fail "$d: < as it was, > as it is read now"
done
exit $bad
