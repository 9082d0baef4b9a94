#!/bin/sh
# Installs what building and testing dfshim needs and this machine lacks. Does nothing, and needs no
# network, when everything is there.
#
#   scripts/prereqs.sh [build] [check] [lint] [bench]      (default: build check)
#
# Packages come from apt. Where no CUDA toolkit or no NCCL is installed, the headers and libraries come
# from NVIDIA's pip wheels, into build/cuda: enough for everything that needs no GPU.
set -u
cd "$(dirname "$0")/.." || exit 1

CUDART_VERSION=13.0.96
CRT_VERSION=13.0.88
CCCL_VERSION=13.0.85
NCCL_VERSION=2.28.9

[ $# -gt 0 ] || set -- build check
# nvcc runs a host compiler for C++.
host_cxx=""
[ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] && ! command -v nvcc >/dev/null || host_cxx=g++
need="" optional=""
for part; do
	case $part in
	build) need="$need gcc make pkg-config libjansson-dev uthash-dev $host_cxx" optional="$optional libibverbs-dev" ;;
	check) need="$need check jq python3" optional="$optional spin openmpi-bin libopenmpi-dev" ;;
	lint) need="$need clang-format shellcheck mandoc" ;;
	bench) optional="$optional openmpi-bin libopenmpi-dev" ;;
	*) echo "prereqs.sh: unknown part '$part'" >&2 && exit 2 ;;
	esac
done

have() {
	case $1 in
	gcc | g++ | make | pkg-config | jq | spin | clang-format | shellcheck | mandoc | python3) command -v "$1" >/dev/null ;;
	openmpi-bin) command -v mpirun >/dev/null ;;
	libopenmpi-dev) command -v mpicc >/dev/null ;;
	check) [ -f /usr/include/check.h ] ;;
	libjansson-dev) [ -f /usr/include/jansson.h ] ;;
	uthash-dev) [ -f /usr/include/uthash.h ] ;;
	libibverbs-dev) [ -f /usr/include/infiniband/verbs.h ] ;;
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
	[ -z "$lacking" ] || as_root apt-get install -y -qq --no-install-recommends $lacking >/dev/null
	for p in $wanted; do
		as_root apt-get install -y -qq --no-install-recommends "$p" >/dev/null ||
			echo "prereqs: $p could not be installed; what uses it is left out"
	done
	# shellcheck disable=SC2086
	lacking=$(missing $need)
	if [ -n "$lacking" ]; then
		echo "prereqs: missing, and could not be installed: $lacking" >&2
		exit 1
	fi
fi

has_header() {
	for d in "${CUDA_HOME:-/usr/local/cuda}/include" /opt/cuda/include /usr/include build/cuda/include; do
		[ -f "$d/$1" ] && return 0
	done
	return 1
}

if ! has_header cuda_runtime_api.h || ! has_header nccl.h; then
	echo "prereqs: fetching the headers of CUDA and NCCL from their wheels into build/cuda"
	mkdir -p build/wheels build/cuda
	python3 -m pip --version >/dev/null 2>&1 ||
		as_root apt-get install -y -qq --no-install-recommends python3-pip >/dev/null
	if ! python3 -m pip download -q --no-deps --only-binary :all: -d build/wheels \
		"nvidia-cuda-runtime==$CUDART_VERSION" "nvidia-cuda-crt==$CRT_VERSION" "nvidia-cuda-cccl==$CCCL_VERSION" \
		"nvidia-nccl-cu13==$NCCL_VERSION"; then
		echo "prereqs: no CUDA and NCCL headers; clients and interception are left out" >&2
		exit 1
	fi
	rm -rf build/wheels/x
	for w in build/wheels/*.whl; do
		python3 -m zipfile -e "$w" build/wheels/x || exit 1
	done
	cp -r build/wheels/x/nvidia/cu13/. build/cuda/
	cp -r build/wheels/x/nvidia/nccl/. build/cuda/
	# cuda_fp16.h wants <nv/target>, which some versions of the wheel keep one folder deeper.
	[ -e build/cuda/include/nv ] || cp -r build/cuda/include/cccl/nv build/cuda/include/nv
	ln -sf libcudart.so.13 build/cuda/lib/libcudart.so
	ln -sf libnccl.so.2 build/cuda/lib/libnccl.so
	rm -rf build/wheels
fi
