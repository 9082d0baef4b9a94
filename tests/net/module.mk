# The program of tests/net/t_control.sh.
tests: $(B)/tests/net/node
