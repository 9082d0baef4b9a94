# dfshim: one Makefile, no configure step, everything below build/.
#
#   make            libraries, CLI, clients            make check      all tests that need no GPU
#   make demo       the main job, explained            make lint       form, layers, tables
#   make bench      figures                            make tsan asan  the tests under sanitizers
#
# Sources are found by folder, so a new file needs no line here. SAN=thread|address builds a variant
# into its own folder.

SAN ?=
B := build$(if $(SAN),/$(SAN))
CC ?= gcc
AR ?= ar
PREFIX ?= /usr/local
DESTDIR ?=
V ?=
Q := $(if $(V),,@)

# -- what is here ---------------------------------------------------------------------------------
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda) $(wildcard /opt/cuda) $(abspath build/cuda))
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_INC := $(CUDA_HOME)/include
CUDA_LIB := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart.so) $(wildcard $(CUDA_HOME)/lib/libcudart.so))
HAVE_NCCL := $(wildcard $(CUDA_INC)/nccl.h)
HAVE_CUDA := $(wildcard $(CUDA_INC)/cuda_runtime_api.h)
HAVE_VERBS := $(wildcard /usr/include/infiniband/verbs.h)

SANFLAGS := $(if $(filter thread,$(SAN)),-fsanitize=thread)$(if $(filter address,$(SAN)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined)
comma := ,
SANFLAGS := $(if $(filter thread,$(SAN)),-fsanitize=thread)$(if $(filter address,$(SAN)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined)
CFLAGS ?= -O2 -g
DF_CFLAGS := -std=gnu11 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -fno-strict-aliasing -pthread \
	-I. -I$(B)/gen $(if $(HAVE_CUDA),-isystem $(CUDA_INC)) $(if $(HAVE_VERBS),-DHAVE_VERBS) $(SANFLAGS) $(CFLAGS)
DEPFLAGS = -MMD -MP

# -- sources --------------------------------------------------------------------------------------
SRC_BASE := $(wildcard runtime/base/*.c)
SRC_PROG := $(wildcard runtime/program/*.c runtime/program/library/*.c)
SRC_RT := $(wildcard runtime/*.c runtime/device/*.c runtime/transport/*.c runtime/ctl/*.c) $(wildcard kernels/*.c)
SRC_TRACE := $(wildcard trace/*.c)
SRC_SIM := $(wildcard trace/sim/*.c)
SRC_CLI := $(wildcard trace/cli/*.c)
SRC_INTER := $(wildcard interpose/*.c)
SRC_HOST := $(wildcard interpose/hostcuda/*.c)
SRC_TESTLIB := $(wildcard tests/lib/*.c)
SRC_CLIENT := $(wildcard tests/clients/*.c)
SRC_TEST := $(wildcard tests/*/t_*.c)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(SRC_TEST))
CLIENTS := $(if $(HAVE_NCCL),$(patsubst tests/clients/%.c,$(B)/clients/%,$(SRC_CLIENT)))

LIBS := $(B)/libdfbase.a $(B)/libdfprog.a $(B)/libdftrace.a $(B)/libdfsim.a $(B)/libdfrt.a
PRODUCTS := $(LIBS) $(B)/libdfshim.so $(B)/libdfhost.so $(B)/dfshim $(CLIENTS)

.PHONY: all tests check demo bench lint tsan asan fuzz install clean check-gpu bench-gpu stress
all: $(PRODUCTS)
	$(Q)$(if $(HAVE_CUDA),:,echo "left out: clients and the CUDA runtime on the CPU: no cuda_runtime_api.h below $(CUDA_HOME)")
	$(Q)$(if $(HAVE_NCCL),:,echo "left out: NCCL interception and clients: no nccl.h below $(CUDA_HOME)")
	$(Q)$(if $(NVCC),:,echo "left out: GPU code: no nvcc")
	$(Q)$(if $(HAVE_VERBS),:,echo "left out: verbs transport: no infiniband/verbs.h")

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(DF_CFLAGS) $(DEPFLAGS) -c -o $@ $<

define static_lib
$(1): $(2)
	@rm -f $$@; mkdir -p $$(@D)
	$(Q)$(AR) rcs $$@ $$^
endef
$(eval $(call static_lib,$(B)/libdfbase.a,$(call obj,$(SRC_BASE))))
$(eval $(call static_lib,$(B)/libdfprog.a,$(call obj,$(SRC_PROG))))
$(eval $(call static_lib,$(B)/libdftrace.a,$(call obj,$(SRC_TRACE))))
$(eval $(call static_lib,$(B)/libdfsim.a,$(call obj,$(SRC_SIM))))
$(eval $(call static_lib,$(B)/libdfrt.a,$(call obj,$(SRC_RT))))

# libdfshim.so lives in other people's processes: libc only, nothing exported but the table's names.
$(B)/libdfshim.so: $(call obj,$(SRC_INTER)) $(B)/libdfrt.a $(B)/libdfprog.a $(B)/libdftrace.a $(B)/libdfbase.a interpose/export.map
	$(Q)$(CC) -shared $(SANFLAGS) -Wl,--version-script=interpose/export.map -Wl,-z,nodelete -Wl,-z,defs \
		-o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -pthread -ldl

$(B)/libdfhost.so: $(call obj,$(SRC_HOST)) $(B)/libdfbase.a interpose/hostcuda/export.map
	$(Q)$(CC) -shared $(SANFLAGS) -Wl,--version-script=interpose/hostcuda/export.map -Wl,-z,nodelete -Wl,-z,defs \
		-Wl,-soname,libdfhost.so -o $@ $(filter %.o %.a,$^) -pthread -ldl

$(B)/dfshim: $(call obj,$(SRC_CLI)) $(LIBS)
	$(Q)$(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(LIBS) -Wl,--end-group -pthread -ldl -lm -ljansson

# Plain NCCL programs: nothing of ours in them.
$(B)/clients/%: tests/clients/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -Wall -Wextra -Werror $(CFLAGS) $(SANFLAGS) -isystem $(CUDA_INC) -o $@ $< \
		-L$(dir $(CUDA_LIB)) -Wl,-rpath,$(dir $(CUDA_LIB)) -lnccl -lcudart -pthread -lm

$(B)/tests/%: $(B)/obj/tests/%.o $(call obj,$(SRC_TESTLIB)) $(LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(LIBS) -Wl,--end-group \
		$(shell pkg-config --libs check 2>/dev/null || echo -lcheck) -pthread -ldl -lm -ljansson

tests: all $(TESTS)

-include $(wildcard kernels/module.mk scripts/module.mk tests/module.mk)
-include $(shell find $(B) -name '*.d' 2>/dev/null)

clean:
	rm -rf build
