# Completes commands of dfshim in bash: subcommands, options and their words, which the program's
# own tables hold.
_dfshim() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} \
		program=${COMP_WORDS[0]} options words
	if [ "$COMP_CWORD" = 1 ]; then
		options=$("$program" --list 2>/dev/null)
		mapfile -t COMPREPLY < <(compgen -W "$options --help --usage --version" -- "$cur")
		return
	fi
	# A line of the list is "--name=ARGUMENT<tab>help".
	options=$("$program" "${COMP_WORDS[1]}" --list 2>/dev/null | sed -nE 's/\t.*//p')
	# bash splits "--rules=n" into three words.
	[ "$cur" = = ] && cur=
	[ "$prev" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}
	words=$(sed -nE "s/^$prev[= ]([a-z|]+)$/\1/p" <<<"$options" | tr '|' ' ')
	if [ -n "$words" ]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	elif [[ $cur == -* ]]; then
		options=$(sed -E 's/[=[ ].*//' <<<"$options")
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -o filenames -F _dfshim dfshim
