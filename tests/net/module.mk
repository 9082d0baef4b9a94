# The programs of tests/net/t_control.sh and t_verbs_stranger.sh.
tests: $(B)/tests/net/node $(B)/tests/net/setup
