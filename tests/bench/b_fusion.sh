#!/bin/bash
# Repeats the tensor-fusion experiment of the dl2 paper (its Table 3): training with fused gradients
# in 20 settings. For each setting a run that went well is recorded. Does `dfshim predict` find a
# deadlock in it, and does `dfshim replay` confirm it? How do RUNS executions by NCCL's rules end,
# in which the threads of the buffers are delayed at random? The same is measured with one thread
# that launches buffers in the order in which they were closed, and with one that launches them in
# an agreed order, and the records of these two are compared.
#
# Writes the file "text" into T, which `make eval-fusion` puts into docs/evaluation.md. RUNS (5):
# executions of each. JOBS (4): settings at a time. RANKS (4). SETTINGS: other settings, as
# "BUFFERS.MEGABYTES.LAUNCH ...".
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE
F=$B/tests/deadlock/fusion RANKS=${RANKS:-4} RUNS=${RUNS:-5}
T=${T:-$(mktemp -d)}

# host DFSHIM-RUN-OPTIONS -- FUSION-OPTIONS: runs a job, whose output is left in $d/out
host() {
	timeout 120 "$B/dfshim" run --host="$RANKS" -n "$RANKS" "$@" >"$d/out" 2>"$d/errors"
}

# issued DIR: prints each operation of a trace: the rank, the thread (numbered by its first
# operation), the kind, the type, the count, the stream
issued() {
	"$B/dfshim" show --json --type op "$1" | sed -nE \
		's/.*"thread":([0-9]+),"job_rank":([0-9]+).*"kind":"([^"]*)","dtype":"([^"]*)".*"b":([0-9]+),"c":([0-9]+).*/\2 \1 \3 \4 \5 \6/p' |
		awk '{ if (!(($1, $2) in t)) t[$1, $2] = ++n[$1]; $2 = t[$1, $2]; print }' | sort -s -n -k1,1
}

# one BUFFERS MB LAUNCH: prints a line "BUFFERS MB LAUNCH fused flagged confirmed hangs wrong right
# what verdict"
one() {
	local b=$1 mb=$2 launch=$3 d=$T/$1.$2.$3 rc i flagged=no confirmed=- hangs=0 wrong=0 right=0 what=- verdict=-
	local job=("$F" --buffers "$1" --size $(($2 << 20)) --launch "$3" --timeout 60)
	rm -rf "$d"
	mkdir -p "$d"
	host --trace "$d/tr" --timeout 60 -- "${job[@]}" --calm || {
		echo "BAD $b.$mb.$launch: the recorded run: $(tail -1 "$d/out")"
		return
	}
	issued "$d/tr" >"$T/issued.$b.$mb.$launch"
	timeout 100 "$B/dfshim" predict --witness "$d/witness" "$d/tr" >"$d/predict" 2>"$d/errors"
	rc=$?
	case $rc in
	0) ;;
	14)
		flagged=yes
		what=$(sed -n '1s/^[^:]*: //p' "$d/predict")
		timeout 60 "$B/dfshim" replay --timeout 1.5 --witness "$d/witness" "$d/tr" >"$d/replay" 2>"$d/errors"
		rc=$?
		confirmed=no
		[ $rc -ge 10 ] && [ $rc -lt 60 ] && confirmed=yes && verdict=$(sed -n '1s/:.*//p' "$d/replay")
		;;
	*)
		echo "BAD $b.$mb.$launch: predict ended with status $rc: $(tail -1 "$d/errors")"
		return
		;;
	esac
	for ((i = 1; i <= RUNS; i++)); do
		DFSHIM_HOST_SLOTS=1024 DFSHIM_HOST_QUEUES=1024 host --rules nccl --timeout 1.5 -- "${job[@]}" \
			--jitter 2000 --seed "$i"
		case $? in
		0) right=$((right + 1)) ;;
		1) wrong=$((wrong + 1)) ;;
		*) hangs=$((hangs + 1)) ;;
		esac
	done
	echo "$b $mb $launch $("$F" --plan --buffers "$b" --size $((mb << 20))) $flagged $confirmed $hangs $wrong $right ${what// /_} $verdict"
	rm -rf "$d"
}
if [ "${1-}" = --one ]; then
	IFS=. read -r b mb launch <<<"$2"
	one "$b" "$mb" "$launch"
	exit 0
fi
[ -x "$F" ] || {
	echo "BENCH fusion.confirmed - share target ==1 UNMEASURED"
	exit 77
}
if [ -z "${SETTINGS-}" ]; then
	for launch in own queue agreed; do
		for b in 1 2 4 8; do
			for mb in 1 2 4 8 64; do SETTINGS+=" $b.$mb.$launch"; done
		done
	done
fi
export T RANKS RUNS
# shellcheck disable=SC2086 # a list
printf '%s\n' $SETTINGS | xargs -P "${JOBS:-4}" -I{} "$0" --one {} >"$T/lines"
grep ^BAD "$T/lines" >&2
count() { awk -v l="$1" "\$1 != \"BAD\" && \$3 == l && ($2) {n++} END {print n + 0}" "$T/lines"; }
flagged=$(count own '$5 == "yes"') confirmed=$(count own '$6 == "yes"')
missed=$(count own '$5 == "no" && $7 + $8 > 0') false=$(awk '$5 == "yes" && $3 == "agreed" {n++} END {print n + 0}' "$T/lines")
bad=$(grep -c ^BAD "$T/lines")
# Counts the settings that go wrong behind a queue, are not flagged, and have other records than the
# same settings with an agreed order. The agreed order cannot go wrong, so a trace alone would show
# the fault of these settings.
unexplained=0
while read -r b mb; do
	cmp -s "$T/issued.$b.$mb.queue" "$T/issued.$b.$mb.agreed" || unexplained=$((unexplained + 1))
done < <(awk '$1 != "BAD" && $3 == "queue" && $5 == "no" && $7 + $8 > 0 {print $1, $2}' "$T/lines")
verdict() { [ "$1" = "$2" ] && [ "$bad" = 0 ] && echo ok || echo MISS; }
echo "BENCH fusion.flagged $flagged settings target >=1 $([ "$flagged" -ge 1 ] && verdict 0 0 || echo MISS)"
echo "BENCH fusion.confirmed $confirmed settings target ==$flagged $(verdict "$confirmed" "$flagged")"
echo "BENCH fusion.missed $missed settings target ==0 $(verdict "$missed" 0)"
echo "BENCH fusion.unexplained $unexplained settings target ==0 $(verdict "$unexplained" 0)"
echo "BENCH fusion.false $false settings target ==0 $(verdict "$false" 0)"

# The table has our results beside the paper's.
paper() { # BUFFERS MB
	case $2 in
	1) set -- "$1" 64 61 63 60 Yes ;;
	2) set -- "$1" 55 48 50 57 Yes ;;
	4) set -- "$1" 28 28 28 32 Yes ;;
	8) set -- "$1" 19 19 18 20 Yes ;;
	*) set -- "$1" 2 2 4 8 No ;;
	esac
	case $1 in
	1) echo "$6 ($2)" ;;
	2) echo "$6 ($3)" ;;
	4) echo "$6 ($4)" ;;
	*) echo "$6 ($5)" ;;
	esac
}
{
	echo "Measured $(date -u +%F) at $(git rev-parse --short HEAD 2>/dev/null || echo unknown), CPU backend on $(nproc) processors" \
		"($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), $RANKS ranks."
	echo
	echo "| buffers | size | dl2 | \`dfshim predict\` | \`replay --witness\` | by NCCL's rules, $RUNS runs |"
	echo "|---|---|---|---|---|---|"
	grep -v ^BAD "$T/lines" | awk '$3 == "own"' | sort -n -k1 -k2 | while read -r b mb _ fused flagged confirmed hangs wrong right _ verdict; do
		said=No
		[ "$flagged" = yes ] && said=Yes
		[ "$confirmed" = yes ] && confirmed="hangs: $verdict"
		echo "| $b | $mb MB | $(paper "$b" "$mb") | $said ($fused) | $confirmed | $hangs hang, $wrong wrong, $right right |"
	done
	echo
	echo "| calls NCCL by | settings | flagged | confirmed | hang or are wrong with delays | of these not flagged |"
	echo "|---|---|---|---|---|---|"
	for launch in own queue agreed; do
		echo "| $launch | $(count $launch 1) | $(count $launch '$5 == "yes"') | $(count $launch '$6 == "yes"') |" \
			"$(count $launch '$7 + $8 > 0') | $(count $launch '$7 + $8 > 0 && $5 == "no"') |"
	done
} >"$T/text"
[ "$bad" = 0 ]
