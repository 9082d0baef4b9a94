# Programs that tests/net/t_control.sh and t_verbs_stranger.sh run.
tests: $(B)/tests/net/node $(B)/tests/net/setup
