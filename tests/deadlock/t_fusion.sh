#!/bin/bash
# Description: settings of the tensor-fusion experiment (make bench BENCH=fusion). If threads race, predict reports a deadlock and replay confirms it. If one thread launches in the model's order, predict reports none, and nothing hangs by NCCL's rules.
set -u
. "$SRC/tests/lib/clients.sh"
[ -x "$B/tests/deadlock/fusion" ] || skip "the program is not built here"
export RANKS=2 RUNS=1
printf '%s\n' 1.8.own 2.8.own 4.64.own 2.8.agreed | xargs -P 2 -I{} "$SRC/tests/bench/b_fusion.sh" --one {} | sort >"$T/lines"
cat "$T/lines"
# Columns: BUFFERS MB LAUNCH fused flagged confirmed hangs wrong right. With the parameter sizes of
# a Swin-T, one buffer of 8 MB needs 19 AllReduces.
cut -d' ' -f1-6 "$T/lines" >"$T/is"
cat >"$T/want" <<-'EOF'
	1 8 own 19 no -
	2 8 agreed 18 no -
	2 8 own 18 yes yes
	4 64 own 4 no -
EOF
cmp "$T/is" "$T/want" || fail "predict"
awk '$5 == "no" && $9 != 1 {bad = 1} END {exit bad}' "$T/lines" || fail "a run by NCCL's rules"
exit 0
