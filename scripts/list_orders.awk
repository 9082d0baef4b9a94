# Prints every acquire, release and fence of the named C files: file, line, function, the access,
# and the text of the comment in the six lines above that says "pairs with", or nothing.
# Tab-separated.
FNR == 1 { open = 0; text = ""; pair = ""; pair_end = -100; fn = "" }
{
	line = $0
	comment = ""
	if (open) {
		comment = line
		if (line ~ /\*\//) {
			sub(/\*\/.*/, "", comment)
			sub(/^.*\*\//, "", line)
			open = 0
		} else
			line = ""
	}
	while (match(line, /\/\*([^*]|\*[^\/])*\*\//)) {
		comment = comment " " substr(line, RSTART + 2, RLENGTH - 4)
		line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
	}
	if (line ~ /\/\*/) {
		comment = comment " " substr(line, index(line, "/*") + 2)
		sub(/\/\*.*/, "", line)
		open = 1
		text = ""
	}
	gsub(/^[ \t]*\*?[ \t]*/, "", comment)
	if (comment != "")
		text = text " " comment
	if (tolower(text) ~ /pairs? with/) {
		pair = text
		pair_end = FNR
	}
	if (!open && comment == "")
		text = ""
	if (line ~ /^[A-Za-z_].*\(/ && line !~ /;[ \t]*$/) {
		fn = line
		sub(/\(.*/, "", fn)
		sub(/^.*[ \t*]/, "", fn)
	}
	if (line ~ /^#[ \t]*define[ \t]+[A-Za-z_0-9]+\(/) {
		fn = line
		sub(/^#[ \t]*define[ \t]+/, "", fn)
		sub(/\(.*/, "", fn)
	}
	# A macro that hides an order (named ..._REL or ..._ACQ) counts where it is used.
	if (FILENAME != "kernels/port.h" && line !~ /^#[ \t]*define/ &&
	    (line ~ /[A-Z]_(REL|ACQ)\(|__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)/ ||
	     line ~ /memory_order_(acquire|release|acq_rel|seq_cst)/ ||
	     line ~ /dfk_[a-z_]*(acquire|release|acq_rel)[a-z_]*\(/ ||
	     line ~ /__threadfence|atomic_thread_fence/)) {
		order = line
		if (order ~ /SEQ_CST|seq_cst/) order = "full"
		else if (order ~ /ACQ_REL|acq_rel/) order = "acquire-release"
		else if (order ~ /ACQUIRE|acquire|_ACQ\(/) order = "acquire"
		else if (order ~ /RELEASE|release|_REL\(/) order = "release"
		else order = "fence"
		shown = FNR - pair_end <= 7 ? pair : ""
		gsub(/[ \t]+/, " ", shown)
		print FILENAME "\t" FNR "\t" fn "\t" order "\t" shown
	}
}
