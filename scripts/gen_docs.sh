#!/bin/bash
# Writes the parts of the documents that are generated from tables, between the lines "begin
# generated" and "end generated".
#
#   scripts/gen_docs.sh            rewrite them
#   scripts/gen_docs.sh --check    list the outdated ones; status 1
#
# Needs the CLI (B, default build).
set -u
# The order of names and the form of numbers are the same for every user.
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
check=${1-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# splice FILE NAME: replaces the part NAME of FILE by standard input. It runs at the end of a pipe,
# so it records a mismatch in a file.
splice() {
	cat >"$tmp/part"
	awk -v name="$2" -v part="$tmp/part" '
	$0 ~ "begin generated " name {
		print
		while ((getline l < part) > 0)
			print l
		skip = 1
		found = 1
		next
	}
	$0 ~ "end generated " name { skip = 0 }
	!skip { print }
	END { exit !found }' "$1" >"$tmp/new" || {
		echo "$1: no part '$2'"
		touch "$tmp/bad"
		return
	}
	if ! cmp -s "$1" "$tmp/new"; then
		if [ -n "$check" ]; then
			echo "$1: '$2' is out of step with its table: run scripts/gen_docs.sh"
			diff "$1" "$tmp/new" | head -10
			touch "$tmp/bad"
		else
			cp "$tmp/new" "$1"
			echo "$1: $2 rewritten"
		fi
	fi
}

"$B/dfshim" env --man | splice docs/man/libdfshim.7 variables

sed -f scripts/list_rows.sed trace/cli/subcommands.def |
	sed -n 's/^DF_CMD(\([a-z_]*\), "\([^"]*\)", "\([^"]*\)", "\([^"]*\)").*/\2\t\3\t\4/p' |
	while IFS=$'\t' read -r name args summary; do
		printf '.TP\n.BR "dfshim %s" " %s"\n%s.\n' "$name" "${args//-/\\-}" \
			"${summary//-/\\-}"
	done | splice docs/man/dfshim.1 subcommands

scripts/soak_sum.sh docs/soak/*.log | splice docs/evaluation.md soak

awk -f scripts/list_rooms.awk scripts/layers.txt | splice docs/architecture.md rooms

# The options of each subcommand that has a page, from its table. awk joins "-o FILE" and
# "--output=FILE" with one help to one item.
for page in docs/man/dfshim-*.1; do
	sub=${page#docs/man/dfshim-}
	"$B/dfshim" "${sub%.1}" --list | awk -F'\t' '
	function item() {
		if (flags == "")
			return
		gsub(/-/, "\\-", help)
		print ".It " flags "\n" toupper(substr(help, 1, 1)) substr(help, 2) "."
		flags = ""
	}
	NF < 2 {
		item()
		print (NR > 1 ? ".El\n" : "") ".Pp\n" $1 "\n.Bl -tag -width Ds"
		next
	}
	NR == 1 { print ".Bl -tag -width Ds" }
	/^-(h|-help|-usage)\t/ { next } # of all subcommands: dfshim(1) has them
	$2 != help_raw { item() }
	{
		help = help_raw = $2
		f = $1
		gsub(/\|/, " | ", f)
		if (sub(/^--/, "Fl Fl ", f)) {
			sub(/=/, " Ns = Ns Ar ", f)
		} else if (sub(/^-/, "Fl ", f)) {
			sub(/^Fl [^ ]+ /, "&Ar ", f)
		}
		flags = flags == "" ? f : flags " , " f
	}
	END {
		item()
		print ".El"
	}' | splice "$page" options
done

sed -f scripts/list_rows.sed trace/record/records.def |
	sed -n 's/^DF_REC([A-Z_]*, \("[^"]*"\), [01], \(.*\))$/\1, \2/p' |
	awk -F'", "' '
	BEGIN { print "\n| type | `op` | `a` | `b` | `c` |\n|---|---|---|---|---|" }
	{
		gsub(/\|/, "\\|")
		gsub(/^"|"$/, "")
		for (i = 2; i <= NF; i++)
			sub(/^0$/, "", $i) || sub(/^0x /, "hex: ", $i)
		print "| `" $1 "` | " $2 " | " $3 " | " $4 " | " $5 " |"
	}
	END { print "" }' | splice docs/json.md records

git ls-files 'interpose/*' 'runtime/*' 'kernels/*' 'trace/*' | grep -E '\.(c|h|cu|inl)$' | sort |
	xargs awk -f scripts/list_orders.awk |
	awk -F'\t' '
	{
		t = $5
		sub(/^.*[Pp][Aa][Ii][Rr][Ss]? [Ww][Ii][Tt][Hh]/, "pairs with", t)
		gsub(/\|/, "\\|", t)
		row = "| `" $1 "` | " ($3 == "" ? "" : "`" $3 "`") " | " $4 " | " t " |"
		if (!(row in seen))
			print row
		seen[row] = 1
	}' | (
	echo
	echo '| file | function | order | pair, and what would be seen without it |'
	echo '|---|---|---|---|'
	cat
	echo
) | splice docs/memory-model.md pairs

sed -f scripts/list_rows.sed tests/kernels/costs.def |
	sed -n 's/^DF_COST([^"]*"\([^"]*\)", \(.*\))$/\1\t\2/p' |
	awk -F'\t' '
	BEGIN {
		print "| AllReduce | fences before | now | words written to the host before | now" \
			" | words read of it, now | launches, now |"
		print "|---|---|---|---|---|---|---|"
	}
	{
		gsub(/, /, " | ", $2)
		gsub(/-1/, "", $2)
		print "| " $1 " | " $2 " |"
	}' | splice docs/kernels.md costs

sed -f scripts/list_rows.sed tests/kernels/costs.def |
	sed -n 's/^DF_COPIES([^"]*"\([^"]*\)", \(.*\))$/\1\t\2/p' |
	awk -F'\t' '
	BEGIN {
		print "| 16 KiB | bytes copied into slots before | now |"
		print "|---|---|---|"
	}
	{
		gsub(/, /, " | ", $2)
		print "| " $1 " | " $2 " |"
	}' | splice docs/kernels.md copies

[ ! -e "$tmp/bad" ]
