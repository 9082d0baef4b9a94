#!/bin/sh
# Checks the daemon's GPU code against its budget: check_budget.sh DIR "TARGETS" CUDA_BIN. `make
# check-budget` runs it. DIR holds daemon.log (the assembler's report), daemon.fatbin and
# daemon.T.ptx. Writes DIR/budget.txt, a line for each target. Exits with 1 if a target is over its
# budget.
#
#   spills  none: a spilled register is a round trip to memory in the middle of the data path
#   shared  at most 13,312 bytes a block
#   regs    at most 65,536 / 512, so that blocks of 512 threads fit
#   loads   no ld.global.nc: its cache does not see writes of peers and streams while the kernel
#           runs
#   early   no register is read before the assembler has zeroed it (scripts/check_early_reads.py)
#   taking  all words of an instance (dfk_now_copy() in kernels/hot.inl) are loaded before one is
#           stored
set -eu

dir=$1 targets=$2 bin=$3
max_smem=13312 max_regs=128 inst_words=18
out=$dir/budget.txt
bad=0

complain() {
	echo "check-budget: $*" >&2
	bad=1
}

awk '
	/Compiling entry function/ {
		split($0, part, "\047")
		entry = part[2]
		target = part[4]
		next
	}
	/bytes spill stores/ {
		for (i = 1; i <= NF; i++) {
			if ($i == "stack" || $i == "stack,") stack[target] += $(i - 2)
			if ($(i + 1) == "spill") spill[target] += $(i - 1)
		}
		next
	}
	/Used [0-9]+ registers/ {
		smem = 0
		for (i = 1; i <= NF; i++) {
			if ($i == "registers,") regs = $(i - 1)
			if ($i ~ /^smem/) smem = $(i - 2)
		}
		printf "%s entry %s regs %d smem %d stack %d spill %d\n", target, entry, \
			regs, smem, stack[target], spill[target]
	}' "$dir/daemon.log" >"$out"

for t in $targets; do
	line=$(grep "^sm_$t entry dfk_daemon " "$out") || {
		complain "no report on dfk_daemon for sm_$t in $dir/daemon.log"
		continue
	}
	# shellcheck disable=SC2086
	set -- $line
	[ "$5" -le $max_regs ] || complain "sm_$t uses $5 registers, more than $max_regs"
	[ "$7" -le $max_smem ] || complain \
		"sm_$t uses $7 bytes of shared memory, more than $max_smem"
	[ "${11}" -eq 0 ] || complain "sm_$t spills ${11} bytes"
	if grep -n 'ld\.global[^ ]*\.nc' "$dir/daemon.$t.ptx" >&2; then
		complain "non-coherent loads in $dir/daemon.$t.ptx"
	fi
	run=$(awk '
		/^\$L/ || /^[ \t]*(@|bra|st\.|bar)/ { n = 0 }
		/^[ \t]*ld\.[ub]64/ {
			match($0, /\[%rd[0-9]+/)
			base = substr($0, RSTART, RLENGTH)
			n = base == last ? n + 1 : 1
			last = base
			if (n > most) most = n
		}
		END { print most + 0 }' "$dir/daemon.$t.ptx")
	[ "$run" -ge $inst_words ] ||
		complain "sm_$t: at most $run words are loaded in a row, an instance has" \
			"$inst_words: they would cross the bus one after the other"
done
# Checks the machine code itself if there is a disassembler: the toolkit's, or that of prereqs.sh.
for b in "$bin" build/cuda/bin; do
	[ -x "$b/cuobjdump" ] && [ -x "$b/nvdisasm" ] && break
done
if [ -x "$b/nvdisasm" ]; then
	b=$(cd "$b" && pwd)
	rm -rf "$dir/cubin"
	mkdir "$dir/cubin"
	fatbin=$(cd "$dir" && pwd)/daemon.fatbin
	(cd "$dir/cubin" && "$b/cuobjdump" -xelf all "$fatbin" >/dev/null)
	for t in $targets; do
		f=$(find "$dir/cubin" -name "*sm_$t*.cubin")
		"$b/nvdisasm" -hex -c "$f" >"$dir/cubin/$t.sass" 2>/dev/null
		if grep -n 'LDG[^ ]*\.CONSTANT' "$dir/cubin/$t.sass" >&2; then
			complain "sm_$t: non-coherent loads in the machine code"
		fi
		python3 scripts/check_early_reads.py "sm_$t" <"$dir/cubin/$t.sass" ||
			complain "sm_$t: a register is read before it is zero"
	done
	echo "sass checked" >>"$out"
else
	echo "sass not checked: no cuobjdump and nvdisasm in $bin and build/cuda/bin" >>"$out"
fi
cat "$out"
exit $bad
