#!/bin/bash
# Runs the tests that need an RDMA device in a virtual machine with Soft-RoCE, because this
# machine's kernel has none and a container may not load modules. `make check-rdma` runs it.
#
#   scripts/rdma.sh [FILTER...]         tests of tests/run.sh to run there (default: rdma/)
#   scripts/rdma.sh tests/bench/b_X.sh  a benchmark
#
# The machine has Debian's kernel, this file system (writes stay in memory), two Soft-RoCE devices
# on the ends of a veth pair, and no other network. Packages that are not installed here are
# unpacked into build/rdma. It uses KVM if possible, else emulation, which is about twenty times
# slower. MINUTES: time limit (8). CPUS: processors of the machine (1). The last line is "N passed,
# N failed, N skipped". The status is 0, 1, or 77 with the reason if it cannot run here.
set -u
cd "$(dirname "$0")/.." || exit 1
SRC=$PWD
B=${B:-build}
case $B in /*) ;; *) B=$SRC/$B ;; esac
dir=$SRC/build/rdma
[ $# -gt 0 ] || set -- rdma/

skip() {
	echo "skipped: $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
}

# -- parts of the machine -----------------------------------------------------------------------
[ "$(uname -m)" = x86_64 ] || skip "the machine is made for x86_64 only"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this machine is no Debian"
command -v python3 >/dev/null || skip "no python3, which packs the first file system"
mkdir -p "$dir/deb/partial" "$dir/root"
kernel=$(apt-cache depends linux-image-amd64 2>/dev/null |
	sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
[ -n "$kernel" ] || skip "apt knows no linux-image-amd64 (apt-get update?)"
version=${kernel#linux-image-}
version=${version%-unsigned}
packages=(qemu-system-x86 busybox-static rdma-core ibverbs-providers libibverbs1 iproute2 perftest)
if [ ! -e "$dir/root/boot/vmlinuz-$version" ] ||
	[ "$(cat "$dir/complete" 2>/dev/null)" != "${packages[*]}" ]; then
	echo "rdma: fetching $kernel, QEMU and the RDMA libraries into build/rdma"
	rm -f "$dir/complete"
	(cd "$dir/deb" && apt-get download -qq "$kernel") >"$dir/log" 2>&1 &&
		apt-get install -qq -y --download-only --no-install-recommends -o \
		Dir::Cache::archives="$dir/deb" \
			-o Debug::NoLocking=1 "${packages[@]}" >>"$dir/log" 2>&1 ||
		skip "the packages could not be fetched: $(tail -1 "$dir/log")"
	for deb in "$dir"/deb/*.deb; do
		dpkg-deb -x "$deb" "$dir/root" || skip "$deb cannot be unpacked"
	done
	echo "${packages[*]}" >"$dir/complete"
fi

# find_one FILE: finds a program of a package, unpacked here or installed
find_one() {
	local f
	for f in "$dir/root/$1" "/$1"; do
		[ -x "$f" ] && echo "$f" && return
	done
}
qemu=$(find_one usr/bin/qemu-system-x86_64)
[ -n "$qemu" ] || skip "no qemu-system-x86_64 in Debian's package"
busybox=$(find_one bin/busybox)
[ -n "$busybox" ] || busybox=$(find_one usr/bin/busybox)
[ -n "$busybox" ] || skip "no busybox in Debian's package"

# -- its initial file system, which mounts this one ----------------------------------------------
cat >"$dir/init" <<INIT
#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
while read -r module; do
	busybox insmod "/modules/\$module" || echo "rdma: \$module cannot be loaded"
done </modules/order
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 here /here ||
	echo "rdma: no 9p"
busybox mount -t tmpfs -o size=75% memory /memory
busybox mkdir /memory/new /memory/work
busybox mount -t overlay -o lowerdir=/here,upperdir=/memory/new,workdir=/memory/work overlay /all
for d in proc sys dev; do busybox mount --move /\$d /all/\$d; done
busybox mount -t tmpfs run /all/run
busybox mount -t tmpfs tmp /all/tmp
busybox mkdir -p /all/dev/shm /all/dev/pts
busybox mount -t tmpfs shm /all/dev/shm
export PAIRS="${PAIRS:-3}" SIZES="${SIZES:-65536 1048576}"
exec busybox chroot /all /bin/bash "$SRC/scripts/rdma_guest.sh" "$SRC" "$B" "$dir/root" $*
INIT
python3 scripts/rdma_initrd.py "$dir/root/lib/modules/$version" "$busybox" "$dir/init" \
	"$dir/initrd.gz" \
	virtio_pci 9pnet_virtio 9p overlay crc32_generic rdma_rxe ib_uverbs veth sch_netem ||
	skip "the first file system cannot be packed"

# -- run -----------------------------------------------------------------------------------------
libs=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/lib/x86_64-linux-gnu
# boot ACCEL SECONDS WORDS...: prints the machine's output; WORDS are kernel parameters.
boot() {
	LD_LIBRARY_PATH=$libs timeout -k 5 "$2" "$qemu" -L "$dir/root/usr/share/qemu" \
		-L "$dir/root/usr/share/seabios" -L "$dir/root/usr/lib/ipxe/qemu" -accel "$1" -cpu \
		max -m 1536 -smp "${CPUS:-1}" \
		-nodefaults -display none -serial stdio -no-reboot -net none -kernel \
		"$dir/root/boot/vmlinuz-$version" \
		-initrd "$dir/initrd.gz" -append \
		"console=ttyS0 quiet panic=-1 mitigations=off ${*:3}" \
		-fsdev "local,id=here,path=/,security_model=none,readonly=on,multidevs=remap" \
		-device virtio-9p-pci,fsdev=here,mount_tag=here </dev/null 2>&1 | tr -d '\r'
}
# /dev/kvm may exist and not work, for example in a virtual machine. The kernel then does not even
# report a missing /init.
accel=tcg
if [ -w /dev/kvm ]; then
	if boot kvm 30 rdinit=/none | grep -q 'Kernel panic'; then
		accel=kvm
	else
		echo "rdma: /dev/kvm is there, but a kernel does not start with it"
	fi
fi
echo "rdma: $kernel, $accel"
boot $accel $((${MINUTES:-8} * 60)) | tee "$dir/console" | sed -n 's/^rdma> //p'
grep -q '^rdma> begun' "$dir/console" || skip "the machine did not start: $(tail -1 "$dir/console")"
if ! grep -q '^rdma> status' "$dir/console"; then
	tail -5 "$dir/console"
	echo "the machine did not end within ${MINUTES:-8} minutes, or died; build/rdma/console" \
		"has what it said"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
rc=$(sed -n 's/^rdma> status //p' "$dir/console")
sed -nE 's/^rdma> ([0-9]+ passed, [0-9]+ failed, [0-9]+ skipped)$/\1/p' "$dir/console" | tail -1
exit "$rc"
