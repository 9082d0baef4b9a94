#!/bin/sh
# Installs the packages that building and testing dfshim needs and this machine lacks. Does nothing
# and needs no network if no package is missing.
#
#   scripts/prereqs.sh [build] [check] [lint] [bench] [bare] [deb] [venv] [wheel] [arm64]
#
# The default is `build check`. Uses apt. If no CUDA toolkit or no NCCL is installed, it installs
# headers and libraries from NVIDIA's pip wheels into build/cuda, which suffice for everything that
# needs no GPU.
set -u
cd "$(dirname "$0")/.." || exit 1

CUDART_VERSION=13.0.96
CRT_VERSION=13.0.88
CCCL_VERSION=13.0.85
NCCL_VERSION=2.28.9

NVVM_VERSION=13.0.88
NVCC_VERSION=13.0.88
DISASM_VERSION=13.5.37 # of any version that is newer than nvcc
ZIG_VERSION=0.17.1

[ $# -gt 0 ] || set -- build check
# nvcc needs a host compiler for C++.
find_nvcc() {
	[ -x "$(scripts/cuda_home.sh)/bin/nvcc" ] || command -v nvcc >/dev/null
}
host_cxx="" want_nvcc="" want_zig="" want_root=""
! find_nvcc || host_cxx=g++
need="" optional=""
for part; do
	case $part in
	build)
		need="$need gcc make pkg-config libjansson-dev uthash-dev $host_cxx"
		optional="$optional libibverbs-dev"
		;;
	check)
		need="$need check jq python3 procps"
		optional="$optional iproute2 g++ spin tcc openmpi-bin libopenmpi-dev"
		optional="$optional python3-prometheus-client"
		want_nvcc=1
		;;
	lint) need="$need clang-format shellcheck mandoc" ;;
	bare) need="$need mmdebstrap" ;;
	venv) need="$need python3 python3-venv" ;;
	wheel) need="$need python3 python3-venv" want_zig=1 ;;
	deb) need="$need debhelper dpkg-dev lintian" ;;
	arm64)
		need="$need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
		want_root=aarch64
		;;
	bench) optional="$optional openmpi-bin libopenmpi-dev iproute2 iperf3 jq" ;;
	*) echo "prereqs.sh: unknown part '$part'" >&2 && exit 2 ;;
	esac
done

have() {
	case $1 in
	gcc | g++ | make | pkg-config | jq | spin | tcc | clang-format | shellcheck | mandoc | \
		python3)
		command -v "$1" >/dev/null
		;;
	openmpi-bin) command -v mpirun >/dev/null ;;
	libopenmpi-dev) command -v mpicc >/dev/null ;;
	check) [ -f /usr/include/check.h ] ;;
	libjansson-dev) [ -f /usr/include/jansson.h ] ;;
	uthash-dev) [ -f /usr/include/uthash.h ] ;;
	libibverbs-dev) [ -f /usr/include/infiniband/verbs.h ] ;;
	python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
	procps) command -v pgrep >/dev/null ;;
	*) dpkg -s "$1" >/dev/null 2>&1 ;;
	esac
}

missing() {
	for p; do have "$p" || printf '%s ' "$p"; done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -n "$@"
	else
		return 1
	fi
}

# shellcheck disable=SC2086 # lists of words
lacking=$(missing $need) wanted=$(missing $optional)
if [ -n "$lacking$wanted" ]; then
	echo "prereqs: installing $lacking$wanted"
	export DEBIAN_FRONTEND=noninteractive
	as_root apt-get update -qq >/dev/null 2>&1
	# shellcheck disable=SC2086
	[ -z "$lacking" ] ||
		as_root apt-get install -y -qq --no-install-recommends $lacking >/dev/null
	for p in $wanted; do
		as_root apt-get install -y -qq --no-install-recommends "$p" >/dev/null ||
			echo "prereqs: $p could not be installed; its users are left out"
	done
	# shellcheck disable=SC2086
	lacking=$(missing $need)
	if [ -n "$lacking" ]; then
		echo "prereqs: missing, and could not be installed: $lacking" >&2
		exit 1
	fi
fi

# wheels NAME==VERSION...: unpacks NVIDIA's wheels below build/cuda.
wheels() {
	mkdir -p build/cuda
	rm -rf build/wheels
	python3 -m pip --version >/dev/null 2>&1 ||
		as_root apt-get install -y -qq --no-install-recommends python3-pip >/dev/null
	python3 -m pip download -q --no-deps --only-binary :all: -d build/wheels "$@" || return 1
	for w in build/wheels/*.whl; do
		python3 -m zipfile -e "$w" build/wheels/x || return 1
	done
	for d in build/wheels/x/nvidia/*/; do
		cp -r "$d." build/cuda/ || return 1
	done
	rm -rf build/wheels
}

has_header() {
	[ -f "$(scripts/cuda_home.sh)/include/$1" ] || [ -f "/usr/include/$1" ] ||
		[ -f "build/cuda/include/$1" ]
}

if ! has_header cuda_runtime_api.h || ! has_header nccl.h; then
	echo "prereqs: fetching the headers of CUDA and NCCL from their wheels into build/cuda"
	if ! wheels "nvidia-cuda-runtime==$CUDART_VERSION" "nvidia-cuda-crt==$CRT_VERSION" \
		"nvidia-cuda-cccl==$CCCL_VERSION" "nvidia-nccl-cu13==$NCCL_VERSION"; then
		echo "prereqs: no CUDA and NCCL headers; clients and interception are left out" >&2
		exit 1
	fi
	# cuda_fp16.h includes <nv/target>, which some versions of the wheel have one folder deeper.
	[ -e build/cuda/include/nv ] || cp -r build/cuda/include/cccl/nv build/cuda/include/nv
	ln -sf libcudart.so.13 build/cuda/lib/libcudart.so
	ln -sf libnccl.so.2 build/cuda/lib/libnccl.so
fi

# A toolkit that was installed without nvcc stays as it is.
if [ -n "$want_nvcc" ] && ! find_nvcc && have g++ &&
	[ "$(scripts/cuda_home.sh)" = "$PWD/build/cuda" ]; then
	echo "prereqs: fetching nvcc from its wheels into build/cuda"
	if wheels "nvidia-cuda-nvcc==$NVCC_VERSION" "nvidia-nvvm==$NVVM_VERSION"; then
		# Python's zipfile drops modes. nvcc searches lib64.
		chmod +x build/cuda/bin/* build/cuda/nvvm/bin/*
		ln -sfn lib build/cuda/lib64
	else
		echo "prereqs: nvcc could not be fetched; GPU code is left out"
	fi
fi

# check_budget.sh needs a disassembler of the daemon's machine code.
disasm="$(scripts/cuda_home.sh)/bin/nvdisasm"
if [ -n "$want_nvcc" ] && find_nvcc && [ ! -x "$disasm" ] && [ ! -x build/cuda/bin/nvdisasm ]; then
	echo "prereqs: fetching nvdisasm and cuobjdump from their wheels into build/cuda"
	if wheels "nvidia-cuda-nvdisasm==$DISASM_VERSION" \
		"nvidia-cuda-cuobjdump==$DISASM_VERSION"; then
		chmod +x build/cuda/bin/nvdisasm build/cuda/bin/cuobjdump
	else
		echo "prereqs: nvdisasm could not be fetched; the daemon's machine code is not" \
			"looked at"
	fi
fi

# A build for another machine needs the libraries of that machine.
if [ -n "$want_root" ] && ! scripts/package/sysroot.sh "$want_root"; then
	echo "prereqs: the libraries of $want_root could not be fetched" >&2
	exit 1
fi

# The compiler for the wheel and the checker of its tag have an environment of their own.
if [ -n "$want_zig" ] && [ ! -x build/wheel/venv/bin/auditwheel ]; then
	echo "prereqs: fetching ziglang, setuptools and auditwheel into build/wheel/venv"
	python3 -m venv build/wheel/venv &&
		build/wheel/venv/bin/pip install -q --disable-pip-version-check \
			"ziglang==$ZIG_VERSION" 'setuptools>=75' auditwheel || {
		echo "prereqs: ziglang, setuptools and auditwheel could not be installed by pip;" \
			"no wheel can be made" >&2
		rm -rf build/wheel/venv
		exit 1
	}
fi
exit 0
