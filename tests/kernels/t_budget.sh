#!/bin/sh
# Description: the daemon's GPU code, as assembled for each target, is within its budget: registers,
# shared memory, no spills, no loads through caches that are not coherent, and, where there is a
# disassembler, no register that is read too early after it was set to zero.
set -eu
if [ ! -f "$B/kernels/daemon.log" ]; then
	echo "skipped: built without nvcc, or with the GPU code of another build"
	exit 77
fi
cd "$SRC"
sh scripts/check_budget.sh "$B/kernels" "$(sed -n 's/^GPU_TARGETS ?= //p' kernels/module.mk)" "$(scripts/cuda_home.sh)/bin"
# The check itself finds such reads in machine code.
early() { # GAP: prints a zeroing, a load that is predicated off, and a reader of the register
	printf '        /*0100*/ CS2R R4, SRZ ;  /* 0x0000000000047805 */\n  /* 0x%016x */\n' $(((0x7e0 | 1) << 41))
	printf '        /*0110*/ @P0 IMAD.WIDE.U32 R4, R25, 0x60, R10 ;  /* 0x0000000000047825 */\n  /* 0x%016x */\n' $(((0x7e0 | ($1 - 1)) << 41))
	printf '        /*0120*/ ISETP.NE.U32.AND P1, PT, R4, RZ, PT ;  /* 0x000000000400720c */\n  /* 0x%016x */\n' $((0x7e1 << 41))
}
if early 5 | python3 scripts/check_early_reads.py sample 2>"$T/early"; then
	echo "a register that is read after five cycles was not found"
	exit 1
fi
grep -q 'sample: 5 cycles from 0100' "$T/early"
early 6 | python3 scripts/check_early_reads.py sample
