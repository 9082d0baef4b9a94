# Checks of an installation, by make, a wheel or a package. Sourced after clients.sh.
# shellcheck shell=bash

# native ROOT PREFIX: builds a program that includes dfccl.h with the flags of the installed
# pkg-config file, and runs it.
native() {
	local flags
	printf '#include <stdio.h>\n#include <dfccl.h>\nint main(void)\n{\n\treturn !puts(dfcclErrorString(-17));\n}\n' >"$T/native.c"
	flags=$(PKG_CONFIG_SYSROOT_DIR=$1 PKG_CONFIG_PATH=$1$2/lib/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \
		PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --cflags --libs dfshim 2>&1) || fail "pkg-config: $flags"
	# shellcheck disable=SC2086 # words
	gcc ${SAN_COMPILE-} -Wall -Werror -o "$T/native" "$T/native.c" $flags >"$T/native.log" 2>&1 ||
		fail "a program on dfccl.h does not build with $flags: $(cat "$T/native.log")"
	LD_LIBRARY_PATH=$1$2/lib "$T/native" >"$T/native.log" 2>&1 && [ -s "$T/native.log" ] ||
		fail "a program on dfccl.h does not run: $(cat "$T/native.log")"
}

# completion FILE TOOL: checks that the installed completions call the installed tool.
completion() {
	# shellcheck disable=SC1090 # the installed one
	(. "$1" && COMP_WORDS=("$2" re) COMP_CWORD=1 && _dfshim && [ "${COMPREPLY[*]}" = "report replay" ]) ||
		fail "the completions in $1 do not complete 're'"
}
