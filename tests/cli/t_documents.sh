#!/bin/bash
# Description: every command of dfshim in the documents runs as it stands there, on stand-ins for the reader's program.
# Limit: 300 s
#
# Lines of code blocks that call dfshim, in README.md and docs. ./app, python and torchrun are a small job, DIR is a folder
# with traces of one. A command that is refused (1, 2), or is not there, fails; a verdict is a result.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE LD_PRELOAD
mkdir -p "$T/here/bin" && cd "$T/here" || exit 1
ln -s "$B" build
ln -s "$SRC/docs" docs
ln -s "$C/disorder" app
# One collective has no wrong order, by anybody's rules.
small="--colls 1 --iters 3 --timeout 60"
# Ranks come from the launcher's environment; torchrun's from here.
printf '#!/bin/sh\nexec "%s" %s\n' "$C/disorder" "$small" >bin/python
printf '#!/bin/sh\nexec "%s" --procs 2 %s\n' "$C/disorder" "$small" >bin/torchrun
chmod +x bin/*
export PATH=$PWD/bin:$B:$PATH GITHUB_STEP_SUMMARY=$PWD/step.md SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=7
# shellcheck disable=SC2086 # words
"$B/dfshim" run --host -n 2 --trace traces -- "$C/disorder" $small >out 2>&1 || fail "the job for the traces: $(tail -3 out)"
cp -r traces traces-7
awk '
	FNR == 1 { code = 0 }
	/^ *```/ { code = !code; next }
	code || /^    [^ ]/ { print FILENAME "\t" $0 }' "$SRC"/README.md "$SRC"/docs/*.md |
	sed -E 's/\t *(- run: )?/\t/; s/ +#.*//' | grep -E $'\t''([A-Z_]+=[^ ]* )*(build/)?dfshim ' >"$T/lines"
nr=$(wc -l <"$T/lines")
[ "$nr" -ge 10 ] || fail "only $nr commands were found"
while IFS=$'\t' read -r file line; do
	run=$(sed -E 's/\bDIR\b/traces/g' <<<"$line")
	timeout -k 5 "${LIMIT:-120}" bash -c "$run" >out 2>&1 </dev/null
	rc=$?
	case $rc in
	0 | 1[0-4] | 2[0-2] | 3[0-3] | 40 | 50) ;;
	*) fail "${file#"$SRC"/}: $line: status $rc: $(tail -5 out)" ;;
	esac
done <"$T/lines"
echo "$nr commands"
exit 0
