# shellcheck shell=bash
# Functions for the tests of the models. Sourced.
command -v spin >/dev/null || { echo "no spin here"; exit 77; }
cd "$T" || exit 1
# For most models an optimising compiler takes longer than the search.
fast=$(command -v tcc || echo gcc -O0)
fail() { echo "FAILED: $*"; exit 1; }

# check ok|error MODEL "DEFINES" ["COMPILER OPTIONS" ["PAN OPTIONS"]]: an exhaustive search must
# find no error (ok), or a control must have an error.
check() {
	local want=$1 model=$2 defs=$3 cc=${4:--DSAFETY} run=${5-} out errors
	# A control's error is found soon, and so is the end of a small model. Most of the time is
	# then needed for the compiler, and to clear the table of states (2^24 entries unless -w
	# says otherwise).
	local compile=$fast table=-w20
	[ "$want" = error ] || [ "${small:-0}" = 1 ] || compile="gcc -O1" table=
	rm -f pan pan.* ./*.trail
	# shellcheck disable=SC2086 # lists of options
	spin $defs -a "$SRC/tests/model/$model" >spin.log 2>&1 || fail "$model $defs: $(cat spin.log)"
	# shellcheck disable=SC2086
	$compile -w $cc -o pan pan.c || fail "$model $defs: pan does not compile"
	# shellcheck disable=SC2086
	out=$(timeout "${LIMIT:-250}" ./pan -m200000 $table $run 2>&1) || fail "$model $defs: $out"
	case $out in
	*"max search depth too small"* | *"out of memory"*) fail "$model $defs: not exhaustive: $out" ;;
	esac
	errors=$(echo "$out" | sed -n 's/.*errors: \([0-9]*\).*/\1/p')
	case $want-$errors in
	ok-0 | error-[1-9]*) ;;
	error-0) fail "$model $defs: the control has no error" ;;
	*) fail "$model $defs: $out" ;;
	esac
	echo "$want $model $defs: $(echo "$out" | sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1 states/p')"
}
