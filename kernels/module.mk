# The daemon's GPU code, when there is an nvcc: one fatbin with machine code for the named targets
# and PTX for later ones. The sanitizer variants test the host and leave it out.
#
#   make check-budget   registers, shared memory, spills per target -> $(B)/kernels/budget.txt

GPU_TARGETS ?= 80 90 100
GPU_PTX ?= 80
GPU_TEST_TARGET ?= 90
GPU_FLAGS := -std=c++17 -I. -O3
GPU_GENCODE = $(foreach t,$(GPU_TARGETS),-gencode arch=compute_$(t),code=sm_$(t)) \
	$(foreach t,$(GPU_PTX),-gencode arch=compute_$(t),code=compute_$(t))

.PHONY: check-budget
ifneq ($(and $(NVCC),$(if $(filter-out debug,$(SAN)),,1)),)

GPU_CODE := $(addprefix sm_,$(GPU_TARGETS)) $(addprefix compute_,$(GPU_PTX))
all: $(B)/kernels/daemon.fatbin

# The assembler's report on resources is kept beside it, for check-budget, and each generation's
# PTX: the code differs between them, so each is looked at, and executed by
# tests/kernels/t_daemon_ptx.c. Its lines are for them, not for the product.
$(B)/kernels/daemon.fatbin: kernels/daemon_cuda.cu kernels/module.mk
	@mkdir -p $(@D)/nvcc
	$(Q)$(NVCC) $(GPU_FLAGS) $(GPU_GENCODE) -lineinfo -Xptxas -v,--suppress-debug-info \
		-MD -MF $(@:.fatbin=.d) -MT $@ \
		-keep -keep-dir $(@D)/nvcc -fatbin -o $@.tmp kernels/daemon_cuda.cu \
		>$(@:.fatbin=.log) 2>&1 || \
		{ grep -v '^ptxas info' $(@:.fatbin=.log) >&2; exit 1; }
	$(Q)for t in $(GPU_TARGETS); do mv $(@D)/nvcc/daemon_cuda.compute_$$t.ptx \
		$(@D)/daemon.$$t.ptx || exit 1; done
	$(Q)rm -r $(@D)/nvcc && mv $@.tmp $@

# In the library, so that it cannot be lost or belong to another build.
$(B)/obj/runtime/device/cuda/fatbin.o: $(B)/kernels/daemon.fatbin
$(B)/obj/runtime/device/cuda/fatbin.o: DF_CFLAGS += -DDF_FATBIN='"$(B)/kernels/daemon.fatbin"'

check-budget: $(B)/kernels/daemon.fatbin
	$(Q)sh scripts/check_budget.sh $(B)/kernels "$(GPU_TARGETS)" $(CUDA_HOME)/bin

else
check-budget:
	@echo "check-budget: left out: no nvcc"
endif
