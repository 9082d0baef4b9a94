#!/bin/bash
# Description: jobs started by mpirun and srun (docs/launchers.md).
set -u
. "$SRC/tests/lib/clients.sh"
# Open MPI fails if a user has neither HOME nor an entry in /etc/passwd.
export HOME=${HOME:-$T}
command -v mpirun >/dev/null || skip "no mpirun here"
# The port is below those that the kernel assigns.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MASTER_PORT=$((20000 + $$ % 12000))
preload=$("$B/dfshim" run --host --dry-run -- x 2>/dev/null | sed -n 's/^LD_PRELOAD=//p')
timeout -k 5 "${LIMIT:-100}" mpirun --oversubscribe --bind-to none -n 4 -x LD_PRELOAD="$preload" -x DFSHIM_BACKEND=host \
	"$C/disorder" --iters 10 --timeout 60 >"$T/out" || fail "status $?: $(tail -5 "$T/out")"
grep -q '^disorder: OK: 4 ranks in 4 processes' "$T/out" || fail "$(cat "$T/out")"

# A script stands for srun and starts tasks as Slurm does. The preload is an --export; the tasks
# inherit the rest.
cat >"$T/srun" <<'SRUN'
#!/bin/bash
n=${1#-n} && shift
preload=${1#--export=ALL,LD_PRELOAD=} && shift
for ((i = 0; i < n; i++)); do
	SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NTASKS=$n RANK=$i LOCAL_RANK=$i WORLD_SIZE=$n LD_PRELOAD=$preload "$@" &
done
for job in $(jobs -p); do wait "$job" || rc=$?; done
exit ${rc-0}
SRUN
chmod +x "$T/srun"
MASTER_ADDR=127.0.0.1 MASTER_PORT=$((MASTER_PORT + 1)) DFSHIM_BACKEND=host timeout -k 5 "${LIMIT:-100}" "$T/srun" -n4 \
	--export=ALL,LD_PRELOAD="$("$B/dfshim" lib) $("$B/dfshim" lib --name host)" "$C/disorder" --iters 10 --timeout 60 \
	>"$T/out" || fail "srun: status $?: $(tail -5 "$T/out")"
grep -q '^disorder: OK: 4 ranks in 4 processes' "$T/out" || fail "srun: $(cat "$T/out")"
exit 0
