#!/bin/sh
# Prints a C header that describes the build, for `dfshim --version`. Called by the Makefile.
#
#   scripts/gen_build.sh CUDA_INCLUDE NCCL_INCLUDE GPU_CODE PRODUCT...
#
# The commit is git's, or BUILD_COMMIT if a package is built from files without git.
set -u
cuda=$1/cuda_runtime_api.h nccl=$2/nccl.h gpu=$3
shift 3
commit=${BUILD_COMMIT-$(git describe --always --dirty=+ --abbrev=12 --exclude='*' 2>/dev/null)}
# define NAME FILE: prints the number that a header defines for it.
define() { sed -n "s/^#define *$1  *\([0-9]*\).*/\1/p" "$2" 2>/dev/null | head -1; }
parts=
for p; do
	case $p in *.so) parts="$parts${parts:+ }${p##*/}" ;; esac
done
version=$(define CUDART_VERSION "$cuda")
[ -z "$version" ] || parts="$parts, CUDA $((version / 1000)).$((version % 1000 / 10))"
version=$(define NCCL_MAJOR "$nccl").$(define NCCL_MINOR "$nccl").$(define NCCL_PATCH "$nccl")
[ "$version" = .. ] || parts="$parts, NCCL $version"
cat <<HEADER
/* Made by scripts/gen_build.sh. */
#define DF_BUILD_COMMIT "${commit:-unknown}"
#define DF_BUILD_PARTS	"$parts, ${gpu:+GPU code for }${gpu:-no GPU code}"
HEADER
