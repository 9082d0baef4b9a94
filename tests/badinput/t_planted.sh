#!/bin/bash
# Description: files and links that another user has put into /tmp, or into a folder of traces or logs, are neither followed nor removed. Another user cannot write to files that a job makes there, whatever the umask.
set -u
. "$SRC/tests/lib/clients.sh"
python3 -c 'import os; os.getuid() != 65534 or exit(1); os.setresuid(65534, 65534, 65534)' 2>/dev/null || skip "no process of another user can be made here"
plants=()
cleanup() { [ ${#plants[@]} = 0 ] || rm -rf -- "${plants[@]}"; }
trap cleanup EXIT
mkdir "$T/victim"
echo mine >"$T/victim/file"
# as_other WORDS: runs Python code as another user. That process may not read Python's files.
as_other() {
	python3 -c 'import os, sys, stat
os.umask(0)
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
exec(sys.argv[1])' "$@"
}

# Names as `dfshim run` gives its folders. The next `dfshim run` removes such folders if they belong
# to its user and no process uses them.
plants=("/tmp/dfshim-run-p$$"{a,b,c,d})
as_other "
a, b, c, d = sys.argv[2:6]
os.mkdir(a); print('theirs', file=open(a + '/file', 'w'))
os.symlink(sys.argv[6], b)
os.mkfifo(c)
open(d, 'w').write('theirs')
" "${plants[@]}" "$T/victim" || fail "nothing could be planted"
umask 000
timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -n 2 -- bash -c '
	[ "$RANK" != 0 ] || ls -ld /tmp/dfshim-run-?????? >"$0/folders"; exec "$@"' "$T" "$C/disorder" --colls 2 --iters 2 >"$T/out" 2>&1 ||
	fail "status $?: $(cat "$T/out")"
for p in "${plants[@]}"; do [ -e "$p" ] || fail "$p was removed"; done
[ "$(cat "${plants[0]}/file" "$T/victim/file")" = "theirs
mine" ] || fail "a planted folder or what a link leads to was changed"
while read -r mode _ user _ path; do
	[ "$user" != "$(id -un)" ] || [ "${mode:1:9}" = rwx------ ] || fail "another user may enter $path: $mode"
done < <(grep -o '^d.*' "$T/folders" 2>/dev/null)

# A link with the name that the next process's trace will have.
mkdir -m 777 "$T/traces"
# shellcheck disable=SC2016 # expanded inside
NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$T/log DFSHIM_STATS=$T/stats timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --trace "$T/traces" -- bash -c '
	python3 -c "import os, sys
os.setresuid(65534, 65534, 65534)
for name in (\"%s-%s.dft\", \"rank0-%s-%s.dft\"):
    os.symlink(sys.argv[1], sys.argv[2] + \"/\" + name % (os.uname().nodename, sys.argv[3]))" "$0/victim/file" "$0/traces" $$ || exit 99
	exec "$@"' "$T" "$C/disorder" --colls 2 --iters 2 >"$T/out" 2>&1 || fail "status $?: $(cat "$T/out")"
[ "$(cat "$T/victim/file")" = mine ] || fail "the trace went where the link leads"
[ -n "$(find "$T/traces" -type f -name '*.dft')" ] || fail "no trace was written: $(ls -l "$T/traces")"
found=$(find "$T/traces" "$T/log" "$T/stats" -type f -perm /022)
[ -z "$found" ] || fail "others may write to $found"
[ -f "$T/log" ] && [ -f "$T/stats" ] || fail "no log or no statistics: $(ls "$T")"

# Another user's links in place of the log and the statistics are not followed; links of this user
# are. The umask decides whether others can read a file.
mkdir -m 777 "$T/common"
as_other 'for name in sys.argv[3:]: os.symlink(sys.argv[2], name)' "$T/victim/file" "$T/common/"{log,stats} || fail "nothing could be planted"
ln -s "$T/led-to" "$T/common/own"
umask 077
# write_to LOG STATS: runs a job that writes to these files.
write_to() {
	NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$1 DFSHIM_STATS=$2 timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --trace "$T/private" -- \
		"$C/disorder" --colls 2 --iters 2 >"$T/out" 2>&1 || fail "status $?: $(cat "$T/out")"
}
write_to "$T/common/log" "$T/common/stats"
[ "$(cat "$T/victim/file")" = mine ] || fail "the log or the statistics went where another user's link leads: $(cat "$T/victim/file")"
grep -q "DFSHIM_STATS=$T/common/stats: Permission denied" "$T/out" || fail "statistics that are not written are not reported: $(cat "$T/out")"
write_to /dev/stdout "$T/common/own"
grep -q 'NCCL INFO' "$T/out" || fail "/dev/stdout is not followed: $(cat "$T/out")"
grep -q '"operations"' "$T/led-to" || fail "this user's own link is not followed"
found=$(find "$T/led-to" "$T/private" -type f -perm /077)
[ -z "$found" ] || fail "others may read $found under umask 077"
exit 0
