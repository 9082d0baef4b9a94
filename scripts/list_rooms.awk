# Prints the table of rooms in docs/architecture.md from scripts/layers.txt: each room, its role,
# its prefix, and the rooms that may include it. Those are found in every line of rights that begins
# the room's path or names a header in it.
/^#/ || NF == 0 || $1 ~ /^(library|header|system|calls)$/ { next }
$1 == "room" {
	rooms[++nr] = $2
	prefix[$2] = $3
	role[$2] = $0
	sub(/^room +[^ ]+ +[^ ]+ +/, "", role[$2])
	next
}
{
	who[++rules] = $1
	for (i = 2; i <= NF; i++)
		right[rules] = right[rules] $i " "
}
# reach ROOM RULE: returns "whole", the only header that the rule may include, or "".
function reach(room, k, a, n, i, header) {
	n = split(right[k], a, " ")
	for (i = 1; i <= n; i++) {
		if (index(room "/", a[i]) == 1)
			return "whole"
		if (index(a[i], room "/") != 1)
			continue
		header = substr(a[i], length(room) + 2)
		if (header !~ /\//)
			return header
	}
	return ""
}
# Folders of one top folder with the same rights are one entry if nearly all of them have these
# rights.
function guests(room, kind, k, r, top, tops, in_top, may, others, list, names, i) {
	for (k = 1; k <= rules; k++) {
		if (index(room "/", who[k] "/") == 1)
			continue
		top = who[k]
		sub(/\/.*/, "", top)
		if (!(top in in_top))
			tops[++tops[0]] = top
		in_top[top]++
		r = reach(room, k)
		if (r == kind) {
			may[top]++
			names[top] = names[top] (names[top] == "" ? "" : ", ") who[k]
		} else {
			others[top] = others[top] (others[top] == "" ? "" : ", ") who[k]
		}
	}
	for (i = 1; i <= tops[0]; i++) {
		top = tops[i]
		if (may[top] > 3 && in_top[top] - may[top] <= 3)
			names[top] = top "/*" (others[top] == "" ? "" : " but " others[top])
		if (names[top] != "")
			list = list (list == "" ? "" : "; ") names[top]
	}
	return list
}
END {
	print ""
	print "| folder | what | names begin with | who may include it |"
	print "|---|---|---|---|"
	for (r = 1; r <= nr; r++) {
		room = rooms[r]
		list = guests(room, "whole")
		nr_headers = 0
		for (k = 1; k <= rules; k++) {
			header = reach(room, k)
			if (header == "" || header == "whole" || (room, header) in seen ||
			    index(room "/", who[k] "/") == 1)
				continue
			seen[room, header] = 1
			list = list (list == "" ? "" : "; ") \
				"only `" header "`: " guests(room, header)
		}
		names = prefix[room]
		gsub(/,/, "`, `", names)
		print "| `" room "` | " role[room] " | `" names "` | " \
			(list == "" ? "no folder" : list) " |"
	}
	print ""
}
