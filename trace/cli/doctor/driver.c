/* The functions that the parts call, and their reports to the parent (doctor.h). */
#define _GNU_SOURCE
#include "trace/cli/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/time.h"

struct df_doctor_api df_api;

static const struct {
	const char *name;
	size_t at;
} names[] = {
#define DF_FN(member, name, params) {name, offsetof(struct df_doctor_api, member)},
#include "trace/cli/doctor/driver.def"
#undef DF_FN
};

void df_doctor_tell(const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	n = DF_MIN(n, (int)sizeof(text) - 2);
	for (int i = 0; i < n; i++)
		if (text[i] == '\n')
			text[i] = ' ';
	text[n++] = '\n';
	/* If the parent no longer reads, the part's work is useless. */
	if (write(DF_DOCTOR_FD, text, (size_t)n) != n)
		_exit(1);
}

char df_doctor_seen[256];
const char *df_doctor_step = "";

int df_doctor_failed(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(df_doctor_seen, sizeof(df_doctor_seen), fmt, ap);
	va_end(ap);
	return -1;
}

int df_doctor_enter(int gpu, void **context)
{
	int device;
	int ret = df_api.init(0) ?:
			  df_api.device_get(&device, gpu) ?:
				  df_api.retain(context, device) ?: df_api.ctx_set(*context);

	if (ret)
		df_doctor_tell("unable\tno context on GPU %d: the driver returned %d", gpu, ret);
	return ret;
}

int df_doctor_wait(void *stream)
{
	int r;

	while ((r = df_api.stream_query(stream)) == DF_NOT_READY)
		df_sleep_ns(20 * DF_NS_PER_US);
	return r;
}

static const char *(*last_error)(void *);

const char *df_doctor_nccl_error(void)
{
	return last_error ? last_error(NULL) : "";
}

int df_doctor_load(const char *nccl)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *from = RTLD_DEFAULT;

	if (nccl) {
		from = dlopen(nccl, RTLD_NOW | RTLD_LOCAL);
		if (!from) {
			df_doctor_tell("unable\t%s", dlerror());
			return -ENOENT;
		}
	}
	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++) {
		int is_nccl = !strncmp(names[i].name, "nccl", 4);
		void *fn = is_nccl ? dlsym(from, names[i].name)
			   : cuda  ? dlsym(cuda, names[i].name)
				   : NULL;

		if (!fn) {
			df_doctor_tell("unable\t%s has no function %s",
				       is_nccl ? "NCCL" : "the CUDA driver", names[i].name);
			return -ENOENT;
		}
		memcpy((char *)&df_api + names[i].at, &fn, sizeof(fn));
	}
	*(void **)&last_error = dlsym(from, "ncclGetLastError");
	return 0;
}
