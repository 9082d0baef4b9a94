# The plugin tests/net/fake/fake_plugin.c, for jobs whose nodes it connects. Sourced after
# tests/lib/clients.sh.
# shellcheck shell=bash
CC=${CC:-gcc}
command -v "${CC%% *}" >/dev/null || skip "no C compiler"
# plugin VERSION: builds the plugin with this version of the interface; later jobs use it.
plugin() {
	NCCL_NET_PLUGIN=$T/libfake$1.so
	export NCCL_NET_PLUGIN
	[ -f "$NCCL_NET_PLUGIN" ] ||
		$CC -shared -fPIC -Wall -Werror -O1 -DVERSION="$1" -DNAME='"Fake"' -o "$NCCL_NET_PLUGIN" \
			"$SRC/tests/net/fake/fake_plugin.c" "$SRC/tests/net/fake/fake_orders.c" || fail "the plugin of ours does not build as v$1"
}
# The path must be short: addresses of Unix sockets have at most 108 bytes.
FAKE_PLUGIN_DIR=$(mktemp -d)
trap 'rm -rf "$FAKE_PLUGIN_DIR"' EXIT
export FAKE_PLUGIN_DIR FAKE_PLUGIN_LOG=$T/plugin DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info
counted() { awk -v k="\"$1\":" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { print sum + 0 }' "$T/stats"; }
# figure NAME: prints the sum of this figure over all processes that used the plugin.
figure() { awk -v k="$1" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { print sum + 0 }' "$T/plugin"; }
# says TEXT, silent TEXT: the last job printed a line with TEXT, or none.
says() { grep -qF -- "$1" "$T/out" || fail "nobody says '$1': $(grep -i 'plugin\|network\|reach' "$T/out" | tail -n 20)"; }
silent() { ! grep -qF -- "$1" "$T/out" || fail "somebody says '$1': $(grep -F -- "$1" "$T/out" | head)"; }
# job NODE_DEVICES CLIENT ARGS...: runs the job, which must succeed. Its output is in $T/out.
job() {
	rm -f "$T/stats" "$T/plugin"
	(export DFSHIM_HOST_NODE_DEVICES="$1" && host "${@:2}") >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "$*"
	}
}
