#!/bin/bash
# Compares the judge with torchfrtrace on the same dumps: the answers of each for the hangs of the
# catalogue, executed by NCCL's rules, and the time for dumps of 8 ranks. Also runs fr_attribution
# of NVIDIA's Resiliency Extension, which reads only dumps as PyTorch writes them by default.
# $T/table becomes a table of docs/evaluation.md. TORCH_PYTHON: a Python with torch, tabulate and
# nvidia-resiliency-ext (default python3). Without nvidia-resiliency-ext its column is empty.
set -u
py=${TORCH_PYTHON:-python3}
fr=$SRC/tests/bench/frtrace.py
script=$B/tests/deadlock/interpreter/script

unmeasured() {
	echo "BENCH frtrace_catalogue_right UNMEASURED verdicts target >0 UNMEASURED # $1"
	echo "BENCH check_8x8000_seconds UNMEASURED s target >0 UNMEASURED # $1"
	exit 0
}
attribution=$("$py" "$SRC/tests/bench/frattribution.py" --where) || attribution=
[ -x "$script" ] || unmeasured "the interpreter of the catalogue is not built here"
version=$("$py" "$fr" --where) || unmeasured "${version:-no $py}"

# run FILE DIR: runs the program by NCCL's rules. Traces go to DIR/tr, and dumps to DIR/fr (all
# states) and DIR/plain. DIR/plain has dumps as PyTorch writes them by default: without
# TORCH_NCCL_ENABLE_TIMING the starts are not known.
run() {
	mkdir -p "$2/tr" "$2/fr" "$2/plain"
	value() { awk -v k="$1" -v d="$2" '$1 == k { d = $2 } END { print d }' "$3"; }
	env DFSHIM_TRACE="$2/tr" DFSHIM_TRACE_MB=64 DFSHIM_BACKEND=host DFSHIM_MODE=trace DFSHIM_TIMEOUT_MS=400 \
		DFSHIM_TIMEOUT_ACTION=abort "DFSHIM_HOST_SLOTS=$(value slots 4 "$1")" \
		"DFSHIM_HOST_QUEUES=$(value queues 8 "$1")" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" \
		timeout -k 2 60 "$script" --timeout 8 "$1" >"$2/log" 2>&1
	echo $? >"$2/status"
	"$B/dfshim" export-fr -o "$2/fr/nccl_trace_rank_" "$2/tr" >/dev/null 2>&1 || return 0
	"$py" - "$2" <<'PY'
import glob, os, pickle, sys
for f in glob.glob(sys.argv[1] + "/fr/*"):
    d = pickle.load(open(f, "rb"))
    for e in d.get("entries", []):
        if e["state"] == "started":
            e["state"] = "scheduled"
    pickle.dump(d, open(os.path.join(sys.argv[1], "plain", os.path.basename(f)), "wb"))
PY
}

# says DIR: prints in a few words the findings of torchfrtrace for the dumps there
says() {
	"$py" "$fr" "$1" -p nccl_trace_rank_ >"$1.out" 2>&1
	awk '
		function more(w) { if (!(w in seen)) { seen[w] = 1; text = text (text == "" ? "" : "; ") w } }
		/Not all ranks joining/ { missing = 1 }
		/^group info:/ { sub(/^group info: /, ""); group = $0 }
		/^missing ranks:/ { if (missing) { sub(/^missing ranks: /, ""); more("missing " $0 " in " group) } }
		/Error type:/ { match($0, /Error type: [A-Z0-9_]+/); more(substr($0, RSTART + 12, RLENGTH - 12)) }
		/^MISMATCH/ { more("MISMATCH of a group of messages") }
		/^[A-Za-z]*(Error|Exception)/ { sub(/ from .*/, ""); more("fails: " substr($0, 1, 60)) }
		END { print text == "" ? "nothing" : text }' "$1.out"
}

# attributes DIR: prints the findings of fr_attribution for the dumps there: the ranks that lack a
# call, by process group
attributes() {
	[ -n "$attribution" ] || { echo "not tried" && return; }
	"$py" "$SRC/tests/bench/frattribution.py" --fr-path "$1" -p 'nccl_trace_rank_*' --emit-stdout >"$1.attr" 2>"$1.attr.err"
	awk -F ' *[|] *' '
		NF == 6 && $1 != "PGID" && $6 != "" && !(($6, $2) in seen) {
			seen[$6, $2] = 1
			text = text (text == "" ? "" : "; ") "missing {" $6 "} in " $2
		}
		END { print text == "" ? "nothing" : text }' "$1.attr"
}

# right VERDICT WORDS: prints whether the words name the cause
right() {
	case $1:$2 in
	*nothing | *fails* | *tried) echo no ;;
	MISSING:missing* | CRASH:missing* | INIT:missing*) echo yes ;;
	MISMATCH:*STATE_MISMATCH) echo no ;;
	MISMATCH:*MISMATCH*) echo yes ;;
	*) echo no ;;
	esac
}

one() {
	local f=$1 id d want verdict line full plain attr
	id=$(basename "$f" .txt)
	d=$T/$id
	rm -rf "$d"
	run "$f" "$d"
	want=$(awk '$1 == "nccl" { w = $2 } END { print w == "" ? "?" : w }' "$f")
	if [ "$(cat "$d/status")" != 0 ] && [ "$want" != "?" ]; then
		line=$("$B/dfshim" check "$d/tr" 2>/dev/null | head -1)
		verdict=${line%%:*}
		full=$(says "$d/fr")
		plain=$(says "$d/plain")
		attr=$(attributes "$d/plain")
		printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$id" "$want" "$verdict" \
			"$([ "$want" = "$verdict" ] && echo yes || echo no)" "$full" "$(right "$want" "$full")" "$plain" \
			"$(right "$want" "$plain")" "$attr" "$(right "$want" "$attr")" >"$T/row.$id"
	fi
	rm -rf "$d"
}
if [ "${1-}" = --one ]; then
	one "$2"
	exit 0
fi

rm -f "$T"/row.*
printf '%s\n' "$SRC"/tests/deadlock/catalogue/*.txt | xargs -P 4 -I{} "$0" --one {}
nr=$(cat "$T"/row.* | wc -l)
ours=$(cat "$T"/row.* | awk -F' [|] ' '$4 == "yes"' | wc -l)
full=$(cat "$T"/row.* | awk -F' [|] ' '$6 == "yes"' | wc -l)
plain=$(cat "$T"/row.* | awk -F' [|] ' '$8 == "yes"' | wc -l)
attr=$(cat "$T"/row.* | grep -c '| yes |$')
echo "BENCH frtrace_catalogue_right $ours verdicts peer torchfrtrace-$version $full ratio $(awk "BEGIN { printf \"%.2f\", $ours / ($full ? $full : 1) }")" \
	"target >$full $([ "$ours" -gt "$full" ] && echo ok || echo MISS)"
{
	echo "torchfrtrace of torch $version, fr_attribution of nvidia-resiliency-ext ${attribution:-(not installed)}, $(date -u +%F) at $(git -C "$SRC" rev-parse --short HEAD 2>/dev/null || echo unknown), $(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), load $(cut -d' ' -f1 /proc/loadavg)."
	echo
	echo "\`dfshim check\` names the cause of $ours of $nr hangs, torchfrtrace of $full where the dumps say what has started, and of $plain as PyTorch writes them by default."
	[ -z "$attribution" ] ||
		echo "fr_attribution names the cause of $attr: the ranks that lack a call. It reads entries that are scheduled, no others, and compares no calls."
	echo
	echo "| entry | cause | \`dfshim check\` | right | torchfrtrace, starts recorded | right | torchfrtrace, by default | right | fr_attribution, by default | right |"
	echo "|---|---|---|---|---|---|---|---|---|---|"
	cat "$T"/row.*
	echo
	echo "| 8 ranks, all-reduces each | \`dfshim check\` on its traces | \`torchfrtrace\` on the dumps | ratio |"
	echo "|---|---|---|---|"
} >"$T/table"

# The time is measured with 8 ranks, the last of which lacks the last all-reduce.
for n in 1000 8000; do
	d=$T/size
	rm -rf "$d"
	mkdir -p "$d"
	awk -v n=$n 'BEGIN {
		print "prog size\nranks 8\ncomm W 0 1 2 3 4 5 6 7"
		for (r = 0; r < 8; r++) {
			printf "%d:", r
			for (i = 0; i < n - (r == 7); i++) printf "%s AR W s buf=x%s", i ? ";" : "", i % 64 ? "" : "; ssync s"
			print ""
		}
		print "end" }' >"$d/script"
	run "$d/script" "$d"
	begin=$(date +%s%N)
	"$B/dfshim" check "$d/tr" >"$d/check"
	ours=$(($(date +%s%N) - begin))
	"$py" "$fr" "$d/fr" -p nccl_trace_rank_ >"$d/out" 2>&1
	theirs=$(sed -n 's/^seconds //p' "$d/out")
	awk -v n=$n -v o=$ours -v t="$theirs" -v v="torchfrtrace-$version" -v table="$T/table" 'BEGIN {
		o /= 1e9
		printf "BENCH check_8x%d_seconds %.4f s peer %s %.4f ratio %.1f target <=%.4f %s\n", n, o, v, t, t / o, t, o <= t ? "ok" : "MISS"
		printf "| %d | %.3f s | %.3f s | %.0f |\n", n, o, t, t / o >>table }'
	head -1 "$d/check" | grep -q '^MISSING' || echo "# $(head -1 "$d/check")"
	rm -rf "$d"
done
exit 0
