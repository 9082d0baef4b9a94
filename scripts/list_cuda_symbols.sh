#!/bin/bash
# The functions of the CUDA runtime and driver that installed Python packages ask for: what their libraries import, and the
# names of the driver's functions that stand in them, or in Triton's C source, as strings, to be looked up while they run.
# CUPTI and cuFile are left out: NVIDIA's own, and they name all that any release of the driver has.
#
#   scripts/list_cuda_symbols.sh SITE-PACKAGES... >tests/hostcuda/asked.txt
#
# The first lines say which packages. tests/hostcuda/t_asked.sh compares the list with libdfhost.so.
set -eu -o pipefail
export LC_ALL=C
[ $# -gt 0 ] || { sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; }

echo "# Functions that packages ask of the CUDA runtime and driver; made by scripts/list_cuda_symbols.sh from:"
for at; do
	for info in "$at"/{torch,triton,cupy_cuda*,nccl4py}-*.dist-info; do
		[ ! -d "$info" ] || sed -nE '/^$/q; s/^(Name|Version): (.*)/\2/p' "$info/METADATA" | sort -r | paste -sd' ' | sed 's/^/#   /'
	done
done
groups='Init|Array|Ctx|Device|Driver|Event|Func|Get|Graph|Ipc|Kernel|Launch|Library|Link|Mem|Module|Multicast|Occupancy|Pointer|Stream|Tensor'
for at; do
	for package in torch triton cupy nccl; do
		[ ! -d "$at/$package" ] || find "$at/$package" -type f -regex '.*\.so[.0-9]*' ! -name 'libcupti*'
	done | while read -r library; do
		nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' | { grep -E '^(_*cuda|cu)[A-Z]' || :; }
		strings -n 6 "$library" | { grep -xE "cu($groups)([A-Z][A-Za-z0-9]*(_v[0-9]+)?(_ptsz|_ptds)?)?" || :; }
	done
	# Its variables, which end with Handle, are not functions.
	[ ! -f "$at/triton/backends/nvidia/driver.c" ] || grep -oE "\bcu($groups)[A-Z][A-Za-z0-9]*\b" "$at/triton/backends/nvidia/driver.c"
done | grep -vE '^cuFile|Handle$' | sort -u
