# Tests of libdfhost.so: tests/hostcuda/programs/p_*.c are plain programs of the CUDA runtime API,
# linked with NVIDIA's libcudart where there is one and with libdfhost.so itself otherwise;
# tests/hostcuda/t_*.sh run them with libdfhost.so preloaded.
ifneq ($(HAVE_CUDA),)

HOSTCUDA_PROGS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/hostcuda/programs/p_*.c))

tests: $(HOSTCUDA_PROGS)

$(B)/tests/hostcuda/programs/p_%: tests/hostcuda/programs/p_%.c tests/hostcuda/programs/cu.h \
	tests/hostcuda/programs/drv.h interpose/hostcuda/hostcuda.h $(B)/libdfhost.so
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) -D_GNU_SOURCE $(SANFLAGS) $(CFLAGS) -I. -isystem $(CUDA_INC) \
		-o $@ $< \
		$(if $(CUDA_LIB),-L$(CUDA_LIB) -Wl$(comma)-rpath$(comma)$(CUDA_LIB) -lcudart, \
		$(B)/libdfhost.so -Wl$(comma)-rpath$(comma)'$(abspath $(B))') -pthread -ldl

endif
