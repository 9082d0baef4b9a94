# A job of `hangs` by NCCL's rules in mode trace, with processes on several nodes that share nothing.
# Sourced after netns.sh and clients.sh. The test sets nodes, procs (processes of a node) and n.
# shellcheck shell=bash disable=SC2154
master=29500
unset DFSHIM_TRACE

# A process with its own /tmp and /dev/shm. A build folder inside /tmp remains visible.
# shellcheck disable=SC2016 # for the shell that it is given to
own='mount -t tmpfs none /dev/shm && mkdir -p "$0" && mount -t tmpfs none "$0" || exit 1
for d in "$SRC" "$B" "$T"; do
	case $d in /tmp/*) mkdir -p "$0${d#/tmp}" && mount --rbind "$d" "$0${d#/tmp}" || exit 1 ;; esac
done
mount --rbind "$0" /tmp && cd / && exec "$@"'

# job HANGS: starts the job's processes on every node.
job() {
	local i j
	master=$((master + 1))
	rm -f "$T"/out*
	pid=()
	for ((i = 0; i < nodes; i++)); do
		for ((j = 0; j < procs; j++)); do
			HANGS=$1 RANK=$((i * procs + j)) WORLD_SIZE=$n LOCAL_RANK=$j MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
				on "$i" unshare -m bash -c "$own" "$T/tmp.$i.$j" \
				env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host timeout -k 5 "${LIMIT:-100}" "$C/hangs" --timeout "${QUIET:-60}" \
				>"$T/out.$i.$j" 2>&1 &
			pid+=($!)
		done
	done
}
finish() {
	kill "${pid[@]}" 2>/dev/null
	wait "${pid[@]}" 2>/dev/null
}
# names NODE PATTERN: whether a process of the node has printed the pattern.
names() { cat "$T"/out."$1".* 2>/dev/null | grep -qE "^$2"; }

# hang HANGS PATTERN TIMEOUT_MS: the hang must be named on every node, in one report.
hang() {
	local i p began
	export DFSHIM_TIMEOUT_MS=$3
	job "$1"
	for ((i = 0; i < nodes; i++)); do
		until names "$i" "$2"; do
			p=$(for p in "${pid[@]}"; do kill -0 "$p" 2>/dev/null && echo "$p"; done)
			[ -n "$p" ] || fail "$1: not named on node $i: $(tail -n 60 "$T"/out.*)"
			sleep 0.05
		done
	done
	began=$(sed -n 's/^rank .* stands at //p' "$T"/out.* | sort -n | tail -1)
	awk -v a="$began" -v b="$(date +%s%N)" -v w="$1" 'BEGIN { printf "%s: named on every node after %.1f s: ", w, b / 1e9 - a }'
	cat "$T"/out.* | grep -E "^$2" | head -1
	finish
	# One report in the whole job. The other nodes print only its sentence.
	[ "$(cat "$T"/out.* | grep -c '^Confidence: ')" = 1 ] || [ "$1" = missing ] || fail "$1: more than one report: $(tail -n 40 "$T"/out.*)"
}
