#!/bin/bash
# Description: the container file, executed line by line in a copy of this machine's root file system, because no podman or docker is used: a job in the image.
set -u
. "$SRC/tests/lib/clients.sh"
wheel=$(ls "$SRC"/build/dist/dfshim-*_"$(uname -m)".whl 2>/dev/null) || skip "no wheel in build/dist: make wheel"
[ "$wheel" -nt "$B/libdfshim.so" ] || skip "the wheel is older than the libraries: make wheel"
file=$SRC/scripts/package/Containerfile
unset LD_PRELOAD
env -i PATH=/usr/local/bin:/usr/bin:/bin python3 -m pip --version >/dev/null 2>&1 || skip "no pip here, which stands for the image's"
# The file may only contain instructions that this test can execute itself.
! grep -vE '^(#|ARG |FROM |COPY |RUN |$)' "$file" || fail "the container file has an instruction that this test does not know"
for engine in podman docker; do
	timeout 20 $engine info >/dev/null 2>&1 && echo "$engine runs here: its own build is not tried, the base image would have to be fetched"
done
unshare -m true 2>/dev/null || skip "no mounts of one's own here (unshare)"
mkdir -p "$T/tmpfs"
# The writable layer must not be on the file system below it.
unshare -m bash -s "$file" "$SRC/build/dist" "$T/tmpfs" "$C/disorder" <<'IMAGE' >"$T/out" 2>&1
set -eu
file=$1 context=$2 layer=$3 app=$4
mount -t tmpfs none "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
root=$layer/root
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" none "$root" 2>/dev/null || exit 77
for d in proc sys dev; do mount --rbind "/$d" "$root/$d"; done
mount -t tmpfs none "$root/tmp"
# The size that docker and Kubernetes give a container.
mount -t tmpfs -o size=64m none "$root/dev/shm"
# The base image is this machine. Its Python is managed by its packages, so pip needs a permission.
inside() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore sh -c "$1"; }
while read -r word rest; do
	case $word in
	COPY)
		read -r from to <<<"$rest"
		# shellcheck disable=SC2086 # a pattern
		(cd "$context" && cp $from "$root$to")
		;;
	RUN) inside "$rest" ;;
	esac
done <"$file"
cp "$app" "$root/tmp/app"
inside 'cd /tmp && dfshim --version && test -s "$(dfshim lib)" && dfshim run --host -n 2 -- ./app --colls 3 --iters 3'
IMAGE
rc=$?
[ $rc != 77 ] || skip "no overlay mounts here"
[ $rc = 0 ] && grep -q '^disorder: OK: 2 ranks in 2 processes' "$T/out" || fail "status $rc: $(tail -20 "$T/out")"
! command -v dfshim >/dev/null || [ -z "$(find /usr/local/bin -newer "$wheel" -name dfshim)" ] || fail "it was installed outside of the image"
exit 0
