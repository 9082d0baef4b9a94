#!/bin/bash
# Description: dfshim run: environment, exit statuses, signals, the end of the other ranks, tagged output.
set -u
fail() { echo "FAILED: $*"; exit 1; }
D=$B/dfshim
cd "$T" || exit 1
unset DFSHIM_TRACE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT LD_PRELOAD
export DFSHIM_MODE=off
[ -f "$B/libdfshim.so" ] || { echo "no libdfshim.so here"; exit 77; }

# With -n the ranks have torchrun's variables; without -n they have none.
"$D" run --host -n 3 -- sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR"' | sort >out
printf '%s\n' "0 0 3 3 127.0.0.1" "1 1 3 3 127.0.0.1" "2 2 3 3 127.0.0.1" | diff - out || fail "ranks"
[ "$("$D" run --host -n 2 -- sh -c 'echo $MASTER_PORT' | sort -u | grep -Ec '^[0-9]+$')" = 1 ] || fail "port"
[ "$(MASTER_PORT=1234 MASTER_ADDR=a "$D" run --host -n 1 -- sh -c 'echo $MASTER_PORT$MASTER_ADDR')" = 1234a ] ||
	fail "the user's port is replaced"
# The port is reserved for rank 0. No other process gets it by chance, and a server that binds it
# can listen there.
# shellcheck disable=SC2016 # for the shell below
"$D" run --host -n 1 -- python3 -c '
import os, socket
port = int(os.environ["MASTER_PORT"])
try:
    socket.socket().bind(("", port))
    raise SystemExit("the port is free for anybody")
except OSError:
    pass
six = {"family": socket.AF_INET6, "dualstack_ipv6": True}
for how in ({}, six) if socket.has_dualstack_ipv6() else ({},):
    with socket.create_server(("", port), **how):
        socket.create_connection(("127.0.0.1", port)).close()
' || fail "the port that rank 0 is to listen on"
[ -z "$("$D" run --host -- sh -c 'echo $RANK$WORLD_SIZE')" ] || fail "a rank without -n"

# Options become variables. LD_PRELOAD contains dfshim's libraries and its previous value.
"$D" run --host=4 --rules nccl --mode trace --timeout 2.5 --trace a/b --dry-run -- x >out || fail "dry run"
for w in DFSHIM_HOST_DEVICES=4 DFSHIM_MODE=trace DFSHIM_TIMEOUT_MS=2500 \
	DFSHIM_TIMEOUT_ACTION=exit DFSHIM_BACKEND=host "DFSHIM_TRACE=$(pwd -P)/a/b"; do
	grep -qx "$w" out || fail "$w is not in: $(cat out)"
done
[ -d a/b ] || fail "the trace folder was not made"
# With more than eight ranks there are as many devices as ranks. (Not always more: PyTorch counts
# devices in a byte.)
for n in 8: 9:9 64:64; do
	[ "$(env -u DFSHIM_HOST_DEVICES "$D" run --host -n "${n%:*}" --dry-run -- x | sed -n 's/^DFSHIM_HOST_DEVICES=//p')" = "${n#*:}" ] ||
		fail "devices of ${n%:*} ranks"
done
# torchrun starts the ranks itself, so one torchrun is started and gets their number. For several
# nodes each process is a torchrun.
printf '#!/bin/sh\necho "$PET_NPROC_PER_NODE,$RANK,$WORLD_SIZE,$DFSHIM_HOST_DEVICES"\n' >torchrun && chmod +x torchrun
: >train.py
for form in "./torchrun train.py" "./torchrun --standalone -m train" "env -m torch.distributed.run"; do
	# shellcheck disable=SC2086 # words
	out=$(env -u DFSHIM_HOST_DEVICES "$D" run --host -n 12 --dry-run -- $form | grep -E '^(PET_NPROC_PER_NODE|WORLD_SIZE|DFSHIM_HOST_DEVICES)=' | tr '\n' ' ')
	[ "$out" = "PET_NPROC_PER_NODE=12 DFSHIM_HOST_DEVICES=12 " ] || fail "-n 12 -- $form: $out"
done
[ "$(env -u DFSHIM_HOST_DEVICES "$D" run --host -n 12 -- ./torchrun train.py)" = "12,,,12" ] || fail "torchrun is not started once"
[ "$("$D" run --host=2 -n 2 -- ./torchrun --nnodes=2 train.py | sort | tr '\n' ' ')" = ",0,2,2 ,1,2,2 " ] || fail "torchruns of several nodes"
# git ignores a trace folder that dfshim created, and no other folder.
[ "$(cat a/b/.gitignore)" = "*" ] && [ ! -e a/.gitignore ] || fail "git lists the traces"
mkdir mine
"$D" run --host --trace mine --dry-run -- x >/dev/null && [ ! -e mine/.gitignore ] || fail "a folder of the user got a .gitignore"
grep -q "^LD_PRELOAD=.*libdfshim.so .*libdfhost.so .*libdfnccl.so" out || fail "preload: $(cat out)"
# Not with AddressSanitizer: its runtime must be preloaded first in dfshim itself.
m=/lib/x86_64-linux-gnu/libm.so.6
case $B in
*/address) ;;
*)
	LD_PRELOAD=$m "$D" run --host --dry-run -- x 2>/dev/null | grep -q "^LD_PRELOAD=.*libdfhost.so $m\$" ||
		fail "preload of the user"
	;;
esac

# Exit statuses.
"$D" run --host -- true || fail "status of true"
"$D" run --host -- sh -c 'exit 9'; [ $? = 9 ] || fail "status 9"
"$D" run --host -- sh -c 'kill -KILL $$'; [ $? = 137 ] || fail "128 + signal"
# A missing program is reported once, before a rank starts.
missing() {
	"$D" run --host -n 3 -- "${@:3}" 2>err
	[ $? = "$1" ] || fail "status of ${*:3}"
	echo "dfshim run: $2" | diff - err || fail "message for ${*:3}"
}
missing 127 "./no-such-program: No such file or directory" ./no-such-program
: >no-program
missing 126 "./no-program: Permission denied" ./no-program
: >script.py
missing 127 "script.py: is no program: start it with \`python script.py\`" script.py
missing 126 "./script.py: is no program: start it with \`python ./script.py\`" ./script.py
missing 2 "no-such.py: No such file or directory" "$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')" -u no-such.py --option
# A folder of Python's name in PATH, as build/python is, is no program.
mkdir -p first/python3
PATH=$PWD/first:$PATH missing 2 "no-such.py: No such file or directory" python3 -u no-such.py
# Ranks of torchrun would report it after a page of torchrun's own.
missing 2 "no-such.py: No such file or directory" ./torchrun --standalone --nnodes 1 --rdzv-id=x.py no-such.py option.py
# The file is not certain here, so torchrun decides.
for form in "-m no-such.py" "--no-python no-such.py" "--some-flag no-such.py"; do
	# shellcheck disable=SC2086 # words
	"$D" run --host -- ./torchrun $form >/dev/null || fail "torchrun $form: refused"
done
# A program that needs torch, with a Python that has none: the last line says so, once for the job.
printf 'import sys\nsys.path = [p for p in sys.path if "-packages" not in p]\nimport torch\n' >needs.py
"$D" run --host -n 2 --no-fork -- "${PYTHON:-python3}" needs.py 2>err
[ $? = 1 ] && [ "$(grep -c "^dfshim: .* has no PyTorch: install it there" err)" = 1 ] || fail "no torch: $(cat err)"
printf 'try:\n    import torch.nowhere\nexcept ImportError:\n    pass\n' >catches.py
"$D" run --host -- "${PYTHON:-python3}" catches.py 2>err && [ ! -s err ] || fail "a program that catches the error: $(cat err)"
for bad in "--rules sometimes" "--rules nccl --mode prevent" "-n 0" "-n x" "--mode" "--timeout -1" "--bogus" ""; do
	# shellcheck disable=SC2086 # words
	"$D" run --host $bad >/dev/null 2>err; [ $? = 2 ] || fail "'$bad' is accepted"
	[ -s err ] || fail "'$bad': no message"
done

# When one rank fails, the others are ended after the grace time, and its status becomes the job's.
start=$(date +%s)
"$D" run --host --grace 0.2 -n 3 -- sh -c 'if [ $RANK = 1 ]; then exit 5; fi; sleep 300' 2>err
[ $? = 5 ] || fail "first failing status"
[ $(($(date +%s) - start)) -lt 60 ] || fail "the others were not ended"
grep -q "rank 1 ended with status 5" err || fail "who failed: $(cat err)"
grep -q "ending the other 2 processes" err || fail "how many are left: $(cat err)"
"$D" run --host --grace 0.2 -n 2 -- sh -c 'if [ $RANK = 1 ]; then exit 5; fi; sleep 300' 2>err
grep -q "ending the other process$" err || fail "one is left: $(cat err)"
# This includes a rank that ignores SIGTERM. Within the grace time the others can finish by
# themselves.
"$D" run --host --grace 30 -n 2 -- sh -c 'if [ $RANK = 1 ]; then exit 5; fi; sleep 0.5; echo done >late'
[ -f late ] || fail "no grace"

# The same after Ctrl-C, which Python, for one, only notes while it waits inside CUDA.
env --default-signal=INT "$D" run --host --grace 0.2 -n 2 -- sh -c 'trap "" INT; echo up >deaf.$RANK; while :; do sleep 0.05; done' 2>err &
pid=$!
for _ in $(seq 200); do [ -f deaf.0 ] && [ -f deaf.1 ] && break; sleep 0.05; done
kill -INT $pid
wait $pid; [ $? = 143 ] || fail "status after Ctrl-C: $(cat err)"
grep -q "ending all 2 processes" err || fail "Ctrl-C is not told: $(cat err)"

# A signal reaches all processes.
"$D" run --host -n 2 -- sh -c 'trap "echo got >sig.$RANK; exit 3" TERM; echo up >up.$RANK; while :; do sleep 0.05; done' &
pid=$!
for _ in $(seq 200); do [ -f up.0 ] && [ -f up.1 ] && break; sleep 0.05; done
kill -TERM $pid
wait $pid; [ $? = 3 ] || fail "status after a signal"
[ -f sig.0 ] && [ -f sig.1 ] || fail "the signal did not arrive"

# Tagged lines are whole, even if the last one has no newline.
"$D" run --host --tag -n 2 -- sh -c 'echo a; printf b; echo e >&2' >out 2>err
sort out >sorted
printf '%s\n' "[0] a" "[0] b" "[1] a" "[1] b" | diff - sorted || fail "tags"
[ "$(grep -c '^\[[01]\] e$' err)" = 2 ] || fail "tags of standard error"
exit 0
