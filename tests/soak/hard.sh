#!/bin/bash
# Jobs under bad conditions: full disks for traces, little or no /dev/shm, low limits for one
# process or for all, and clocks that are set. A job must succeed, or end with an error that says
# why. It must not die of a signal, hang, or leave anything.
# shellcheck disable=SC2154 # draw and pick set them
set -u
. "$SRC/tests/soak/lib.sh"
side_by_side
mkdir -p "$T/disk"
gcc -shared -fPIC -O1 -o "$T/steps.so" "$SRC/tests/soak/steps.c" -ldl || exit 1
# small_disk SIZE COMMAND...: runs a command with a file system of that size for its traces.
small_disk() {
	mount -t tmpfs -o size="$1" none "$T/disk" || return 96
	shift
	"$@"
}
export -f small_disk
export T
until over; do
	runs=$((runs + 1))
	front=() limits=: SHM_OPTIONS="" trace=() preload=""
	draw procs 2 4
	draw rank 0 $((procs - 1))
	pick one all "$rank"
	pick what disk disk fsize files threads locked stack shm clock clock
	draw small 0 9000
	draw few 6 40 # with fewer descriptors the client itself cannot report its result
	case $what in
	disk) front=(bash -c 'small_disk "$@"' disk "$((small + 4))k") trace=(--trace "$T/disk") ;;
	fsize) limits="ulimit -f $small" trace=(--trace "$T/run/trace") ;;
	files) limits="ulimit -n $few" ;;
	threads) limits="exec setpriv --reuid 65534 --regid 65534 --clear-groups prlimit --nproc=$few" ;;
	locked) limits="ulimit -l $few" ;;
	stack) limits="ulimit -s $((64 + few * 10))" ;;
	shm) pick SHM_OPTIONS size=4k size=64k ro ;;
	clock) preload=$T/steps.so trace=(--trace "$T/run/trace") ;;
	esac
	export SHM_OPTIONS SURVIVOR_HOW=none SURVIVOR_ROUNDS=15 DFSHIM_TIMEOUT_MS=15000 STEPS_SEED=$runs PRELOAD=$preload
	case $limits in exec*) begin="$limits" ;; *) begin="$limits; exec" ;; esac
	# shellcheck disable=SC2016 # expanded inside
	apart "${front[@]}" "$B/dfshim" run --host --grace 30 -n "$procs" "${trace[@]}" -- bash -c '
		[ -z "$PRELOAD" ] || export LD_PRELOAD="$PRELOAD $LD_PRELOAD"
		if [ "$1" = all ] || [ "$1" = "$RANK" ]; then eval "$2 \"\${@:3}\""; else exec "${@:3}"; fi' - "$one" "$begin" \
		"$B/clients/survivor" --ranks "$procs" --seed "$runs" --timeout 40
	rc=$?
	text="$what ($limits, $SHM_OPTIONS, ${front[*]-}) for $one of $procs processes"
	case $rc in
	0 | 1 | 2 | 3) ;;
	*) finding "$text: status $rc" && continue ;;
	esac
	grep -q "no progress" "$T/run/out" && finding "$text: a rank hangs" && continue
	grep -qE "ended by signal|Segmentation|Bus error" "$T/run/out" && finding "$text: a process died" && continue
	# The client's own descriptors and threads, and the memory of the CPU backend (a file), may
	# run out. A full disk, little lockable memory, and a set clock must not cause failures.
	case $what:$rc in
	*:0) ;;
	files:* | threads:* | stack:* | fsize:*) [ -s "$T/run/out" ] || finding "$text: status $rc without a word" ;;
	*) finding "$text: status $rc: $(grep -v '^$' "$T/run/out" | tail -2)" ;;
	esac
done
done_with
