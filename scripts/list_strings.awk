# Prints the string literals of C sources as file:line: text. Skips comments and #include lines.
# Literals on consecutive lines are one text, so that phrases across a line break are found.
function flush()
{
	if (said == "")
		return
	gsub(/[ \t]+/, " ", said)
	print where ": " said
	said = ""
}
FNR == 1 {
	flush()
	comment = 0
}
!comment && /^[ \t]*#[ \t]*include/ { next }
{
	line = $0
	text = ""
	n = length(line)
	for (i = 1; i <= n; i++) {
		c = substr(line, i, 1)
		two = substr(line, i, 2)
		if (comment) {
			if (two == "*/") {
				comment = 0
				i++
			}
		} else if (two == "/*") {
			comment = 1
			i++
		} else if (two == "//") {
			break
		} else if (c == "'") {
			# This is a character constant, perhaps a quote.
			i += substr(line, i + 1, 1) == "\\" ? 3 : 2
		} else if (c == "\"") {
			for (i++; i <= n && (c = substr(line, i, 1)) != "\""; i++) {
				text = text c
				if (c == "\\")
					text = text substr(line, ++i, 1)
			}
			text = text " "
		}
	}
	if (text == "")
		flush()
	else if (said == "")
		where = FILENAME ":" FNR
	said = said text
	# A row of a table is a text by itself.
	if (FILENAME ~ /\.def$/ && /\)$/)
		flush()
}
END { flush() }
