#!/bin/bash
# Checks folders and files: no two files of one library share a basename, no folder has too many
# sources, no file is too long, and each folder of the products has a line in scripts/layers.txt
# with its purpose. In tests/ the limit does not count tests (t_*, b_*). Prints violations.
set -u
cd "$(dirname "$0")/.." || exit 1

SOURCES=16 LISTED=32 FILE=800 HEADER=250

{
	git ls-files 'interpose/*' 'runtime/*' 'kernels/*' 'trace/*' |
		grep -E '\.(c|h|cu|inl|def)$' | sed 's/^/file 0 /'
	git ls-files 'tests/*' | grep -E '\.(c|cu|sh|py)$' | sed 's/^/test 0 /'
	git ls-files | grep -E '\.(c|h|cu|inl|sh|py|awk)$' | xargs wc -l |
		awk '$2 != "total" {print "lines " $1 " " $2}'
} | awk -v rules=scripts/layers.txt -v sources=$SOURCES -v listed=$LISTED -v limit=$FILE \
	-v header=$HEADER '
function fail(text) {
	print text
	bad = 1
}
BEGIN {
	while ((getline line < rules) > 0) {
		n = split(line, w, /[ \t]+/)
		if (w[1] == "library") {
			libraries[w[2]] = 1
			for (i = 3; i <= n; i++)
				part[w[2], ++parts[w[2]]] = w[i]
		} else if (w[1] == "room") {
			room[w[2]] = w[3]
		} else if (w[1] == "header") {
			allowed[w[2]] = w[3]
		}
	}
}
# belongs FILE LIBRARY: whether the library has the file; excluded folders win.
function belongs(file, lib, i, in_it, p) {
	for (i = 1; i <= parts[lib]; i++) {
		p = part[lib, i]
		if (p ~ /^!/ && index(file, substr(p, 2)) == 1)
			return 0
		if (index(file, p) == 1)
			in_it = 1
	}
	return in_it
}
$1 == "file" {
	folder = base = $3
	sub(/\/[^\/]*$/, "", folder)
	sub(/.*\//, "", base)
	folders[folder] = 1
	if (base ~ /\.(c|cu|inl)$/)
		count[folder]++
	for (lib in libraries) {
		if (!belongs($3, lib))
			continue
		if ((lib, base) in where)
			fail(lib ": two files are called " base ": " where[lib, base] ", " $3)
		where[lib, base] = $3
	}
}
$1 == "test" {
	folder = base = $3
	sub(/\/[^\/]*$/, "", folder)
	sub(/.*\//, "", base)
	if (base ~ /^[tb]_/) {
		if (++tests[folder] == listed + 1)
			fail(folder ": more than " listed " tests")
	} else if (++beside[folder] == sources + 1) {
		fail(folder ": more than " sources " sources beside its tests")
	}
}
$1 == "lines" {
	if ($2 > limit)
		fail($3 ": " $2 " lines (at most " limit ")")
	if ($3 !~ /\.h$/ || $3 !~ /^(interpose|runtime|kernels|trace)\//)
		next
	most = $3 in allowed ? allowed[$3] : header
	if ($2 > most)
		fail($3 ": " $2 " lines (a header: at most " most ")")
}
END {
	for (folder in folders) {
		if (count[folder] > sources)
			fail(folder ": " count[folder] " sources (at most " sources ")")
		if (!(folder in room)) {
			fail(folder ": " rules " has no room for it")
			continue
		}
		n = split(room[folder], prefix, ",")
		for (i = 1; i <= n; i++)
			if (system("cat " folder "/*.* | grep -q \"\\b" prefix[i] "\""))
				fail(folder ": nothing is called " prefix[i] ", as " rules " says")
	}
	for (folder in room)
		if (!(folder in folders))
			fail(rules ": no sources in the room " folder)
	exit bad
}'
