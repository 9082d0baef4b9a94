#!/bin/bash
# Checks calls against scripts/layers.txt, by nm on the objects in B (default build). Prints
# violations.
#
# - Calls follow includes: an object refers only to symbols of folders of which its folder may
#   include a header. A symbol that a header directly in runtime/ or trace/ declares belongs to that
#   border, wherever it is defined.
# - Lines "calls": no object of the folder refers to a symbol of these folders.
# - No folders call one another in a cycle.
#
# Names of the C library that we define too (dlsym, _exit) are calls of the C library.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}

{
	git ls-files 'runtime/*.h' 'trace/*.h' | grep -E '^[a-z]+/[^/]*$' | while read -r header; do
		grep -vE '^[[:space:]]*/?\*' "$header" |
			sed -nE "s,.*\b(df_[a-z0-9_]+)(\(|;| __attr).*,border ${header%/*} \1,p"
	done
	find "$B"/obj/{interpose,runtime,kernels,trace} -name '*.o' | while read -r object; do
		[ -f "$(sed "s,^$B/obj/,,; s,o\$,c," <<<"$object")" ] && echo "$object"
	done | xargs nm -A -P -g | sed "s,^$B/obj/,symbol ,; s,\.o: , ,"
} | awk -v rules=scripts/layers.txt '
function dir(path)
{
	sub(/\/[^\/]*$/, "", path)
	return path
}
# Returns the part of a file that is linked alone. Code that parts share with others (runtime/base,
# kernels) is copied.
function part(file)
{
	if (match(file, /^interpose\/(hostcuda\/cupti|hostcuda|hostnccl)\//))
		return substr(file, 1, RLENGTH)
	return ""
}
function below(folder, top)
{
	return folder == top || index(folder, top "/") == 1
}
# Whether the rules of `from` let it include a header of `to`.
function may(from, to, rule, i, n, w)
{
	for (rule = from; !(rule in allow) && rule ~ /\//;)
		rule = dir(rule)
	if (below(to, rule))
		return 1
	n = split(allow[rule], w, " ")
	for (i = 1; i <= n; i++)
		if (w[i] ~ /\/$/ ? index(to "/", w[i]) == 1 : dir(w[i]) == to)
			return 1
	return 0
}
function fail(text)
{
	print text
	bad = 1
}
# Marks the folders that calls reach from `at`.
function reach(start, at, i, n, w)
{
	n = split(calls[at], w, " ")
	for (i = 1; i <= n; i++)
		if (!((start, w[i]) in reached)) {
			reached[start, w[i]] = 1
			reach(start, w[i])
		}
}
BEGIN {
	while ((getline line < rules) > 0) {
		n = split(line, w, /[ \t]+/)
		if (line ~ /^#/ || !n || w[1] ~ /^(library|header|room|system)$/)
			continue
		rest = ""
		for (i = 2; i <= n; i++)
			rest = rest w[i] " "
		if (w[1] == "calls")
			forbidden[++nr_forbidden] = rest
		else
			allow[w[1]] = rest
	}
}
$1 == "border" {
	border[$3] = $2
	next
}
$1 != "symbol" {
	next
}
$4 !~ /^[Uwv]$/ {
	at[part($2), $3] = $2
	next
}
{
	user[++uses] = $2
	used[uses] = $3
}
END {
	if (!uses)
		fail("no objects: build first")
	for (u = 1; u <= uses; u++) {
		name = used[u]
		if (name ~ /^(dlsym|dlvsym|pthread_create|pthread_exit|_exit|_Exit)$/)
			continue
		from = dir(user[u])
		if ((part(user[u]), name) in at)
			home = at[part(user[u]), name]
		else if (("", name) in at)
			home = at["", name]
		else
			continue
		to = dir(home)
		for (i = 1; i <= nr_forbidden; i++) {
			n = split(forbidden[i], w, " ")
			for (k = 3; below(from, w[1]) && k <= n; k++)
				if (below(to, w[k]))
					fail(user[u] ".c refers to " name " of " home ".c: " \
						w[1] " may not call it")
		}
		if (name in border)
			to = border[name]
		if (from == to)
			continue
		if (!may(from, to))
			fail(user[u] ".c refers to " name " of " home ".c: " from \
				" may include nothing of " to)
		if (index(" " calls[from] " ", " " to " ") == 0)
			calls[from] = calls[from] " " to
		folders[from] = folders[to] = 1
	}
	for (f in folders)
		reach(f, f)
	for (f in folders)
		if ((f, f) in reached)
			fail(f ": calls in a cycle:" calls[f])
	exit bad
}'
