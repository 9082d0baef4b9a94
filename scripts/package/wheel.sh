#!/bin/bash
# Builds a Python wheel of libraries, CLI, manual pages and Python package: build/dist/dfshim-*.whl.
# Called by `make wheel` with the names of the libraries and the CLI. ARCH: the machine that it is
# for (this one).
#
# Everything is compiled for the C library of WHEEL_GLIBC (2.28: RHEL 8, Debian 10, Ubuntu 18.10 and
# newer), with the zig compiler's headers and symbols of that version, so that the wheel's tag is
# true on any build machine; auditwheel checks it. jansson is linked into the CLI.
set -eu
cd "$(dirname "$0")/../.."
WHEEL_GLIBC=${WHEEL_GLIBC:-2.28}
[[ $WHEEL_GLIBC =~ ^2\.[0-9]+$ ]] || {
	echo "make wheel: WHEEL_GLIBC=$WHEEL_GLIBC: a version of glibc is needed, 2.28 for" \
		"example" >&2
	exit 2
}
machine=${ARCH:-$(uname -m)}
work=build/wheel${ARCH:+/$ARCH}
venv=build/wheel/venv
dist=build/dist

# zig sees only the headers and libraries that are named here. It defines NDEBUG, unlike every other
# build.
jansson=$(gcc -print-file-name=libjansson.a) strip=strip needs=build
[ -z "${ARCH-}" ] || jansson=$PWD/build/root/$ARCH/usr/lib/$ARCH-linux-gnu/libjansson.a \
	strip=$ARCH-linux-gnu-strip needs=arm64
if [ ! -f "$jansson" ] || ! command -v "$strip" >/dev/null; then
	echo "make wheel: libjansson.a or $strip is missing: scripts/prereqs.sh $needs" >&2
	exit 1
fi
mkdir -p "$work/include"
find /usr/include \( -name uthash.h -o -name 'jansson*.h' \) -exec cp {} "$work/include/" \;
[ ! -d /usr/include/infiniband ] || cp -r /usr/include/infiniband "$work/include/"
cat >"$work/cc" <<CC
#!/bin/sh
exec "$PWD/$venv/bin/python" -m ziglang cc -target $machine-linux-gnu.$WHEEL_GLIBC \\
	-fno-sanitize=all -UNDEBUG -isystem "$PWD/$work/include" "\$@"
CC
chmod +x "$work/cc"

# If a step fails, no wheel of an earlier build may be left: a user would take it for a new one.
rm -f "$dist"/dfshim-*_"$machine".whl
trap 'echo "make wheel: no wheel was made: line $LINENO of scripts/package/wheel.sh failed" >&2' ERR

products=("$@")
# GPU code does not depend on the host compiler.
if make --no-print-directory ARCH= -n build/kernels/daemon.fatbin >/dev/null 2>&1; then
	make --no-print-directory ARCH= build/kernels/daemon.fatbin
	install -D -p build/kernels/daemon.fatbin "$work/build/kernels/daemon.fatbin"
fi
env -u MAKEFLAGS -u MAKEOVERRIDES make -j"$(nproc)" --no-print-directory B="$work/build" \
	CC="$PWD/$work/cc" UNWINDER=-lunwind JANSSON="$jansson" \
	"${products[@]/#/$work/build/}"

version=$(sed -n 's/.*DF_VERSION "\(.*\)"/\1/p' runtime/base/version.h)
stage=$work/stage
rm -rf "$stage"
mkdir -p "$stage/dfshim/bin" "$stage/dfshim/lib/dfhost" "$stage/share/man/man1" \
	"$stage/share/man/man7" "$dist"
(cd interpose/python && find dfshim -name '*.py' -exec install -D -m 644 {} "../../$stage/{}" \;)
for f in "${products[@]}"; do
	case $f in *.so | *.so.*) to=lib ;; *) to=bin ;; esac
	"$strip" -o "$stage/dfshim/$to/$f" "$work/build/$f"
done
cp docs/man/*.1 "$stage/share/man/man1/"
cp docs/man/*.7 "$stage/share/man/man7/"
cp README.md LICENSE scripts/package/setup.py "$stage/"

tag=manylinux_${WHEEL_GLIBC/./_}_$machine
(cd "$stage" && WHEEL_VERSION=$version WHEEL_PLATFORM=$tag "$OLDPWD/$venv/bin/python" setup.py -q \
	bdist_wheel -d "$OLDPWD/$dist" >../setup.log 2>&1) || {
	tail -20 "$work/setup.log" >&2
	exit 1
}
wheel=$(ls "$dist"/dfshim-*_"$machine".whl)
"$venv/bin/auditwheel" show "$wheel" >"$work/audit" || {
	cat "$work/audit" >&2
	exit 1
}
tr '\n' ' ' <"$work/audit" | grep -q \
	-e "constrains the platform tag to \"manylinux_${WHEEL_GLIBC/./_}_$machine\"" \
	-e "consistent with the following platform tag: *\"manylinux_2_[0-9]*_$machine\"" || {
	cat "$work/audit" >&2
	echo "make wheel: the wheel is not what its tag $tag says" >&2
	exit 1
}
echo "$wheel"
