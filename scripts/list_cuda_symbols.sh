#!/bin/bash
# Lists the functions of the CUDA runtime and driver that installed Python packages use: imports of
# their libraries, and names of driver functions that are looked up at run time, which are strings
# in the libraries or in Triton's C source. CUPTI and cuFile are left out: they are NVIDIA's own and
# name every function of the driver.
#
#   scripts/list_cuda_symbols.sh SITE-PACKAGES... >tests/hostcuda/asked.txt
#
# The first lines name the packages. tests/hostcuda/t_asked.sh compares the list with libdfhost.so.
set -eu -o pipefail
export LC_ALL=C
[ $# -gt 0 ] || { sed -n '2,/^set /{/^set /d; s/^# \?//p}' "$0" >&2; exit 2; }

echo "# Functions that packages ask of the CUDA runtime and driver; made by" \
	"scripts/list_cuda_symbols.sh from:"
for at; do
	for info in "$at"/{torch,triton,cupy_cuda*,nccl4py}-*.dist-info; do
		[ ! -d "$info" ] || sed -nE '/^$/q; s/^(Name|Version): (.*)/\2/p' "$info/METADATA" |
			sort -r | paste -sd' ' | sed 's/^/#   /'
	done
done
groups='Init|Array|Ctx|Device|Driver|Event|Func|Get|Graph|Ipc|Kernel|Launch|Library|Link|Mem|Module'
groups="$groups|Multicast|Occupancy|Pointer|Stream|Tensor"
for at; do
	for package in torch triton cupy nccl; do
		[ ! -d "$at/$package" ] || find "$at/$package" -type f -regex '.*\.so[.0-9]*' ! \
			-name 'libcupti*'
	done | while read -r library; do
		nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' |
			{ grep -E '^(_*cuda|cu)[A-Z]' || :; }
		strings -n 6 "$library" | { grep -xE \
			"cu($groups)([A-Z][A-Za-z0-9]*(_v[0-9]+)?(_ptsz|_ptds)?)?" || :; }
	done
	# Variables, which end with Handle, are not functions.
	[ ! -f "$at/triton/backends/nvidia/driver.c" ] ||
		grep -oE "\bcu($groups)[A-Z][A-Za-z0-9]*\b" "$at/triton/backends/nvidia/driver.c"
done | grep -vE '^cuFile|Handle$' | sort -u
