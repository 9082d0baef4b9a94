#!/bin/bash
# Description: the examples of NCCL's own documentation, unmodified, on the CPU: those that launch no kernel.
#
# NCCL_EXAMPLES: their folder; they are compiled here.
#   git clone https://github.com/NVIDIA/nccl
#   NCCL_EXAMPLES=nccl/docs/examples tests/run.sh smoke/t_nccl_examples
set -u
. "$SRC/tests/lib/clients.sh"
E=${NCCL_EXAMPLES:-}
[ -d "$E/common/include" ] || skip "NCCL_EXAMPLES does not name a folder with NCCL's examples"
read -r -a cuda <<<"$(ldd "$C/disorder" | awk '/libcudart|libnccl/ { sub("/[^/]*$", "", $3); print $3 }' | sort -u | tr '\n' ' ')"
[ ${#cuda[@]} -gt 0 ] || skip "the shared CUDA runtime and NCCL are not here"
flags=()
for d in "${cuda[@]}"; do flags+=("-I$(dirname "$d")/include" "-L$d" "-Wl,-rpath,$d"); done

nr=0
for m in "$E"/0[1-5]_*/*/c/main.cc; do
	name=${m#"$E"/}
	name=${name%/c/main.cc}
	mpi=() launch=()
	if [[ $name == *mpi ]]; then
		command -v mpicxx mpirun >/dev/null || continue
		read -r -a mpi <<<"-DMPI_SUPPORT $(mpicxx --showme:compile) $(mpicxx --showme:link)"
		launch=(mpirun --allow-run-as-root --oversubscribe -n 4)
	fi
	# The ring sends 1 GB from each device, so use only two devices.
	devices=4
	[[ $name != *ring* ]] || devices=2
	g++ -O1 -std=c++17 -I"$E/common/include" -I"$(dirname "$m")" "$m" "$E"/common/src/*.cc -o "$T/example" \
		"${flags[@]}" "${mpi[@]}" -lnccl -lcudart -pthread >"$T/out" 2>&1 || {
		cat "$T/out"
		fail "$name can't be compiled"
	}
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host=$devices -- "${launch[@]}" "$T/example" >"$T/out" 2>&1 || {
		tail -20 "$T/out"
		fail "$name"
	}
	if grep -qiE 'error|incorrect|fail' "$T/out"; then
		cat "$T/out"
		fail "$name"
	fi
	nr=$((nr + 1))
done
[ $nr -ge 6 ] || fail "only $nr examples found in $E"
echo "$nr examples"
