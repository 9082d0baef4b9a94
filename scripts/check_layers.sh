#!/bin/bash
# Checks every #include of our sources against scripts/layers.txt; prints violations.
set -u
cd "$(dirname "$0")/.." || exit 1

git ls-files 'interpose/*' 'runtime/*' 'kernels/*' 'trace/*' 2>/dev/null |
	grep -E '\.(c|h|cu|inl|def)$' |
	xargs -r grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' /dev/null |
	awk -v rules=scripts/layers.txt '
BEGIN {
	while ((getline line < rules) > 0) {
		if (line ~ /^#/ || line ~ /^[ \t]*$/)
			continue
		n = split(line, w, /[ \t]+/)
		if (w[1] ~ /^(library|header|room|calls)$/)
			continue
		if (w[1] == "system") {
			sys[w[2]] = " "
			for (i = 3; i <= n; i++)
				sys[w[2]] = sys[w[2]] w[i] " "
			continue
		}
		known[w[1]] = n
		for (i = 2; i <= n; i++)
			allow[w[1], i] = w[i]
	}
}
{
	split($0, part, ":")
	file = part[1]
	folder = file
	sub(/\/[^\/]*$/, "", folder)
	while (!(folder in known) && folder ~ /\//)
		sub(/\/[^\/]*$/, "", folder)
	text = $0
	sub(/^[^:]*:[^:]*:/, "", text)
	if (text ~ /</) {
		sub(/^[^<]*</, "", text)
		sub(/>.*/, "", text)
		for (s in sys)
			if (index(text, s) == 1 && index(sys[s], " " folder " ") == 0) {
				print file ":" part[2] ": <" text "> belongs to" sys[s] "only"
				bad = 1
			}
		next
	}
	sub(/^[^"]*"/, "", text)
	sub(/".*/, "", text)
	if (!(folder in known)) {
		print file ": its folder has no line in " rules
		bad = 1
		next
	}
	for (i = 2; i <= known[folder]; i++)
		if (index(text, allow[folder, i]) == 1)
			next
	if (index(text, folder "/") == 1)
		next
	print file ":" part[2] ": " folder " may not include \"" text "\""
	bad = 1
}
END { exit bad }'
