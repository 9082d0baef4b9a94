#!/bin/bash
# Description: every subcommand exits with status 2 on wrong usage, and with status 1, file and reason on unreadable input. Results are available as JSON.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
D=$B/dfshim
cd "$T" || exit 1
unset DFSHIM_TRACE
printf 'ranks 2\ncomm A 0 1\n0: AR A s; ssync s; AR A s\n1: AR A s; ssync s; AR A s\n' >job.txt
mkdir traces
DFSHIM_TRACE=$T/traces DFSHIM_BACKEND=host LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout 60 "$S" job.txt >log 2>&1 ||
	fail "the job: status $?: $(cat log)"
echo nonsense >bad.dft
echo '{"nodes": ' >bad.json
seen=""

# row SUBCOMMAND : WRONG-USAGE : UNREADABLE : FILE-IT-NAMES : GOOD-WITH-JSON. Each is a list of
# arguments; `-` means none.
row() {
	local sub wrong unread file good rc
	IFS=: read -r sub wrong unread file good <<<"$1"
	seen="$seen $sub"
	read -ra wrong <<<"$wrong"
	timeout 60 "$D" "$sub" "${wrong[@]}" >o 2>e
	rc=$?
	[ $rc = 2 ] && [ -s e ] && [ ! -s o ] || fail "$sub ${wrong[*]}: status $rc, not 2 with a reason: $(cat e o | head -3)"
	if [ "$unread" != - ]; then
		read -ra unread <<<"$unread"
		timeout 60 "$D" "$sub" "${unread[@]}" >o 2>e
		rc=$?
		[ $rc = 1 ] && grep -Eq "^dfshim $sub: .*$file.*: ." e || fail "$sub ${unread[*]}: status $rc, wanted 1 with $file and reason: $(head -2 e)"
	fi
	if [ "$good" != - ]; then
		read -ra good <<<"$good"
		timeout 60 "$D" "$sub" "${good[@]}" >o 2>e
		rc=$?
		[ $rc = 0 ] || fail "$sub ${good[*]}: status $rc: $(head -2 e)"
		jq -se 'length > 0' o >/dev/null || fail "$sub ${good[*]}: no JSON: $(head -2 o)"
	fi
}
for f in nowhere bad.dft; do
	for sub in ls show check graph timeline; do row "$sub:--nonsense:$f:$f:--json traces"; done
	row "predict:--witness:$f:$f:--json traces"
	row "report:-o:-o r.html $f:$f:--json -o r.html traces"
	row "replay:--rules magic traces:--host $f:$f:--json --host traces"
	row "export-fr:--nonsense:$f:$f:-"
	row "import-fr:--nonsense:$f:$f:-"
done
row "run:--:-:-:-"
row "ci:--limit x -- true:-:-:-"
row "env:extra:-:-:--json"
row "lib:--name x:-:-:-"
row "net:--streams 0:-:-:--json"
row "doctor:extra:-:-:-"
for f in nowhere bad.json; do row "sim:--rounds x $f:$f:$f:-"; done
for f in nowhere bad.json; do row "plan:--iterations x $f:$f:$f:--json $SRC/docs/plan/gpt2.json"; done
row "algo:verify:verify nowhere:nowhere:ls --json"
for s in $("$D" --list); do
	[[ " $seen " == *" $s "* ]] || fail "$s is not in this table"
done
# Dumps of PyTorch's Flight Recorder are for `check`. The others say so.
mkdir dumps && "$D" export-fr -o dumps/fr_ traces >o 2>&1 || fail "export-fr: $(cat o)"
for sub in ls show graph timeline "report -o r.html" predict "replay --host" export-fr; do
	for what in dumps dumps/*0; do
		# shellcheck disable=SC2086 # words
		timeout 60 "$D" $sub "$what" >o 2>e
		rc=$?
		[ $rc = 1 ] && [ "$(wc -l <e)" = 1 ] && grep -q "^dfshim ${sub%% *}: $what: Flight Recorder dumps .*dfshim check" e ||
			fail "$sub $what: status $rc, not 1 with one line about dumps: $(head -3 e)"
	done
done
# refused MESSAGE ARGS...: an option that is wrong is named by our own message, without escapes.
refused() {
	local text=$1 rc
	shift
	timeout 60 "$D" "$@" >o 2>e
	rc=$?
	[ $rc = 2 ] && [ "$(head -1 e)" = "dfshim $text" ] || fail "$*: status $rc: $(head -1 e | cat -v), not: $text"
}
esc=$'\033[31m'
for sub in $("$D" --list); do
	refused "$sub: unknown option '--no?[31m'" "$sub" "--no$esc"
	refused "$sub: unknown option '-?'" "$sub" "-$esc"
done
refused "run: unknown option '--no?[31m'" run -n 2 "--no$esc" true
refused "run: unknown option '-?'" run -n 2 "-$esc" true
refused "ci: unknown option '--no'" ci --limit 9 "--no=$esc" true
refused "check: unknown option '-Z'" check --json traces -Zx
refused "check: option '--json' takes no argument" check "--json=$esc"
refused "graph: option '--output' requires an argument" graph traces --out
refused "graph: option '-o' requires an argument" graph --json -o x -o
refused "algo: option '--o' is ambiguous: --output --op" algo --o
exit 0
