#!/bin/bash
# Description: every command of the documents and manual pages runs as it stands there, with a small job as the reader's program.
# Limit: 300 s
#
# list_commands.py finds them. ./app, python and torchrun are a small job on the CPU, DIR, traces and /tmp/t are folders with traces
# of one, srun starts tasks as Slurm does. `make` only prints what it would do, and tests/run.sh whether there is such a test.
# Options in a text that does not run the subcommand are looked up. documents.txt says what is not run, and why.
# A command that is refused (1, 2), or is not there, fails; a verdict is a result.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE LD_PRELOAD MAKEFLAGS
[ "$B" = "$SRC/build" ] || skip "the documents' build folder is build"
cd "$SRC" || exit 1
table=$SRC/tests/docs/documents.txt
# shellcheck disable=SC2046 # names without spaces
python3 tests/docs/list_commands.py $(git ls-files '*.md' 'docs/man/*') >"$T/all" || fail "see above"
awk -F'\t' '!seen[$2]++' "$T/all" >"$T/lines"
nr=$(wc -l <"$T/lines")
[ "$nr" -ge 100 ] || fail "only $nr commands were found"

mkdir -p "$T/here/bin" && cd "$T/here" || exit 1
# A copy: what a command writes stays here.
ln -sf "$B" build && cp -r "$SRC/docs" docs || exit 1
ln -sf "$SRC/docs/sim/single_free_32_64_d1e-5.json" config.json
echo '<algo/>' >mine.xml
# One collective has no wrong order, by any rules.
small="--colls 1 --iters 3 --timeout 60"
# Ranks are those of the launcher's environment; torchrun's are set here. The machine's driver is libdfhost.so.
printf '#!/bin/sh\nDFSHIM_BACKEND=host LD_PRELOAD="$LD_PRELOAD %s/libdfhost.so" exec "%s" %s "$@"\n' "$B" "$C/disorder" "$small" >bin/program
sed 's/ "$@"$//' bin/program >bin/python
sed 's/ "$@"$/ --procs 2/' bin/program >bin/torchrun
ln -sf bin/program app
: >train.py # `dfshim run` looks for a file that torchrun is to run
ln -sf "$C/disorder" program
printf '#!/bin/sh\n[ "${1#--export=ALL,}" != "$1" ] && export "${1#--export=ALL,}" && shift\nexec env RANK=0 WORLD_SIZE=1 "$@"\n' >bin/srun
chmod +x bin/*
export PATH=$PWD/bin:$B:$PATH LD_LIBRARY_PATH=$B GITHUB_STEP_SUMMARY=$PWD/step.md SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=7
# mpirun: as root, on fewer processors than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
# shellcheck disable=SC2086 # words
"$B/dfshim" run --host -n 2 --trace traces -- "$C/disorder" $small >out 2>&1 || fail "the job for the traces: $(tail -3 out)"
cp -r traces traces-7

# options SUBCOMMAND TEXT: it is there, and has the options that the text has.
options() {
	local o
	"$B/dfshim" "$1" --help >/dev/null || return
	for o in $(grep -oE '(^| )--?[a-z-]+' <<<"$2"); do
		"$B/dfshim" "$1" --list | grep -qE -- "^$o\b" || "$B/dfshim" "$1" --help | grep -qE -- "(^| )$o\b" || return
	done
}

while IFS=$'\t' read -r at line; do
	why=$(awk -F'\t' -v c="$line" '$1 == c {print $2; exit}' "$table")
	if [ -n "$why" ]; then
		for f in $(grep -oE '\b(tests|scripts)/[a-z_/]*\.[a-z]+' <<<"$why"); do
			[ -e "$SRC/$f" ] || fail "documents.txt names $f, which does not exist"
		done
		continue
	fi
	run=$(sed -E 's/\bDIR\b/traces/g; s|/tmp/t(race)?\b|traces|g' <<<"$line")
	# Only what was built is in the build folder: tests need not be, before lint.
	for f in $(grep -oE '(build|\$D)/tests/[a-z_/]+' <<<"$run"); do
		[ -e "$B/${f#*/}" ] || { echo "not built: $f" && continue 2; }
	done
	how=(bash -c "${exports-}$run")
	if [[ $run == export\ * ]]; then
		exports="${exports-}$run; "
	elif [[ "$at $run" =~ in\ text\ dfshim\ ([a-z-]+)((\ [a-z]+)?(\ --?[a-z]+(\ [A-Za-z]+)?)*)$ ]]; then
		how=(options "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}")
	elif [[ $run =~ ^([A-Z_]+=[^ ]*\ )*make( |$) ]]; then
		how=(bash -c "cd '$SRC' && ${run/make/make -n}")
	elif [[ $run =~ tests/run\.sh\ ([a-z]+/(t_[a-z_]+)?)$ ]]; then
		how=(bash -c 'ls "$1"*' - "$SRC/tests/${BASH_REMATCH[1]}")
	fi
	[ "${how[0]}" = options ] || how=(timeout -k 5 "${LIMIT:-120}" "${how[@]}")
	"${how[@]}" >out 2>&1 </dev/null
	rc=$?
	case "$rc $run" in
	0\ * | 1[0-4]\ * | 2[0-2]\ * | 3[0-3]\ * | 40\ * | 50\ *) ;;
	3\ *doctor* | 3\ *"verify mine.xml") ;;
	*) echo "$at: $line: status $rc: $(tail -5 out)" && bad=1 ;;
	esac
done <"$T/lines"
while IFS=$'\t' read -r line _; do
	[[ $line == \#* ]] || grep -qF $'\t'"$line" "$T/lines" || fail "documents.txt has '$line', which no document has"
done <"$table"
[ "${bad-0}" = 0 ] || fail "see above"
echo "$nr commands"
exit 0
