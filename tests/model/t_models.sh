#!/bin/bash
# Description: the protocols as Promela models: exhaustively free of errors, and each control has its error.
set -u
command -v spin >/dev/null || { echo "no spin here"; exit 77; }
cd "$T" || exit 1
fail() { echo "FAILED: $*"; exit 1; }

# check ok|error MODEL "DEFINES" "PAN OPTIONS" "COMPILER OPTIONS"
check() {
	local want=$1 model=$2 defs=$3 run=$4 cc=$5 out
	rm -f pan pan.* ./*.trail
	# shellcheck disable=SC2086 # lists of options
	spin $defs -a "$SRC/tests/model/$model" >spin.log 2>&1 || fail "$model $defs: $(cat spin.log)"
	# shellcheck disable=SC2086
	gcc -O1 -w $cc -o pan pan.c || fail "$model $defs: pan does not compile"
	# shellcheck disable=SC2086
	out=$(timeout "${LIMIT:-100}" ./pan -m200000 $run 2>&1) || fail "$model $defs: $out"
	case $out in
	*"max search depth too small"* | *"out of memory"*) fail "$model $defs: not exhaustive: $out" ;;
	esac
	case $want-$(echo "$out" | sed -n 's/.*errors: \([0-9]*\).*/\1/p') in
	ok-0) ;;
	error-0) fail "$model $defs: the control has no error" ;;
	ok-*) fail "$model $defs: $out" ;;
	error-[1-9]*) ;;
	*) fail "$model $defs: $out" ;;
	esac
	echo "$want $model $defs: $(echo "$out" | sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1 states/p')"
}

check ok daemon.pml "" "" "-DSAFETY"
check ok daemon.pml "-DS=2 -DL=3" "" "-DSAFETY"
check ok daemon.pml "" "-l -f" "-DNP -DNFAIR=4"
check error daemon.pml "-DNCCL" "" "-DSAFETY"
check error daemon.pml "-DSHARED" "" "-DSAFETY"
check ok gang.pml "" "" "-DSAFETY"
check ok gang.pml "" "-l -f" "-DNP -DNFAIR=4"
check error gang.pml "-DFORGET" "" "-DSAFETY"
check error gang.pml "-DFRONT" "-l -f" "-DNP -DNFAIR=4"
check ok hot.pml "" "" "-DSAFETY"
check error hot.pml "-DNO_SAVE" "" "-DSAFETY"
check error hot.pml "-DTWO" "" "-DSAFETY"
check error hot.pml "-DLIVE" "" "-DSAFETY"
check ok bell.pml "" "" "-DSAFETY"
check error bell.pml "-DNO_LOOK" "" "-DSAFETY"
check error bell.pml "-DEARLY" "" "-DSAFETY"
check error bell.pml "-DLATE_SEEN" "" "-DSAFETY"
check ok release.pml "" "" "-DSAFETY"
check error release.pml "-DNONE" "" "-DSAFETY"
check ok proof.pml "" "" "-DSAFETY"
check error proof.pml "-DNO_HOLD" "" "-DSAFETY -DBFS"
check error proof.pml "-DNO_JUDGE" "" "-DSAFETY"
exit 0
