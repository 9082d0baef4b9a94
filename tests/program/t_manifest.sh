#!/bin/bash
# Description: `dfshim algo` on a data set of MSCCL programs, compared with an independent checker; defects of the public compiler.
set -u
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
T=${T:-$(mktemp -d)}
bad=0
fail() {
	echo "FAILED: $*"
	bad=1
}

# defect FILE TEXT: a file with a fault of the public compiler must be refused with this text, which
# names the wrong step.
defect() {
	"$B/dfshim" algo verify "tests/program/defects/$1" >"$T/out" 2>"$T/err"
	rc=$?
	[ $rc = 3 ] || fail "$1: status $rc"
	grep -qF -- "$2" "$T/err" || fail "$1 does not say \"$2\": $(cat "$T/err")"
}
defect rrc-source.xml "rrc-source.xml:10: rank 1 block 0 step 0: its source is the sender's location of the operand"
defect rcs-scratch.xml "rcs-scratch.xml:15: rank 1 block 1 step 0: race: writes scratch chunk 0, which block 0 step 0 writes"

# Programs that write to their input work on a copy. They are right in place and out of place, and
# the caller's input remains unchanged.
for f in tests/program/own_input/*; do
	"$B/dfshim" algo verify "$f" >"$T/out" 2>&1 || fail "$f is refused: $(cat "$T/out")"
	grep -q 'writes to its input: it copies that first' "$T/out" || fail "$f: $(cat "$T/out")"
	"$B/dfshim" algo verify --json "$f" | grep -Eq '"copies_input": ?true' || fail "$f: $("$B/dfshim" algo verify --json "$f")"
	"$B/dfshim" algo run "$f" --rounds 30 >"$T/out" 2>&1 && grep -q '30 runs right' "$T/out" || fail "$f: $(cat "$T/out")"
done
# A wrong step in such a program is refused for the mistake itself, in the terms of the file.
sed '0,/srcbuf="i" srcoff="1" dstbuf="i" dstoff="1"/s//srcbuf="i" srcoff="0" dstbuf="i" dstoff="1"/' tests/program/own_input/rs.xml >"$T/wrong.xml"
"$B/dfshim" algo verify "$T/wrong.xml" >"$T/out" 2>"$T/err"
rc=$?
[ $rc = 3 ] && grep -q 'wrong.xml:21: rank 1 block 1 step 0: output chunk 0 ends as' "$T/err" || fail "a wrong step of one that writes to its input: $rc, $(cat "$T/err")"

D=../shared/data/msccl
[ -r $D/MANIFEST.md ] || {
	[ $bad = 0 ] || exit 1
	echo "skipped after the defects: no $D"
	exit 77
}
# The exit status must equal the manifest's verdict. A refusal names rank, block and step.
rows=0
while IFS='|' read -r _ file _ _ _ _ _ _ _ _ _ _ _ check _; do
	file=${file// /}
	case $file in *.xml) ;; *) continue ;; esac
	case $check in " OK"* | " RAN"*) want=0 ;; *) want=3 ;; esac
	"$B/dfshim" algo verify "$D/$file" >"$T/out" 2>"$T/err"
	rc=$?
	[ $rc = $want ] || fail "$file gives $rc, the manifest says $want: $(cat "$T/err")"
	if [ $want = 0 ]; then
		grep -q 'smallest slot count: [0-9]' "$T/out" || fail "$file: no slot count"
		grep -q 'size limits: ' "$T/out" || fail "$file: no size limits"
		echo "$file valid" >>"$T/ours"
	else
		grep -q "$file:[0-9]*: rank [0-9]* block [0-9]* step [0-9]*: " "$T/err" || fail "$file: $(cat "$T/err")"
		echo "$file refused" >>"$T/ours"
	fi
	rows=$((rows + 1))
done <$D/MANIFEST.md
[ $rows -ge 90 ] || fail "only $rows rows in the manifest"
# A program that hangs MSCCL itself with large messages. The output names the size from which on it
# needs more slots.
"$B/dfshim" algo verify $D/allgather_recdbl_n8.xml >"$T/out"
grep -q 'with Simple it deadlocks above [0-9]* bytes' "$T/out" || fail "no size limit: $(cat "$T/out")"

# The independent checker must reach the same verdicts.
if command -v python3 >/dev/null && [ -r ../shared/model/mscclcheck.py ]; then
	(cd $D && python3 "$OLDPWD/../shared/model/mscclcheck.py" ./*.xml) >"$T/other" 2>&1
	awk '{sub(".*/", "", $1); print $1, $2 == "OK" || $2 == "RAN" ? "valid" : "refused"}' "$T/other" | sort >"$T/other.sorted"
	sort "$T/ours" | diff - "$T/other.sorted" >"$T/diff" || fail "the checkers differ: $(cat "$T/diff")"
fi
exit $bad
