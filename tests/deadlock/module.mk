# The interpreter of the deadlock suite, and training with fused gradients: plain NCCL and CUDA programs, nothing of
# ours in them.
ifneq ($(HAVE_NCCL),)
PLAIN := $(addprefix $(B)/tests/deadlock/,interpreter/script fusion recorded)
tests: $(PLAIN)
$(B)/tests/deadlock/interpreter/script: $(addprefix tests/deadlock/interpreter/,script_text.c oracle.c)
$(PLAIN): $(B)/tests/deadlock/%: tests/deadlock/%.c \
		$(wildcard tests/deadlock/interpreter/*.h) tests/clients/client.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) $(filter -isystem /%,$(INCLUDES)) -o $@ $(filter %.c,$^) \
		$(addprefix -L,$(CUDA_LIB) $(NCCL_LIB)) $(addprefix -Wl$(comma)-rpath$(comma),$(CUDA_LIB) $(NCCL_LIB)) \
		-lnccl -lcudart -pthread -lm
endif

# Hides from libdfshim.so what libdfnccl.so has beyond NVIDIA's NCCL.
tests: $(B)/tests/deadlock/no_stop.so
$(B)/tests/deadlock/no_stop.so: tests/deadlock/no_stop.c interpose/hostnccl/hostnccl.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -fPIC -shared -o $@ $<

# The generator of programs, which labels them by the model; the evaluation of the checker.
tests: $(addprefix $(B)/tests/deadlock/,generator/random generator/threads evaluation/eval)
deadlock_obj = $(patsubst %,$(B)/obj/tests/deadlock/%.o,$(1))
$(B)/tests/deadlock/generator/threads: $(call deadlock_obj,generator/drive)
$(B)/tests/deadlock/generator/random $(B)/tests/deadlock/evaluation/eval: $(call deadlock_obj,generator/drive generator/label interpreter/script_text)
$(B)/tests/deadlock/generator/random: $(call deadlock_obj,$(addprefix generator/,random_make random_run random_judge causes))
$(B)/tests/deadlock/evaluation/eval: $(call deadlock_obj,evaluation/eval_jobs evaluation/eval_label)

# More random programs than the check has, from a new seed, before the main job of tests/stress.sh.
.PHONY: stress-programs
PROGRAMS ?= 20000
stress: stress-programs
stress-programs: tests
	@export SEED=$${SEED:-$$(date +%s)}; echo "stress-programs: SEED=$$SEED"; PROGRAMS=$(PROGRAMS) $(RUN) deadlock/t_programs

# The whole evaluation of the checker: about five minutes; its tables go into docs/evaluation.md.
.PHONY: eval-dl2
eval-dl2: all $(B)/tests/deadlock/evaluation/eval $(B)/tests/deadlock/interpreter/script
	@B='$(abspath $(B))' scripts/eval.sh

# Training with fused gradients in 20 settings (dl2's Table 3), about ten minutes; the table goes there as well.
.PHONY: eval-fusion
eval-fusion: all $(B)/tests/deadlock/fusion
	@B='$(abspath $(B))' scripts/bench.sh fusion
	@[ ! -s $(B)/bench-out/b_fusion/text ] || scripts/insert.sh docs/evaluation.md fusion $(B)/bench-out/b_fusion/text

# The answers of dfshim and torchfrtrace for the same hangs (docs/comparison.md). TORCH_PYTHON: a
# Python that has it.
.PHONY: compare
compare: all $(B)/tests/deadlock/interpreter/script
	@B='$(abspath $(B))' scripts/bench.sh frtrace
	@[ ! -s $(B)/bench-out/b_frtrace/table ] || scripts/insert.sh docs/evaluation.md frtrace $(B)/bench-out/b_frtrace/table
bench: $(B)/tests/deadlock/interpreter/script $(B)/tests/deadlock/fusion
