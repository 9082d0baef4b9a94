#!/bin/bash
# Runs a command in namespaces with a /dev/shm and processes of their own, and checks that it leaves
# nothing behind.
#
#   tests/lib/apart.sh [--interrupt LINE FILE] COMMAND...
#
# Exits with the command's status; 96 if /dev/shm cannot be mounted; 97 if a file is left in
# /dev/shm; 98 if a process is left. --interrupt sends SIGINT as soon as LINE is in FILE.
# SHM_OPTIONS: options of the mount. Where namespaces are not allowed, the command runs without
# them, and the first line says that nothing is checked.
set -u
if [ "${1-}" != --inside ]; then
	own=(unshare --mount --pid --fork --kill-child --mount-proc)
	"${own[@]}" true 2>/dev/null && exec "${own[@]}" "$0" --inside "$@"
	echo "no rights for namespaces: what is left in /dev/shm, and processes, are not looked for"
	set -- --inside "$@"
fi
shift
[ $$ != 1 ] || mount -t tmpfs ${SHM_OPTIONS:+-o "$SHM_OPTIONS"} none /dev/shm || exit 96
line=""
[ "$1" != --interrupt ] || { line=$2 file=$3 && shift 3; }
# Without `env` a background command of a script ignores SIGINT.
env --default-signal=INT setsid "$@" &
job=$!
if [ -n "$line" ]; then
	until grep -q "$line" "$file" || ! kill -0 $job; do sleep 0.1; done
	kill -INT -- -$job
fi
wait $job
rc=$?
[ $$ = 1 ] || exit $rc
[ -z "$(ls -A /dev/shm)" ] || { ls -A /dev/shm && exit 97; }
for ((i = 0; i < 100; i++)); do
	set -- /proc/[1-9]*
	[ $# -gt 1 ] || exit $rc
	sleep 0.1
done
ps ax
exit 98
