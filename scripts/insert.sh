#!/bin/sh
# insert.sh DOCUMENT MARKER FILE: replaces the text between <!-- MARKER --> and <!-- end --> in
# DOCUMENT by FILE.
set -eu
new=$(mktemp)
trap 'rm -f "$new"' EXIT
grep -q "^<!-- $2 -->\$" "$1" || {
	echo "insert.sh: no <!-- $2 --> in $1" >&2
	exit 1
}
awk -v marker="<!-- $2 -->" -v text="$3" '
	$0 == marker {
		print
		print ""
		while ((getline line < text) > 0)
			print line
		print ""
		skip = 1
		next
	}
	/^<!-- end -->$/ { skip = 0 }
	!skip' "$1" >"$new"
cat "$new" >"$1"
