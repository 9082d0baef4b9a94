# A program that calls the plugin as NCCL does. And a libnccl that calls the plugin, with a program
# that uses it, so that libdfshim.so can be preloaded.
PROFILED := $(B)/tests/profiler
PROFILED_NCCL := $(addprefix tests/profiler/nccl/,nccl.c nccl.h) interpose/profiler/nccl_profiler.h
tests: $(addprefix $(PROFILED)/,job preloaded/libnccl.so.2 preloaded/app)

$(PROFILED)/job: tests/profiler/job.c $(PROFILED_NCCL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -o $@ $(filter %.c,$^) -pthread -ldl

$(PROFILED)/preloaded/libnccl.so.2: tests/profiler/preloaded/libnccl.c \
	tests/interpose/dl/fake_nccl.c $(PROFILED_NCCL)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -w $(CFLAGS) $(SANFLAGS) -I. -fPIC -shared -Wl,-soname,libnccl.so.2 \
		-o $@ $(filter %.c,$^) -pthread -ldl

$(PROFILED)/preloaded/app: tests/profiler/preloaded/app.c $(PROFILED)/preloaded/libnccl.so.2
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) $(CFLAGS) $(SANFLAGS) -I. -o $@ $^ -Wl,-rpath,'$$ORIGIN'
