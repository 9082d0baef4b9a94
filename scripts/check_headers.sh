#!/bin/bash
# Checks where our exported functions and variables are declared, by nm on the objects in B (default
# build). Prints violations. A name of DIR/a_b.c is declared in one of
#
# - DIR/a_b.h, or DIR/a.h, which serves several files;
# - the header that bears the folder's name;
# - a header of a folder above, which is the border of the folders below it.
#
# Each of the first three may end in _int.h: for this folder only. A name that no other file uses is
# static.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}

{
	# Prints the names that a statement of a header declares, and NAME## for names that a table
	# makes.
	git ls-files '*.h' | grep -E '^(interpose|kernels|runtime|trace)/' | xargs perl -e '
		undef $/;
		for my $file (@ARGV) {
			open(my $f, "<", $file) or die;
			my $text = <$f>;
			$text =~ s{/\*.*?\*/|//[^\n]*}{ }gs;
			$text =~ s{\\\n}{ }g;
			print "declared $file $1\n" while $text =~ /\b(dfk?_\w*##)/g;
			$text =~ s{^\s*#[^\n]*}{}gm;
			1 while $text =~ s/(\)?)\s*\{[^{}]*\}/$1 ? ");" : " "/eg;
			for my $s (split /;/, $text) {
				next if $s =~ /^\s*(static|typedef)\b/;
				$s =~ s/\b(struct|enum|union)\s+\w+//g;
				$s =~ s/\(.*//s
					if $s =~ /^[^()]*\b(dfk?_\w+)\s*\(/ && $s !~ /^[^(]*\(\*/;
				print "declared $file $1\n" while $s =~ /\b(dfk?_\w+)/g;
			}
		}'
	find "$B"/obj/{interpose,runtime,kernels,trace} -name '*.o' | while read -r object; do
		[ -f "$(sed "s,^$B/obj/,,; s,o\$,c," <<<"$object")" ] && echo "$object"
	done | xargs nm -A -P -g | sed "s,^$B/obj/,symbol ,; s,\.o: , ,"
	# Tests, export maps, Python and assembly in strings use a name by its text.
	git grep -owhE 'dfk?_[a-z0-9_]+' -- 'tests/*.c' 'tests/*.h' '*.map' '*.py' 'kernels/*.cu' |
		sort -u | sed 's/^/named /'
	git grep -ohE '"[^"]*\bdfk?_[a-z0-9_]+' -- '*.c' | grep -oE '\bdfk?_[a-z0-9_]+$' | sort -u |
		sed 's/^/named /'
} | awk '
function dir(path)
{
	sub(/\/[^\/]*$/, "", path)
	return path
}
function stem(path)
{
	sub(/.*\//, "", path)
	sub(/(_int)?\.h$/, "", path)
	return path
}
# Whether a name of the file `home` (without .c) may be declared in this header.
function may(header, home, folder, base)
{
	folder = dir(header)
	if (folder != dir(home))
		return index(home, folder "/") == 1
	base = home
	sub(/.*\//, "", base)
	return base == stem(header) || index(base, stem(header) "_") == 1 ||
		stem(header) == stem(folder)
}
$1 == "declared" {
	if (sub(/##$/, "", $3))
		family[$3] = family[$3] " " $2
	else
		headers[$3] = headers[$3] " " $2
	next
}
$1 == "named" {
	used[$2] = 1
	next
}
$1 == "symbol" && $4 ~ /^[Uwv]$/ {
	used[$3] = 1
	next
}
$1 == "symbol" && $3 ~ /^dfk?_/ {
	home[$3] = $2
}
END {
	for (name in home) {
		if (!(name in used)) {
			print home[name] ".c: " name " is used in no other file: static"
			bad = 1
			continue
		}
		where = headers[name]
		for (f in family)
			if (index(name, f) == 1)
				where = where family[f]
		n = split(where, w, " ")
		for (i = 1; i <= n && !may(w[i], home[name]); i++)
			;
		if (i <= n)
			continue
		bad = 1
		if (n)
			print home[name] ".c: " name " is declared in" where
		else
			print home[name] ".c: " name " is declared in no header"
	}
	exit bad
}'
