#!/bin/bash
# `make lint`: form, layers, memory order, exports, scripts, manual pages, documents in step,
# English. Runs everything, then fails if anything failed. B: the build folder (default build),
# already built.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
bad=0

# step NAME COMMAND...: prints output only on failure.
step() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "lint: $name: ok"
	else
		echo "lint: $name: FAILED"
		printf '%s\n' "$out" | head -60 | sed 's/^/    /'
		bad=1
	fi
}

sources() {
	git ls-files | grep -E "$1"
}

format() {
	# .def, .cu and .inl files have layouts of their own.
	local f ok=0
	while read -r f; do
		clang-format --dry-run -Werror "$f" 2>/dev/null || {
			echo "$f: run clang-format -i"
			ok=1
		}
	done < <(sources '\.(c|h)$')
	return $ok
}

# The libraries export exactly the names in the tables.
exports() {
	local lib=$B/libdfshim.so ok=0
	[ -f "$lib" ] || {
		echo "$lib is not built"
		return 1
	}
	{
		scripts/gen_api.sh names | sed 'p;s/^/p/'
		scripts/gen_api.sh driver
		# The export map names functions beyond NCCL's one by one.
		sed -nE '/global:/,/local:/s/^[[:space:]]*([A-Za-z_][A-Za-z0-9_]*);.*/\1/p' \
			interpose/load/export.map
	} | sort -u >"$B/exports.want"
	nm -D --defined-only "$lib" | awk '$2 ~ /[TtWVDBRi]/ {sub(/@.*/, "", $3); print $3}' |
		sort -u >"$B/exports.have"
	# The linker writes a version node as an absolute symbol (A), and the pattern above leaves
	# those out.
	if ! diff "$B/exports.want" "$B/exports.have"; then
		echo "< in the tables only, > exported only"
		ok=1
	fi
	if readelf -d "$lib" | grep NEEDED |
		grep -vE '\[(libc|libpthread|libdl|librt|ld-linux[^]]*)\.so' |
		grep -vE 'lib(a|t|ub)san'; then
		echo "$lib needs more than libc"
		ok=1
	fi
	return $ok
}

# figure DOCUMENT TEXT NUMBER: whether the document has the text, with the number in place of N.
figure() {
	grep -q "${2/N/$3}" "$1" || {
		echo "$1: no \"${2/N/$3}\", which is the code's figure"
		return 1
	}
}

# Checks the lines of the tables that documents repeat by hand.
in_step() {
	local ok=0
	B=$B scripts/gen_docs.sh --check || ok=1
	[ "$(grep -c 'DF_VERSION "' runtime/base/version.h)" = 1 ] || ok=1
	grep -q "^## $(sed -n 's/.*DF_VERSION "\(.*\)"/\1/p' runtime/base/version.h)" \
		CHANGELOG.md || {
		echo "CHANGELOG.md has no section for this version"
		ok=1
	}
	# The documents repeat these figures of the code.
	figure docs/control-plane.md 'row of N bytes' "$(
		sed -n 's/.*sizeof(struct df_member) == \([0-9]*\),.*/\1/p' runtime/ctl/ctl.h
	)" || ok=1
	figure docs/control-plane.md 'N unproved connections' \
		"$(sed -n 's/^#define DF_LINK_STRANGERS //p' runtime/ctl/link.h)" || ok=1
	# Files and targets that the documents name exist.
	local f
	for f in $(git ls-files '*.md' |
		xargs grep -ohE \
		'`(interpose|runtime|kernels|trace|tests|scripts|docs)/[A-Za-z0-9_/.-]+`' |
		tr -d '`' | sort -u); do
		[ -e "$f" ] || {
			echo "the documents name $f, which does not exist"
			ok=1
		}
	done
	for f in $(git ls-files '*.md' | xargs grep -ohE '`make [a-z0-9-]+' | sed 's/`make //' |
		sort -u); do
		grep -qE "^([a-z0-9 -]+ )?${f}[ :]" Makefile ./*/module.mk tests/*/module.mk || {
			echo "the documents name 'make $f', which does not exist"
			ok=1
		}
	done
	return $ok
}

# Every source must begin with a comment about its purpose.
openings() {
	local f ok=0
	while read -r f; do
		head -3 "$f" | grep -qE '^(/\*|//|#)' || {
			echo "$f: does not open with a comment"
			ok=1
		}
	done < <(sources '\.(c|h|cu|inl|def|sh|awk|map)$')
	return $ok
}

# Finds lines of more than 100 columns. Scripts and Python of tests and documents are left out.
columns() {
	local f ok=0
	while read -r f; do
		! expand -t 8 "$f" | LC_ALL=C.UTF-8 grep -nE '^.{101}' | sed "s,^,$f:," |
			grep . || ok=1
	done < <(
		sources '\.(c|h|def|awk|mk)$|^Makefile$|^\.ci/run$'
		sources '^(interpose|kernels|runtime|trace)/.*\.(inl|cu|py)$'
		sources '^scripts/.*\.(sh|bash|py)$'
	)
	return $ok
}

# Finds comments that postpone work.
words() {
	! sources '\.(c|h|cu|inl|def|sh|awk|md|map|mk)$|Makefile' | grep -v '^scripts/lint.sh$' |
		xargs grep -nE \
		'\b(TODO|FIXME|XXX|HACK|[Ff]or now|[Pp]laceholder)\b|[Nn]ot (yet )?implemented'
}

# Another compiler's warnings must appear before a package's build finds them.
clang_ok() {
	command -v clang >/dev/null || return 0
	make --no-print-directory syntax
}

scripts_ok() {
	sources '\.sh$|^\.ci/run$' | xargs shellcheck -S warning -e SC1007
}

man_ok() {
	# shellcheck disable=SC2046 # names without spaces
	mandoc -T lint -W warning $(sources '^docs/man/')
}

step "form (clang-format)" format
step "warnings of clang" clang_ok
step "layers" scripts/check_layers.sh
step "calls" scripts/check_calls.sh
step "headers" scripts/check_headers.sh
step "rooms" scripts/check_rooms.sh
step "memory order" scripts/check_order.sh
step "exports" exports
step "CUDA driver functions" scripts/check_cuda_api.sh
step "opening comments" openings
step "columns" columns
step "shell scripts" scripts_ok
step "manual pages" man_ok
step "documents in step" in_step
step "commands of documents" tests/run.sh docs/t_documents
step "words" words
step "English" scripts/check_english.sh
exit $bad
