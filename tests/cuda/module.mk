# Tests of the GPU backend that need no GPU: they use the test driver (tests/cuda/driver), which
# executes kernels on the CPU. Also the litmus programs of tests/gpu, which only `make check-gpu`
# builds.

# The PTX emulator executes one instruction at a time, so it is compiled with full optimisation.
PTX_EMULATOR := $(B)/tests/cuda/libptx.a
$(call obj,$(wildcard tests/cuda/ptx/*.c)): DF_CFLAGS += -O3
$(eval $(call static_lib,$(PTX_EMULATOR),$(call obj,$(wildcard tests/cuda/ptx/*.c))))
$(addprefix $(B)/tests/,cuda/t_ptx cuda/t_ptx_alu kernels/t_daemon_ptx kernels/t_clock \
	bench/b_ptx): $(PTX_EMULATOR)
$(addprefix $(B)/tests/,cuda/t_ptx cuda/t_ptx_alu kernels/t_daemon_ptx kernels/t_clock \
	bench/b_ptx): private LIBS += $(PTX_EMULATOR)

ifneq ($(HAVE_CUDA),)
FAKE_CUDA := $(B)/tests/cuda/driver/libcuda.so.1

$(FAKE_CUDA): $(call obj,$(wildcard tests/cuda/driver/*.c)) $(PTX_EMULATOR) | $(B)/libdfhost.so
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(SANFLAGS) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@ $^ -pthread \
		-ldl -lm

# The daemon as CPU code, for programs on the test driver, and the parts of our libraries that it
# needs.
DAEMON_KERNEL := $(call obj,tests/cuda/daemon_kernel.c) $(B)/libdfrt.a $(B)/libdfprog.a \
	$(B)/libdftrace.a $(B)/libdfbase.a
$(addprefix $(B)/tests/cuda/,t_backend t_byref t_leaving t_unlocked): $(firstword $(DAEMON_KERNEL))

# The tests of the test driver itself are linked with it.
$(B)/tests/cuda/t_fake $(B)/tests/cuda/t_limits: $(FAKE_CUDA)
$(B)/tests/cuda/t_fake $(B)/tests/cuda/t_limits: private LIBS += $(FAKE_CUDA) \
	-Wl,-rpath,'$(abspath $(dir $(FAKE_CUDA)))'

# One case of t_byref disables the withdrawal of slices by reference; t_leaving counts threads that
# call the driver in the background.
$(B)/tests/cuda/t_byref: private LIBS += -Wl,--wrap=df_refs_withdraw
$(B)/tests/cuda/t_leaving: private LIBS += -Wl,--wrap=df_cuda_aside

# Plain programs of the CUDA driver and runtime: they contain no code of ours.
$(B)/tests/cuda/use_driver: tests/cuda/use_driver.c tests/cuda/driver/fake.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -isystem $(CUDA_INC) -o $@ $< \
		-pthread -ldl

$(B)/tests/cuda/use_linked: tests/cuda/use_linked.c tests/cuda/driver/fake.h $(FAKE_CUDA)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -isystem $(CUDA_INC) -o $@ $< \
		$(FAKE_CUDA) -ldl

$(B)/tests/cuda/use_cudart: tests/cuda/use_cudart.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) -isystem $(CUDA_INC) -o $@ $< -L$(CUDA_LIB) \
		-Wl,-rpath,$(CUDA_LIB) -lcudart

tests: $(FAKE_CUDA) $(addprefix $(B)/tests/cuda/,use_driver use_linked use_cudart)

# The CUDA runtime for plain NCCL programs on the test driver, with the daemon's kernel: see
# tests/cuda/runtime/cudart.c.
DRY_CUDART := $(B)/tests/cuda/runtime/libcudart.so.13
$(DRY_CUDART): $(wildcard tests/cuda/runtime/*.[ch]) tests/cuda/runtime/export.map \
	interpose/hostcuda/cudart/api.def \
		tests/cuda/driver/fake.h $(DAEMON_KERNEL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(INCLUDES) -fPIC -fvisibility=hidden \
		-shared \
		-Wl,-soname,libcudart.so.13 -Wl,--version-script=tests/cuda/runtime/export.map \
		-o $@ $(filter %.c,$^) -Wl,--start-group \
		$(filter %.o %.a,$^) -Wl,--end-group -pthread -ldl -lm
tests: $(DRY_CUDART)

# A library with NCCL's functions that only logs its calls.
FAKE_NCCL := $(B)/tests/cuda/driver/libnccl.so.2
$(FAKE_NCCL): $(wildcard tests/interpose/dl/fake_nccl*.c) interpose/nccl/nccl_api.def \
	interpose/nccl/nccl_types.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -w -fPIC -shared $(SANFLAGS) -I. -Wl,-soname,libnccl.so.2 -o $@ \
		$(filter %.c,$^)

# An NCCL that executes collectives, for lanes: see tests/cuda/nccl/hostcuda.c.
LANES_NCCL := $(B)/tests/cuda/nccl/libnccl.so.2
$(LANES_NCCL): $(call obj,tests/cuda/nccl/hostcuda.c $(SRC_HOSTNCCL) \
	$(wildcard kernels/reduce_*.c)) $(B)/libdfbase.a tests/cuda/nccl/export.map
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) -Wl,--version-script=tests/cuda/nccl/export.map \
		-Wl,-z,nodelete -Wl,-z,defs \
		-Wl,-soname,libnccl.so.2 -o $@ $(filter %.o %.a,$^) -pthread -ldl
tests: $(LANES_NCCL)

# Except for the daemon kernel that they register, these programs use only NCCL and the driver.
ifneq ($(HAVE_NCCL),)
$(B)/tests/cuda/use_nccl: tests/cuda/use_nccl.c tests/cuda/driver/fake.h $(DAEMON_KERNEL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(INCLUDES) -o $@ $< -Wl,--start-group \
		$(filter %.o %.a,$^) -Wl,--end-group -L$(NCCL_LIB) -Wl,-rpath,$(NCCL_LIB) -lnccl \
		-pthread -ldl -lm

$(B)/tests/cuda/use_handover $(B)/tests/cuda/use_unable: $(B)/tests/cuda/%: tests/cuda/%.c \
	tests/cuda/driver/fake.h $(FAKE_CUDA) $(FAKE_NCCL) $(DAEMON_KERNEL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(INCLUDES) -o $@ $< -Wl,--start-group \
		$(filter %.o %.a,$^) -Wl,--end-group $(FAKE_CUDA) $(FAKE_NCCL) -pthread -ldl -lm

$(B)/tests/cuda/use_captured $(B)/tests/cuda/use_opaque: $(B)/tests/cuda/%: tests/cuda/%.c \
	$(FAKE_CUDA) $(FAKE_NCCL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(INCLUDES) -o $@ $^

# This program gets the driver from the loader: it is linked with it.
$(B)/tests/cuda/use_graph: $(B)/tests/cuda/%: tests/cuda/%.c tests/cuda/driver/fake.h $(FAKE_CUDA) \
	$(DAEMON_KERNEL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(INCLUDES) -o $@ $< -Wl,--start-group \
		$(filter %.o %.a,$^) -Wl,--end-group $(FAKE_CUDA) -L$(NCCL_LIB) \
		-Wl,-rpath,$(NCCL_LIB) -lnccl -pthread -ldl -lm

tests: $(addprefix $(B)/tests/cuda/,use_nccl use_handover use_unable use_captured use_opaque \
	use_graph)
endif

# The static runtime contains C++ code.
ifneq ($(and $(HAVE_CXX),$(wildcard $(CUDA_LIB)/libcudart_static.a)),)
$(B)/tests/cuda/use_cudart_static: tests/cuda/use_cudart.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) -isystem $(CUDA_INC) -o $@ $< \
		$(CUDA_LIB)/libcudart_static.a \
		-pthread -ldl -lrt -lstdc++
tests: $(B)/tests/cuda/use_cudart_static
endif
endif

# nvcc takes long for the litmus programs, so `make` does not build them.
ifneq ($(and $(NVCC),$(if $(filter-out debug,$(SAN)),,1)),)
LITMUS := $(patsubst tests/gpu/%.cu,$(B)/tests/gpu/%,$(wildcard tests/gpu/litmus_*.cu))

$(B)/tests/gpu/litmus_%: tests/gpu/litmus_%.cu tests/gpu/litmus.h tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -I. -O2 -gencode arch=compute_80,code=compute_80 \
		-gencode arch=compute_$(GPU_TEST_TARGET),code=sm_$(GPU_TEST_TARGET) -o $@ $<

# A program that times the daemon's own functions, for tests/gpu/b_daemon.sh.
$(B)/tests/gpu/daemon: tests/gpu/daemon.cu tests/gpu/litmus.h \
	$(wildcard kernels/*.h kernels/*.inl kernels/*.def) \
		tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -I. -O3 -gencode arch=compute_80,code=compute_80 \
		-gencode arch=compute_$(GPU_TEST_TARGET),code=sm_$(GPU_TEST_TARGET) -o $@ $<
litmus: $(B)/tests/gpu/daemon

# The reductions' source, compiled for the GPU.
$(B)/tests/kernels/reduce_cuda: tests/kernels/reduce_cuda.cu $(B)/libdfrt.a tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -I. -O1 -arch=sm_$(GPU_TEST_TARGET) -MD -MF $@.d -MT $@ -o $@ $< \
		$(B)/libdfrt.a
-include $(B)/tests/kernels/reduce_cuda.d
litmus: $(B)/tests/kernels/reduce_cuda

# A program with kernels of its own, for tests/gpu/b_beside.sh.
ifneq ($(HAVE_NCCL),)
$(B)/tests/gpu/beside: tests/gpu/beside.cu tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -cudart shared -O2 -gencode arch=compute_80,code=compute_80 \
		-gencode arch=compute_$(GPU_TEST_TARGET),code=sm_$(GPU_TEST_TARGET) \
		-I$(NCCL_HOME)/include -o $@ $< \
		$(addprefix -L,$(NCCL_LIB)) -lnccl
litmus: $(B)/tests/gpu/beside
endif

.PHONY: litmus
litmus: $(LITMUS)
check-gpu bench-gpu gpu-bundle: litmus
endif

# The same programs for the test driver, which executes their PTX: linked with the shared runtime,
# for one GPU generation, uncompressed.
ifneq ($(and $(NVCC),$(HAVE_CUDA),$(if $(filter-out debug,$(SAN)),,1)),)
DRY_GPU := $(patsubst tests/gpu/%.cu,$(B)/tests/cuda/gpu/%, \
	$(filter-out $(if $(HAVE_NCCL),,%/beside.cu),$(wildcard tests/gpu/*.cu)))
DRY_NVCC := $(NVCC) -std=c++17 -I. -cudart shared -gencode arch=compute_80,code=compute_80 \
	-Xfatbin -compress=false

$(DRY_GPU): $(B)/tests/cuda/gpu/%: tests/gpu/%.cu tests/gpu/litmus.h tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(DRY_NVCC) -O2 -I$(NCCL_HOME)/include -MD -MF $@.d -MT $@ -o $@ $< \
		$(if $(filter %/beside,$@),$(addprefix -L,$(NCCL_LIB)) -lnccl)

$(B)/tests/cuda/gpu/reduce_cuda: tests/kernels/reduce_cuda.cu $(B)/libdfrt.a tests/cuda/module.mk
	@mkdir -p $(@D)
	$(Q)$(DRY_NVCC) -O1 -MD -MF $@.d -MT $@ -o $@ $< $(B)/libdfrt.a

-include $(addsuffix .d,$(DRY_GPU) $(B)/tests/cuda/gpu/reduce_cuda)
tests: $(DRY_GPU) $(B)/tests/cuda/gpu/reduce_cuda
endif
