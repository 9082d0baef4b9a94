# dfshim: one Makefile, no configure step, everything below build/.
#
#   make            libraries, CLI, clients            make check      all tests that need no GPU
#   make demo       the main job, explained            make lint       form, layers, tables
#   make check-rdma  tests that need an RDMA device, in a virtual machine
#   make check-plugins  the network plugin of NCCL_NET_PLUGIN, one of others
#   make bench      figures                            make tsan asan  the tests under sanitizers
#   make eval-dl2   precision and recall of the checker  make compare   beside torchfrtrace
#   make check-arm64  tests of a build for arm64, under an emulator
#
# Sources are found by folder, so a new file needs no line here. SAN=thread|address|debug builds a
# variant into its own folder, and so does ARCH=aarch64 (or arm64), by Debian's cross compiler with
# the libraries of scripts/package/sysroot.sh.

SAN ?=
ARCH ?=
override ARCH := $(filter-out $(shell uname -m),$(patsubst arm64,aarch64,$(ARCH)))
B := build$(if $(ARCH),/$(ARCH))$(if $(SAN),/$(SAN))
CC ?= gcc
AR ?= ar
ifneq ($(ARCH),)
ifeq ($(origin CC),default)
CC := $(ARCH)-linux-gnu-gcc -L$(CURDIR)/build/root/$(ARCH)/usr/lib/$(ARCH)-linux-gnu
AR := $(ARCH)-linux-gnu-ar
endif
# GPU code is the same for every kind of machine: what is here already is taken.
NATIVE_FATBIN := $(wildcard build/kernels/daemon.fatbin)
$(if $(NATIVE_FATBIN),$(shell install -D -p $(NATIVE_FATBIN) $(B)/kernels/daemon.fatbin))
endif
PREFIX ?= /usr/local
DESTDIR ?=
V ?=
Q := $(if $(V),,@)

# -- what is here ---------------------------------------------------------------------------------
comma := ,
first = $(firstword $(foreach f,$(1),$(wildcard $(f))))
ifeq ($(origin CUDA_HOME),undefined)
CUDA_HOME := $(shell scripts/cuda_home.sh)
endif
NCCL_HOME ?= $(patsubst %/include/nccl.h,%,$(call first,$(foreach d,$(CUDA_HOME) /usr \
	$(abspath build/cuda),$(d)/include/nccl.h)))
HAVE_CXX := $(shell command -v g++ 2>/dev/null)
# nvcc runs a host compiler for C++.
NVCC ?= $(if $(HAVE_CXX),$(firstword \
	$(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null)))
CUDA_INC := $(CUDA_HOME)/include
HAVE_CUDA := $(wildcard $(CUDA_INC)/cuda_runtime_api.h)
HAVE_VERBS := $(wildcard /usr/include/infiniband/verbs.h)
HAVE_NCCL := $(wildcard $(NCCL_HOME)/include/nccl.h)
lib_of = $(patsubst %/,%,$(dir $(call first,$(foreach d,lib64 lib lib/x86_64-linux-gnu \
	lib/aarch64-linux-gnu,$(1)/$(d)/$(2)))))
CUDA_LIB := $(call lib_of,$(CUDA_HOME),libcudart.so)
NCCL_LIB := $(call lib_of,$(NCCL_HOME),libnccl.so)
# Another machine's are not here: its clients are linked with ours, which have the same names.
ifneq ($(ARCH),)
CUDA_LIB := $(CURDIR)/$(B)/link
NCCL_LIB := $(CUDA_LIB)
endif

# Prerequisites of every build: a missing one is reported in one line, before the compiler reports
# it in many. Targets that begin with scripts/prereqs.sh install it.
PREREQS := $(patsubst /usr/include/%.h,%.h,$(filter-out $(wildcard /usr/include/*.h), \
	/usr/include/jansson.h /usr/include/uthash.h))
ifneq ($(PREREQS),)
ifneq ($(filter-out check check-gpu check-torch check-rdma check-plugins demo bench lint tsan asan \
	soak wheel deb check-packages check-arm64 uninstall clean,$(or $(MAKECMDGOALS),all)),)
$(error missing: $(PREREQS); `scripts/prereqs.sh build` installs what is needed)
endif
endif

# SAN=thread|address|fuzz|debug: into a folder of its own; warnings that sanitizers make gcc invent
# are no errors. debug has no sanitizer, only the checks of DF_DEBUG (runtime/base/lock.h), so it is
# the one that keeps the GPU code.
SANFLAGS_thread := -fsanitize=thread
SANFLAGS_address := -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined
SANFLAGS_fuzz := -fsanitize=fuzzer-no-link$(comma)address$(comma)undefined \
	-fno-sanitize-recover=undefined
SANFLAGS := $(if $(SAN),$(SANFLAGS_$(SAN)))
CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Werror $(if $(SAN),$(if $(filter-out debug,$(SAN)),-Wno-error )-DDF_DEBUG)
INCLUDES := -I. -I$(B)/gen $(if $(HAVE_CUDA),-isystem $(CUDA_INC)) \
	$(if $(HAVE_NCCL), \
		$(if $(filter /usr $(CUDA_HOME),$(NCCL_HOME)),,-isystem $(NCCL_HOME)/include))
DF_CFLAGS := -std=gnu11 $(WARN) -fPIC -fvisibility=hidden -fno-strict-aliasing \
	-ftls-model=initial-exec -pthread \
	$(INCLUDES) $(if $(HAVE_NCCL),-DHAVE_NCCL) $(SANFLAGS) $(CFLAGS)
DEPFLAGS = -MMD -MP
# The unwinder of call sites, and the tool's JSON library: packages are built with others.
UNWINDER ?= -static-libgcc
JANSSON ?= -ljansson

.PRECIOUS: $(B)/obj/%.o

# -- sources --------------------------------------------------------------------------------------
# below FOLDERS: every C file there, in the folders below them too.
below = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))
SRC_BASE := $(call below,runtime/base)
SRC_PROG := $(call below,runtime/program)
VERBS := runtime/transport/net/verbs/
SRC_VERBS := $(if $(HAVE_VERBS), \
	$(filter-out $(VERBS)absent.c,$(wildcard $(VERBS)*.c)),$(VERBS)absent.c)
SRC_RT := $(filter-out $(SRC_BASE) $(SRC_PROG) $(VERBS)%,$(call below,runtime)) $(SRC_VERBS) \
	$(call below,kernels)
SRC_SIM := $(call below,trace/sim)
SRC_PLAN := $(call below,trace/plan)
SRC_CLI := $(call below,trace/cli)
SRC_TRACE := $(filter-out $(SRC_SIM) $(SRC_PLAN) $(SRC_CLI),$(call below,trace))
SRC_CUPTI := interpose/hostcuda/cupti/cupti.c
SRC_HOST := $(filter-out $(SRC_CUPTI),$(call below,interpose/hostcuda))
SRC_HOSTNCCL := $(call below,interpose/hostnccl)
SRC_PROFILER := $(call below,interpose/profiler)
SRC_INTER := $(filter-out $(SRC_HOST) $(SRC_CUPTI) $(SRC_HOSTNCCL) $(SRC_PROFILER), \
	$(call below,interpose))
SRC_TESTLIB := $(wildcard tests/lib/*.c)
SRC_CLIENT := $(wildcard tests/clients/*.c tests/clients/check/*.c)
SRC_TEST := $(wildcard tests/*/t_*.c)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(SRC_TEST))
BENCHES := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/bench/b_*.c))
CLIENTS := $(if $(HAVE_NCCL),$(addprefix $(B)/clients/,$(basename $(notdir $(SRC_CLIENT)))))

LIBS := $(B)/libdfbase.a $(B)/libdfprog.a $(B)/libdftrace.a $(B)/libdfsim.a $(B)/libdfplan.a \
	$(B)/libdfrt.a
# NVIDIA's names for libdfhost.so, in a folder that ldconfig does not search: libraries without code
# that need it, and CUPTI's.
CUPTI_NAMES := $(addprefix $(B)/dfhost/,libcupti.so.12 libcupti.so.13)
HOST_NAMES := $(addprefix $(B)/dfhost/,libcuda.so.1 libcudart.so.12 libcudart.so.13) $(CUPTI_NAMES)
# By NCCL's rule, so that NCCL_PROFILER_PLUGIN=dfshim finds it.
PROFILER := $(B)/libnccl-profiler-dfshim.so
PRODUCTS := $(LIBS) $(if $(HAVE_NCCL),$(B)/libdfshim.so) \
	$(if $(HAVE_CUDA),$(B)/libdfhost.so $(HOST_NAMES)) $(B)/libdfnccl.so $(PROFILER) \
	$(B)/dfshim $(B)/python $(B)/libdfplan.so $(CLIENTS)

.PHONY: all tests check check-gpu check-torch check-rdma check-plugins demo bench bench-gpu \
	gpu-bundle lint syntax tsan asan fuzz stress soak wheel deb check-packages install \
	uninstall clean
all: $(PRODUCTS)
	$(Q)$(if $(HAVE_CUDA),:,echo "left out: clients and the CUDA runtime on the CPU:" \
		"no cuda_runtime_api.h below $(CUDA_HOME)")
	$(Q)$(if $(HAVE_NCCL),:,echo "left out: NCCL interception and clients:" \
		"no nccl.h below $(CUDA_HOME)")
	$(Q)$(if $(HAVE_VERBS),:,echo "left out: RDMA verbs as a network: no infiniband/verbs.h")
	$(Q)$(if $(NVCC),:,echo "left out: GPU code: no nvcc, or no g++ for it")

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(DF_CFLAGS) $(DEPFLAGS) -c -o $@ $<

# A sanitizer's start looks symbols up through our dlsym before it is ready to be called itself.
$(addprefix $(B)/obj/,interpose/load/dl_hook.o interpose/load/thread_hook.o runtime/base/dlsym.o): \
	DF_CFLAGS += -fno-sanitize=all

define static_lib
$(1): $(2)
	@rm -f $$@; mkdir -p $$(@D)
	$(Q)$(AR) rcs $$@ $$^
endef
$(eval $(call static_lib,$(B)/libdfbase.a,$(call obj,$(SRC_BASE))))
$(eval $(call static_lib,$(B)/libdfprog.a,$(call obj,$(SRC_PROG))))
$(eval $(call static_lib,$(B)/libdftrace.a,$(call obj,$(SRC_TRACE))))
$(eval $(call static_lib,$(B)/libdfsim.a,$(call obj,$(SRC_SIM))))
$(eval $(call static_lib,$(B)/libdfplan.a,$(call obj,$(SRC_PLAN))))
$(eval $(call static_lib,$(B)/libdfrt.a,$(call obj,$(SRC_RT))))

# libdfshim.so lives in other people's processes: libc only (the unwinder of trace/record/caller.c
# is in it), nothing exported but the table's names.
$(B)/libdfshim.so: $(call obj,$(SRC_INTER)) $(B)/libdfrt.a $(B)/libdfprog.a $(B)/libdftrace.a \
	$(B)/libdfbase.a interpose/load/export.map
	$(Q)$(CC) -shared $(UNWINDER) $(SANFLAGS) $(LDFLAGS) \
		-Wl,--version-script=interpose/load/export.map -Wl,-z,nodelete -Wl,-z,defs \
		-o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -pthread \
		-ldl

$(B)/libdfhost.so: $(call obj,$(SRC_HOST)) $(B)/libdfbase.a interpose/hostcuda/cudart/export.map
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) \
		-Wl,--version-script=interpose/hostcuda/cudart/export.map -Wl,-z,nodelete \
		-Wl,-z,defs \
		-Wl,-Bsymbolic -Wl,-soname,libdfhost.so -o $@ $(filter %.o %.a,$^) -pthread -ldl

$(CUPTI_NAMES): $(B)/dfhost/%: $(call obj,$(SRC_CUPTI)) $(B)/libdfbase.a
	@mkdir -p $(@D)
	$(Q)printf '%s { global: cupti*; local: *; };\n' $* >$@.map && $(CC) -shared $(SANFLAGS) \
		$(LDFLAGS) -Wl,-soname,$* -Wl,--version-script=$@.map \
		-Wl,-z,defs -o $@ $^ -pthread && rm $@.map

$(filter-out $(CUPTI_NAMES),$(HOST_NAMES)): $(B)/dfhost/%: $(B)/libdfhost.so
	@mkdir -p $(@D)
	$(Q)printf '%s { };\n' $(if $(filter libcudart%,$*),$*) >$@.map && $(CC) -shared \
		-Wl,-soname,$* -Wl,--version-script=$@.map \
		-Wl,--no-as-needed -Wl,-rpath,'$$ORIGIN/..' -o $@ -x c /dev/null -x none $< \
		&& rm $@.map

# The planner's state machine for Python: plan_handle.h is all that it exports.
$(B)/libdfplan.so: $(call obj,$(addprefix trace/plan/plan_,deft.c handle.c items.c outcome.c \
	preserve.c solve.c sync.c))
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) -Wl,-z,defs -o $@ $^ -lm

# The CUDA driver's functions with the parameters that this cuda.h declares (see
# interpose/cuda/cuda_api.def), and the names of all result codes.
CUDA_CALLS := $(B)/gen/interpose/cuda/cuda_calls.def
CUDA_CODES := $(B)/gen/interpose/hostcuda/cuda_codes.def
$(CUDA_CALLS): interpose/cuda/cuda_api.def
$(CUDA_CALLS) $(CUDA_CODES): $(B)/gen/interpose/%.def: scripts/gen_api.sh $(CUDA_INC)/cuda.h \
	$(CUDA_INC)/driver_types.h
	@mkdir -p $(@D)
	$(Q)scripts/gen_api.sh $(patsubst cuda_%,%,$(*F)) $(CUDA_INC) >$@.tmp && test -s $@.tmp \
		&& mv $@.tmp $@
$(call obj,interpose/cuda/cuda_hook.c interpose/hostcuda/driver/symbols.c \
	$(wildcard tests/cuda/driver/*.c)): | $(CUDA_CALLS)
$(call obj,interpose/hostcuda/cudart/error.c interpose/hostcuda/driver/query.c): | $(CUDA_CODES)

# The text of `dfshim --version`; written anew only where it has changed. kernels/module.mk sets
# GPU_CODE.
$(B)/obj/trace/cli/main.o: $(B)/gen/trace/cli/build.h
$(B)/gen/trace/cli/build.h: FORCE
	@mkdir -p $(@D)
	$(Q)scripts/gen_build.sh "$(CUDA_INC)" "$(NCCL_HOME)/include" "$(GPU_CODE)" $(PRODUCTS) \
		>$@.tmp
	$(Q)cmp -s $@.tmp $@ && rm $@.tmp || mv $@.tmp $@
FORCE:

# NCCL by its own rules on the memory of libdfhost.so, for jobs that are to hang as they would: it
# has NCCL's name, so that who preloads it has no other.
$(B)/libdfnccl.so: $(call obj,$(SRC_HOSTNCCL) $(wildcard kernels/reduce_*.c)) $(B)/libdfbase.a \
	interpose/hostnccl/export.map
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) \
		-Wl,--version-script=interpose/hostnccl/export.map -Wl,-z,nodelete -Wl,-z,defs \
		-Wl,-soname,libnccl.so.2 -o $@ $(filter %.o %.a,$^) -pthread -ldl

# NCCL's profiler plugin lives where libdfshim.so does not: libc only.
$(PROFILER): $(call obj,$(SRC_PROFILER)) $(B)/libdftrace.a $(B)/libdfbase.a \
	interpose/profiler/export.map
	$(Q)$(CC) -shared $(UNWINDER) $(SANFLAGS) $(LDFLAGS) \
		-Wl,--version-script=interpose/profiler/export.map -Wl,-z,nodelete -Wl,-z,defs \
		-Wl,-soname,$(@F) -o $@ $(filter %.o %.a,$^) -pthread -ldl

$(B)/dfshim: $(call obj,$(SRC_CLI)) $(LIBS)
	$(Q)$(CC) $(UNWINDER) $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group \
		$(LIBS) -Wl,--end-group -pthread -ldl -lm $(JANSSON)

# Where `dfshim run --host` finds what it brings along for Python programs.
$(B)/python:
	@mkdir -p $(B) && ln -sfn '$(CURDIR)/interpose/python' $@

# Another machine's libnccl and libcudart, as its clients see them.
$(B)/link/libnccl.so: $(B)/libdfnccl.so $(B)/libdfhost.so
	@mkdir -p $(@D) && ln -sf ../libdfnccl.so $(@D)/libnccl.so.2 && ln -sf ../libdfhost.so \
		$(@D)/libcudart.so && \
		ln -sf ../libdfhost.so $(@D)/libdfhost.so && ln -sf ../libdfnccl.so $@

# Plain NCCL programs: nothing of ours in them.
define client
$(B)/clients/%: $(1)/%.c $(wildcard tests/clients/*.h tests/clients/check/*.h) \
	$(if $(ARCH),| $(B)/link/libnccl.so)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) -std=gnu11 $$(WARN) $$(CFLAGS) $$(SANFLAGS) \
		$$(filter -isystem /%,$$(INCLUDES)) -o $$@ $$< \
		$$(addprefix -L,$$(CUDA_LIB) $$(NCCL_LIB)) \
		$$(addprefix -Wl$$(comma)-rpath$$(comma),$$(CUDA_LIB) $$(NCCL_LIB)) \
		-lnccl -lcudart -pthread -lm
endef
$(foreach d,tests/clients tests/clients/check,$(eval $(call client,$(d))))

$(B)/tests/%: $(B)/obj/tests/%.o $(call obj,$(SRC_TESTLIB)) $(LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(LIBS) -Wl,--end-group \
		$(shell pkg-config --libs check 2>/dev/null || echo -lcheck) -pthread -ldl -lm \
		-ljansson

# Tests of interpose/ link it, with a runtime of their own below it.
INTER_TEST := $(call obj,$(filter-out %/dl_hook.c %/thread_hook.c %/preload.c,$(SRC_INTER))) \
	$(B)/obj/tests/interpose/fake_runtime.o
$(B)/tests/interpose/%: $(B)/obj/tests/interpose/%.o $(INTER_TEST) $(call obj,$(SRC_TESTLIB)) \
	$(filter-out %/libdfrt.a,$(LIBS))
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group \
		$(filter-out %/libdfrt.a,$(LIBS)) -Wl,--end-group \
		$(shell pkg-config --libs check 2>/dev/null || echo -lcheck) -pthread -ldl -lm \
		-ljansson

tests: all $(TESTS) $(BENCHES)
	$(Q)$(if $(HAVE_CXX),:,echo "left out: the test of the static CUDA runtime: no g++")

# -- what people call ------------------------------------------------------------------------------
# TESTFILTER="kernels trace": parts of the suite for sanitizers. RESULTS: where result files go.
TESTFILTER ?=
RESULTS ?= build/results
BENCH ?= *
SECONDS ?= 60
RUN := B=$(B) tests/run.sh
# As many jobs as processors unless make was called with -j.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

check:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) tests
	@$(RUN) $(TESTFILTER)

demo:
	@scripts/prereqs.sh build
	@[ -e $(B)/dfshim ] || echo "demo: building, for the first time: some minutes"
	@$(SUBMAKE) all
	@B=$(B) scripts/demo.sh

tsan asan: %san:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) SAN=$(if $(filter t,$*),thread,address) tests
	@B=build/$(if $(filter t,$*),thread,address) scripts/sanitized.sh tests/run.sh $(TESTFILTER)

stress: all
	@B=$(B) tests/stress.sh

check-gpu:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) tests
	@B=$(B) scripts/gpu.sh check $(RESULTS)

# ALL=1: PyTorch's whole distributed suite; WORLDS: with these numbers of ranks. PARTS: these parts
# only. TORCH_PYTHON: a Python that has PyTorch.
check-torch:
	@scripts/prereqs.sh build check venv
	@$(SUBMAKE) all $(if $(NVCC),$(FAKE_CUDA) $(DRY_CUDART))
	@B=$(B) scripts/check_torch.sh $(if $(ALL),--all) $(PARTS)

bench-gpu: all $(BENCHES)
	@B=$(B) scripts/gpu.sh bench $(RESULTS) '$(BENCH)'

# The files that the two need, for a machine that has a GPU and no build tools: see scripts/gpu.sh.
gpu-bundle: tests
	@B=$(B) scripts/gpu.sh bundle

bench:
	@scripts/prereqs.sh build check bench
	@$(SUBMAKE) all $(BENCHES)
	@B=$(B) scripts/bench.sh '$(BENCH)'

# Hours of random programs, kills, fuzzing, full disks and low limits.
HOURS ?= 1
soak:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) tests
	@B=$(B) scripts/soak.sh $(HOURS)

# Areas whose tests run under an emulator; the rest of ARM64_TESTS are programs that need no clients
# of NVIDIA's.
ARM64_TESTS ?= unit/ transport/ trace/ kernels/
check-arm64:
	@scripts/prereqs.sh build check arm64
	@$(SUBMAKE) ARCH=aarch64 all arm64-tests
	@B=build/aarch64 scripts/emulated.sh tests/run.sh $(ARM64_TESTS)

.PHONY: check-arm64 arm64-tests
arm64-tests: $(filter $(addsuffix %,$(addprefix $(B)/tests/,$(ARM64_TESTS))),$(TESTS)) \
	$(B)/tests/deadlock/interpreter/script

check-rdma:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) tests
	@B=$(B) scripts/rdma.sh $(TESTFILTER)

# A plugin of others, beside the project: NCCL_NET_PLUGIN=FILE; tests/net/t_real_*.sh
# (docs/network.md).
check-plugins:
	@scripts/prereqs.sh build check
	@$(SUBMAKE) all
	@B=$(B) REAL_PLUGIN=$$NCCL_NET_PLUGIN tests/run.sh --jobs 1 net/t_real_

fuzz:
	@SECONDS_EACH=$(SECONDS) scripts/fuzz.sh

# libFuzzer brings main(); the libraries are instrumented for it.
ifeq ($(SAN),fuzz)
$(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer$(comma)address$(comma)undefined -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(LIBS) -Wl,--end-group -pthread -ldl -lm -ljansson
# The CLI's own readers.
$(B)/tests/fuzz/f_config: $(B)/obj/trace/cli/cmd_plan_config.o
$(B)/tests/fuzz/f_pickle: $(B)/obj/trace/cli/fr/pickle.o
endif

# Clang's warnings about the products' sources; nothing is made. The wheel's compiler is one.
syntax: $(CUDA_CALLS) $(CUDA_CODES)
	$(Q)printf '%s\n' $(SRC_BASE) $(SRC_PROG) $(SRC_RT) $(SRC_TRACE) $(SRC_SIM) $(SRC_PLAN) \
		$(SRC_CLI) $(SRC_HOST) $(SRC_CUPTI) $(SRC_INTER) | \
		xargs -P$(shell nproc) -n16 clang -fsyntax-only $(DF_CFLAGS)

# Commands of documents run on tests' libraries where there are some.
lint:
	@scripts/prereqs.sh build lint
	@$(SUBMAKE) all $(wildcard $(FAKE_CUDA) $(DRY_CUDART))
	@B=$(B) scripts/lint.sh

# -- packages --------------------------------------------------------------------------------------
wheel:
	@scripts/prereqs.sh build wheel $(if $(ARCH),arm64)
	@ARCH=$(ARCH) scripts/package/wheel.sh \
		$(patsubst $(B)/%,%,$(filter %.so %/dfshim $(HOST_NAMES),$(PRODUCTS)))

deb:
	@scripts/prereqs.sh build deb $(if $(ARCH),arm64)
	@ARCH=$(ARCH) scripts/package/debian.sh

# Both, built, installed, used and removed.
check-packages:
	@scripts/prereqs.sh build check wheel deb
	@$(SUBMAKE) tests
	@$(MAKE) --no-print-directory wheel deb
	@$(RUN) package/

# -- installation ----------------------------------------------------------------------------------
VERSION := $(shell sed -n 's/.*DF_VERSION "\(.*\)"/\1/p' runtime/base/version.h)
INST := $(DESTDIR)$(PREFIX)

# file:folder below PREFIX; these are installed, and uninstalled. NVIDIA's names go where ldconfig
# does not look, or it would take them for NVIDIA's.
INSTALLED := $(B)/dfshim:bin \
	$(patsubst %,%:lib,$(filter-out %/libdfnccl.so,$(filter %.so,$(PRODUCTS)))) \
	$(B)/libdfnccl.so:lib/dfshim $(HOST_NAMES:=:lib/dfhost) interpose/dfccl.h:include \
	$(patsubst %,%:share/man/man1,$(wildcard docs/man/*.1)) \
	$(patsubst %,%:share/man/man7,$(wildcard docs/man/*.7)) \
	$(foreach f,$(shell cd interpose/python && find dfshim -name '*.py'), \
		interpose/python/$f:share/dfshim/python/$(patsubst %/,%,$(dir $f))) \
	docs/sim.schema.json:share/dfshim \
	$(patsubst %,%:share/dfshim/sim,$(wildcard docs/sim/*.json)) \
	$(patsubst %,%:share/dfshim/plan,$(wildcard docs/plan/*.json))

install: all
	@set -e; for f in $(INSTALLED); do \
		case $$f in *dfshim:bin | *.so:* | *.so.*:*) mode=755 ;; *) mode=644 ;; esac; \
		[ ! -f "$${f%%:*}" ] || install -D -m $$mode -t "$(INST)/$${f#*:}" "$${f%%:*}"; \
	done
	install -D -m 644 scripts/dfshim.bash $(INST)/share/bash-completion/completions/dfshim
	install -d $(INST)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' scripts/dfshim.pc.in \
		>$(INST)/lib/pkgconfig/dfshim.pc

uninstall:
	@for f in $(INSTALLED); do p=$${f%%:*}; rm -f "$(INST)/$${f#*:}/$${p##*/}"; done
	rm -f $(INST)/share/bash-completion/completions/dfshim $(INST)/lib/pkgconfig/dfshim.pc
	-rm -rf $(INST)/share/dfshim/python; rmdir $(INST)/lib/dfhost $(INST)/lib/dfshim \
		$(INST)/share/dfshim/sim $(INST)/share/dfshim/plan $(INST)/share/dfshim 2>/dev/null

-include $(wildcard kernels/module.mk scripts/module.mk tests/module.mk tests/deadlock/module.mk \
	tests/cuda/module.mk tests/net/module.mk tests/rdma/module.mk tests/profiler/module.mk \
	interpose/hostcuda/module.mk)
# Not in the packages of check-rdma: they have folders of such names.
-include $(shell find $(B) -path $(B)/rdma -prune -o -name '*.d' -type f -print 2>/dev/null)

clean:
	rm -rf build
