# Prints the rows of a table (.def), one a line, with the parts of a string joined.
:row
/[,"(]$/ {
	N
	s/\n[ \t]*/ /
	b row
}
s/" "//g
