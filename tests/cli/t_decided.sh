#!/bin/bash
# Description: the report of a Python program has the branches that make the ranks part, with the values that they test. It shows no other text of a path in a trace, and only of older source files of this user.
set -u
. "$SRC/tests/lib/clients.sh"
[ -e "$B/libdfnccl.so" ] || skip "no libdfnccl.so"
[ -z "${SAN_RUNTIME-}" ] || skip "the interpreter does not run under a sanitizer"
[ -z "${QEMU_LD_PREFIX-}" ] || skip "this machine's interpreter cannot load libraries of another kind of machine"
py=${PYTHON:-python3}
"$py" -c 'import ctypes, sys; sys.exit(not (3, 9) <= sys.version_info < (3, 15) or sys.implementation.name != "cpython")' || skip "no CPython 3.9 to 3.14"
unset DFSHIM_TRACE
mkdir "$T/src"
job=$T/src/parts.py
install -m 644 "$SRC/tests/trace/parts.py" "$job"
touch -d yesterday "$job"
at() { grep -n "# $1\$" "$job" | cut -d: -f1; }
decided() { "$B/dfshim" check "$T/$1/trace" | sed -n 's/^Decided by: //p'; }

# hang CASE STATUS TEXT...: runs the case, which must end with STATUS. The report, that of the tool
# that started the job, the page and the JSON must have all TEXTs.
hang() {
	local name=$1 rc
	mkdir -p "$T/$name"
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host=2 -n 2 --rules nccl --timeout $((2 * SLOW)) --trace "$T/$name/trace" -- \
		"$py" "$job" "$T/$name" "$name" >"$T/$name/live" 2>&1
	rc=$?
	[ $rc = "$2" ] || fail "$name: status $rc: $(cat "$T/$name/live")"
	decided "$name" >"$T/$name/decided"
	"$B/dfshim" check --json "$T/$name/trace" | jq -r .first_divergence.decided_by >"$T/$name/json"
	"$B/dfshim" report -o "$T/$name/page" "$T/$name/trace" >/dev/null
	grep '<dt>Decided by' "$T/$name/page" | sed 's/&quot;/"/g; s/&gt;/>/g' >"$T/$name/html"
	grep 'dfshim run: which call' "$T/$name/live" >"$T/$name/run"
	for text in "${@:3}"; do
		for f in decided json html run; do
			grep -qF -- "$text" "$T/$name/$f" || fail "$name: $f lacks $text: $(cat "$T/$name/$f" "$T/$name/live")"
		done
	done
}
l=$(at leaves)
hang leaves 21 "parts.py:$(at loop) \"for step in range(4):\"" " $l-$((l + 1)) \"if step == 2 + RANK: break\""
hang returns 21 "parts.py:$(at returns) \"if bad: return all_reduce(a, 32)\"" " $(at value) \"bad, note = (RANK == 1), text\""
! grep -qE " $(at unused) |not a statement" "$T/returns/decided" || fail "a branch that decides nothing: $(cat "$T/returns/decided")"
hang catches 21 ":$(at handler) \"except ValueError:\""
hang drops 20 "-$(at drops) \"if ( ... continue\""

# The same trace with other files at that path: nothing of them is shown.
none() {
	[ -z "$(decided leaves)" ] || fail "$1: $(decided leaves)"
}
original=$T/src/original.py
mv "$job" "$original"
none "no file"
cp "$original" "$job"
none "a file that is newer than the job"
ln -sf "$original" "$job"
none "a link"
rm "$job"
mkfifo "$job"
touch -d yesterday "$job"
none "a pipe"
rm "$job"
sed 's/^def leaves/def left/' "$original" >"$job"
touch -d yesterday "$job"
none "a file in which another function is there"
head -c 2000000 /dev/zero | tr '\0' '\n' | cat "$original" - >"$job"
touch -d yesterday "$job"
none "a file of 2 MB"
head -c 100000 /dev/urandom >"$job"
touch -d yesterday "$job"
none "a file of random bytes"
if [ "$(id -u)" = 0 ]; then
	cp -p "$original" "$job"
	chown 12345 "$job"
	chmod -R go+rX "$T"
	if setpriv --reuid 12346 --clear-groups test -r "$job"; then
		[ -z "$(setpriv --reuid 12346 --clear-groups "$B/dfshim" check "$T/leaves/trace" | grep '^Decided by')" ] || fail "a file of another user"
	fi
	chown 0 "$job"
fi
# Control characters are not printed.
sed "s/^        if step == 2 + RANK:.*/        if step == '\x1b[31m\x07': # leaves/" "$original" >"$job"
touch -d yesterday "$job"
decided leaves | grep -qF "if step == '?[31m?':" || fail "control characters: $(decided leaves | od -c | head)"
exit 0
