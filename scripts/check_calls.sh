#!/bin/bash
# Checks the lines "calls" of scripts/layers.txt by nm on the objects in B (default build): no object of a folder refers to
# a symbol that is defined in a folder it may not call. Prints violations.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
bad=0
# objects FOLDER...: the objects of these folders and of all folders below them
objects() {
	local f
	for f; do
		find "$B/obj/$f" -name '*.o'
	done
}
while read -r _ folder _ forbidden; do
	read -ra theirs <<<"$forbidden"
	mapfile -t mine < <(objects "$folder")
	mapfile -t others < <(objects "${theirs[@]}")
	if [ ${#mine[@]} = 0 ] || [ ${#others[@]} = 0 ]; then
		echo "$folder: no objects in $B"
		bad=1
		continue
	fi
	nm -A -P -g --undefined-only "${mine[@]}" | awk -v folder="$folder" '
		FNR == NR { at[$2] = $1; next }
		$2 in at {
			sub(/:$/, "", $1)
			sub(/:$/, "", at[$2])
			print $1 " refers to " $2 " of " at[$2] ": " folder " may not call it"
			found = 1
		}
		END { exit found }' <(nm -A -P -g --defined-only "${others[@]}") - || bad=1
done < <(grep '^calls ' scripts/layers.txt)
exit $bad
