# bash completion for dfshim: subcommands from the program itself, options from each --help.
_dfshim() {
	local cur=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} sub=${COMP_WORDS[1]-}
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --list 2>/dev/null) --help --version" -- "$cur")
		return
	fi
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" "$sub" --help 2>/dev/null |
			grep -oE -- '(^|[^A-Za-z-])--?[a-z][a-z-]*' | grep -oE -- '--?[a-z][a-z-]*' | sort -u)" -- "$cur")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -o filenames -F _dfshim dfshim
