#!/bin/bash
# Description: ring, gate of a connector, its recycling, flag-with-data words, one in GPU memory, ways of messages, double snapshot, who tells a verdict as Promela models: free of errors, controls not.
# Limit: 300 s
set -u
command -v spin >/dev/null || { echo "no spin here"; exit 77; }
cd "$T" || exit 1
fail() { echo "FAILED: $*"; exit 1; }

# check ok|error MODEL DEFINES
check() {
	local want=$1 model=$2 defs=$3 out errors
	rm -f pan pan.* ./*.trail
	# shellcheck disable=SC2086 # a list of options
	spin $defs -a "$SRC/tests/model/$model" >spin.log 2>&1 || fail "$model $defs: $(cat spin.log)"
	gcc -O1 -w -DSAFETY -o pan pan.c || fail "$model $defs: pan does not compile"
	out=$(timeout "${LIMIT:-60}" ./pan -m200000 2>&1) || fail "$model $defs: $out"
	case $out in
	*"max search depth too small"* | *"out of memory"*) fail "$model $defs: not exhaustive: $out" ;;
	esac
	errors=$(echo "$out" | sed -n 's/.*errors: \([0-9]*\).*/\1/p')
	case $want-$errors in
	ok-0 | error-[1-9]*) echo "$want $model $defs" ;;
	error-0) fail "$model $defs: the control has no error" ;;
	*) fail "$model $defs: $out" ;;
	esac
}

check ok ring.pml ""
check ok ring.pml "-DSLOTS=1"
check ok ring.pml "-DSLOTS=3"
check error ring.pml "-DPUBLISH_FIRST"
check error ring.pml "-DNO_CHECK"
check error ring.pml "-DHEAD_FIRST"
check ok gate.pml ""
check error gate.pml "-DNO_GENERATION"
check error gate.pml "-DNO_GATE"
check error gate.pml "-DCLOSE_USED"
check ok recycle.pml ""
check error recycle.pml "-DNO_DRAIN"
check error recycle.pml "-DLOOK_FIRST"
check error recycle.pml "-DFROM_ZERO"
check error recycle.pml "-DIN_FLIGHT"
check ok p2p.pml ""
check error p2p.pml "-DNO_READY"
check error p2p.pml "-DREADY_FIRST"
check error p2p.pml "-DNO_GATE"
check error p2p.pml "-DCLOSE_EARLY"
check ok words.pml ""
check ok words.pml "-DSLOTS=1 -DROUNDS=7"
check ok words.pml "-DSLOTS=3 -DCREDIT=2"
check error words.pml "-DSLOTS=1 -DROUNDS=7 -DNO_SWEEP"
check error words.pml "-DNO_ZERO"
check error words.pml "-DLAST_ONLY"
check error words.pml "-DEARLY"
check error words.pml "-DNO_LAP"
check error words.pml "-DCREDIT=3"
check error words.pml "-DUNTOLD"
check ok route.pml "-DMESSAGES=3"
check ok route.pml "-DMOVE -DMESSAGES=3"
check error route.pml "-DUNTOLD"
check error route.pml "-DKEEP_WAYS"
check error route.pml "-DNO_REPEAT"
check error route.pml "-DNO_NUMBERS"
check error route.pml "-DMOVE -DANY_FLOOD"
check error route.pml "-DMOVE -DUNTOLD"
check ok snapshot.pml ""
check error snapshot.pml "-DONCE"
check error snapshot.pml "-DNO_COUNTERS"
check error snapshot.pml "-DCOUNT_LATE"
check ok speaker.pml ""
check error speaker.pml "-DBY_NAME"
check error speaker.pml "-DONCE"
check error speaker.pml "-DUNTOLD"
check error speaker.pml "-DALONE"
exit 0
