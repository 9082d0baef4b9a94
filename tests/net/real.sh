# A real network plugin for the tests net/t_real_*: `make check-plugins` passes it in
# NCCL_NET_PLUGIN. Sourced after tests/lib/clients.sh. A plugin that needs CUDA finds libdfhost.so
# under the names that it opens.
# shellcheck shell=bash
[ -n "${REAL_PLUGIN-}" ] || skip "no plugin of others is named: NCCL_NET_PLUGIN=FILE make check-plugins"
mkdir -p "$T/cuda"
ln -sf "$B/dfhost/libcudart.so.13" "$T/cuda/libcudart.so"
export LD_LIBRARY_PATH=$T/cuda:$B/dfhost${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export NCCL_NET_PLUGIN=$REAL_PLUGIN DFSHIM_NET=plugin DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info
counted() { awk -v k="\"$1\":" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { printf "%.0f\n", sum }' "$T/stats"; }
# over FILE...: each file must say that the plugin connects all nodes. Prints the traffic.
over() {
	grep -hm1 'INFO network plugin ' "$@" | head -n 1 | sed 's/.* INFO //'
	grep -q 'over plugin$' "$@" || fail "not over the plugin: $(grep -h 'plugin\|reach' "$@" | tail -n 20)"
	! grep -qE 'over (tcp|verbs)$' "$@" || fail "not all over the plugin: $(grep -h 'over ' "$@" | head)"
	[ "$(counted net_bytes_sent)" -gt 0 ] && [ "$(counted net_lost)" = 0 ] || fail "figures: $(cat "$T/stats")"
	echo "  $(counted net_bytes_sent) bytes, faults $(counted net_faults), healed $(counted net_healed), slices sent again $(counted net_resent)"
}
