# Prints the comments of C sources as file:line: text, one line for each paragraph of a comment.
# Comments on consecutive lines of their own are one paragraph. With -v hash=1 it reads scripts and
# makefiles, in which a comment begins with a hash.
function flush()
{
	if (said != "")
		print where ": " said
	said = ""
}
function add(text)
{
	gsub(/^[ \t*\/#]+|[ \t*\/]+$/, "", text)
	if (text == "") {
		flush()
		return
	}
	if (said == "")
		where = FILENAME ":" FNR
	said = said == "" ? text : said " " text
}
FNR == 1 {
	flush()
	inside = 0
}
hash {
	if ($0 ~ /^[ \t]*#($|[^!])/)
		add($0)
	else
		flush()
	next
}
inside {
	end = index($0, "*/")
	add(end ? substr($0, 1, end - 1) : $0)
	if (end) {
		inside = 0
		flush()
	}
	next
}
{
	line = $0
	gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
	begin = index(line, "/*")
	if (!begin) {
		if (match(line, /\/\/.*/))
			add(substr(line, RSTART + 2))
		else
			flush()
		next
	}
	flush()
	rest = substr(line, begin + 2)
	end = index(rest, "*/")
	add(end ? substr(rest, 1, end - 1) : rest)
	if (end)
		flush()
	else
		inside = 1
}
END {
	flush()
}
