#!/bin/bash
# Memory order: every acquire, release and fence has a comment with "pairs with" within six lines
# above it, and there is no volatile. scripts/gen_docs.sh makes the table in docs/memory-model.md
# from these comments.
set -u
cd "$(dirname "$0")/.." || exit 1

mapfile -t files < <(git ls-files 'interpose/*' 'runtime/*' 'kernels/*' 'trace/*' |
	grep -E '\.(c|h|cu|inl)$')
bad=0
while IFS=$'\t' read -r file line _ order text; do
	[ -n "$text" ] && continue
	echo "$file:$line: $order without 'pairs with' in the six lines above"
	bad=1
done < <(awk -f scripts/list_orders.awk "${files[@]}")
# list_orders.awk finds the uses of a macro that hides an order by the macro's name.
orders='(ATOMIC|memory_order)_(ACQ|RELEASE|SEQ|acq|release|seq)'
if grep -nE "^#[[:space:]]*define\b.*$orders" "${files[@]}" |
	grep -vE 'define[[:space:]]+\w*(_REL|_ACQ|acquire|release|acq_rel)[a-z_]*\('; then
	echo "a macro that hides an order is called ..._ACQ or ..._REL"
	bad=1
fi
if grep -nE '\bvolatile\b' "${files[@]}" |
	grep -vE '(__asm__|asm)[[:space:]]+volatile|:[[:space:]]*(/?\*|//)|/\*.*volatile.*\*/'; then
	echo "volatile is not a memory order"
	bad=1
fi
exit $bad
