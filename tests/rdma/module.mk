# The libibverbs with faults for tests/rdma/t_verbs.sh.
ifneq ($(and $(HAVE_VERBS),$(wildcard /usr/lib/*/libibverbs.so)),)
tests: $(B)/tests/rdma/libqp_error.so
$(B)/tests/rdma/libqp_error.so: tests/rdma/qp_error.c
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -fPIC -Wall -Werror -pthread -o $@ $< -libverbs
endif
