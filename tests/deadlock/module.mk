# The interpreter of the deadlock suite, a training program with fused gradients, and a program for
# mode trace. They are plain NCCL and CUDA programs that use nothing of dfshim.
ifneq ($(HAVE_NCCL),)
PLAIN := $(addprefix $(B)/tests/deadlock/,interpreter/script fusion recorded)
tests: $(PLAIN)
$(B)/tests/deadlock/interpreter/script: $(addprefix tests/deadlock/interpreter/,script_text.c \
	oracle.c)
$(PLAIN): $(B)/tests/deadlock/%: tests/deadlock/%.c \
		$(wildcard tests/deadlock/interpreter/*.h) tests/clients/client.h \
		$(if $(ARCH),| $(B)/link/libnccl.so)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(filter -isystem /%,$(INCLUDES)) -o $@ \
		$(filter %.c,$^) \
		$(addprefix -L,$(CUDA_LIB) $(NCCL_LIB)) \
		$(addprefix -Wl$(comma)-rpath$(comma),$(CUDA_LIB) $(NCCL_LIB)) \
		-lnccl -lcudart -pthread -lm
endif

# A library that hides a function of libdfnccl.so that NVIDIA's NCCL does not have.
tests: $(B)/tests/deadlock/no_stop.so
$(B)/tests/deadlock/no_stop.so: tests/deadlock/no_stop.c interpose/hostnccl/hostnccl.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -fPIC -shared -o $@ $<

# The generator of random programs, which labels each program by the model, and the evaluation of
# the checker.
tests: $(addprefix $(B)/tests/deadlock/,generator/random generator/threads evaluation/eval)
deadlock_obj = $(patsubst %,$(B)/obj/tests/deadlock/%.o,$(1))
$(B)/tests/deadlock/generator/threads: $(call deadlock_obj,generator/drive)
$(B)/tests/deadlock/generator/random $(B)/tests/deadlock/evaluation/eval: \
	$(call deadlock_obj,generator/drive generator/label interpreter/script_text)
$(B)/tests/deadlock/generator/random: $(call deadlock_obj,$(addprefix generator/,random_make \
	random_run random_judge causes))
$(B)/tests/deadlock/evaluation/eval: $(call deadlock_obj,evaluation/eval_jobs evaluation/eval_label)

# `make stress` executes random programs from a new seed, more than `make check` does, before the
# main job of tests/stress.sh.
.PHONY: stress-programs
PROGRAMS ?= 20000
stress: stress-programs
stress-programs: tests
	@export SEED=$${SEED:-$$(date +%s)}; echo "stress-programs: SEED=$$SEED"; \
		PROGRAMS=$(PROGRAMS) $(RUN) deadlock/t_programs

# Runs the whole evaluation of the checker and writes its tables into docs/evaluation.md. This takes
# about five minutes.
.PHONY: eval-dl2
eval-dl2: all $(B)/tests/deadlock/evaluation/eval $(B)/tests/deadlock/interpreter/script
	@B='$(abspath $(B))' scripts/eval.sh

# Trains with fused gradients in 20 settings (dl2's Table 3) and writes the table into
# docs/evaluation.md. This takes about ten minutes.
.PHONY: eval-fusion
eval-fusion: all $(B)/tests/deadlock/fusion
	@B='$(abspath $(B))' scripts/bench.sh fusion
	@[ ! -s $(B)/bench-out/b_fusion/text ] || scripts/insert.sh docs/evaluation.md fusion \
		$(B)/bench-out/b_fusion/text

# Compares the answers of dfshim and torchfrtrace for the same hangs (docs/comparison.md).
# TORCH_PYTHON names a Python that has torchfrtrace.
.PHONY: compare
compare: all $(B)/tests/deadlock/interpreter/script
	@B='$(abspath $(B))' scripts/bench.sh frtrace
	@[ ! -s $(B)/bench-out/b_frtrace/table ] || scripts/insert.sh docs/evaluation.md frtrace \
		$(B)/bench-out/b_frtrace/table
bench: $(B)/tests/deadlock/interpreter/script $(B)/tests/deadlock/fusion
