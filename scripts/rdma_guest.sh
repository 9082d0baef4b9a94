#!/bin/bash
# Runs as the only process of the machine of scripts/rdma.sh: creates the devices, runs the tests,
# ends the machine. Arguments: the sources, the build folder, the unpacked packages, and filters of
# tests/run.sh or a benchmark. Lines that begin with "rdma> " are shown outside.
SRC=$1 B=$2 root=$3
shift 3
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$root/usr/sbin:$root/usr/bin:$root/sbin:$root/bin \
	HOME=/root
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
# libibverbs looks for its drivers' names in /etc only.
[ -d /etc/libibverbs.d ] || cp -r "$root/etc/libibverbs.d" /etc/
[ -d /usr/lib/x86_64-linux-gnu/libibverbs ] ||
	cp -r "$root/usr/lib/x86_64-linux-gnu/libibverbs" /usr/lib/x86_64-linux-gnu/
ln -s /proc/self/fd /dev/fd
exec </dev/null
{
	echo "begun: Linux $(uname -r)"
	ulimit -l unlimited
	ip link set lo up
	ip link add r0 type veth peer name r1
	for i in 0 1; do
		ip addr add 10.78.0.$((i + 1))/24 dev r$i
		ip link set r$i up
	done
	# Both ends are on this machine, but packets between them must use the wire.
	for dev in all r0 r1; do
		for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
			echo "${setting#*=}" >/proc/sys/net/ipv4/conf/$dev/"${setting%=*}"
		done
	done
	for i in 0 1; do
		rdma link add rxe$i type rxe netdev r$i || echo "rxe$i cannot be made"
	done
	cd "$SRC" || echo "no $SRC"
	export B SEED=${SEED:-1} RDMA=1
	case ${1-} in
	*/b_*.sh) SRC=$SRC T=$(mktemp -d) "$@" ;;
	*) tests/run.sh --jobs 1 --timeout 240 "$@" ;;
	esac
	echo "status $?"
} 2>&1 | sed -u 's/^/rdma> /' >/dev/console
echo o >/proc/sysrq-trigger
sleep 60
