#!/bin/bash
# Random processes are killed at random times: by SIGKILL, by SIGSTOP for seconds, by exit and exec
# with everything open, by a thread that stops issuing, by fork. Half of the jobs have traces. The
# other processes must end with ncclRemoteError and keep nothing (tests/clients/survivor.c). A
# remaining trace must be readable and say what happened.
# shellcheck disable=SC2154 # draw and pick set them
set -u
. "$SRC/tests/soak/lib.sh"
side_by_side
declare -A times
until over; do
	runs=$((runs + 1))
	draw procs 2 5
	draw each 1 3
	pick how kill kill kill stop stop exit exit exec thread fork
	times[$how]=$((${times[$how]-0} + 1))
	draw SURVIVOR_PROC 0 $((procs - 1))
	draw SURVIVOR_US 0 600000
	draw SURVIVOR_STOP 500 3000
	draw SURVIVOR_ROUNDS 10 120
	draw DFSHIM_TIMEOUT_MS 1500 4000
	draw traced 0 1
	export SURVIVOR_HOW=$how DFSHIM_TIMEOUT_ACTION=report
	[ "$how" != thread ] || DFSHIM_TIMEOUT_ACTION=abort
	trace=()
	[ "$traced" = 0 ] || trace=(--trace "$T/run/trace")
	what="$how of process $SURVIVOR_PROC of $procs after $SURVIVOR_US us, $((procs * each)) ranks${trace:+, with traces}"
	apart "$B/dfshim" run --host --grace 40 -n "$procs" "${trace[@]}" -- "$B/clients/survivor" --ranks $((procs * each)) \
		--seed "$runs" --timeout 40
	rc=$?
	case $rc in
	97 | 98 | 99) finding "$what: $(tail -1 "$T/run/out") (97: left in /dev/shm, 98: a process left, 99: out of time): status $rc" && continue ;;
	esac
	if grep -q "no progress" "$T/run/out"; then
		# A rank that died before it reached a rendezvous is unknown there. As by NCCL's
		# rules the others wait, and the hang is reported.
		if [[ $how =~ ^(kill|exit|exec)$ ]] && grep -q '^INIT: .* not called ncclCommInitRank' "$T/run/out"; then
			times[told-INIT]=$((${times[told-INIT]-0} + 1))
			continue
		fi
		finding "$what: a rank hangs" && continue
	fi
	want=$procs gone=0
	case $how in kill | exit | exec) want=$((procs - 1)) gone=1 ;; esac
	got=$(grep -c '^survivor: process [0-9]*: \(finished\|ended: \)' "$T/run/out")
	[ "$got" -ge "$want" ] || { finding "$what: $got of $want processes came to their end" && continue; }
	[ $gone = 1 ] || [ $rc = 0 ] || { finding "$what: status $rc" && continue; }
	[ ${#trace[@]} = 0 ] && continue
	"$B/dfshim" check "$T/run/trace" >"$T/run/check" 2>&1
	rc=$?
	case $how:$rc in
	kill:30 | exec:30 | stop:0 | fork:0 | thread:20 | exit:0 | exit:20) ;;
	exit:22) grep -q '^INIT: rank .* exited normally inside' "$T/run/check" || finding "$what: dfshim check says $(head -1 "$T/run/check")" ;;
	kill:0 | exec:0 | thread:0) # the kill was too late
		! grep -q '^survivor: process [0-9]*: ended' "$T/run/out" || finding "$what: dfshim check says $(head -1 "$T/run/check")"
		;;
	*) finding "$what: dfshim check: status $rc: $(head -1 "$T/run/check")" ;;
	esac
done
for how in "${!times[@]}"; do echo "kills: ${times[$how]} $how"; done
done_with
