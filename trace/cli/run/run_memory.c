/*
 * Reads /proc/meminfo, the limit of a control group (version 2), and smaps_rollup of a process. A
 * file that is missing or has another format counts as no limit.
 */
#include "trace/cli/run/run_memory.h"

#include <stdio.h>
#include <string.h>

/*
 * Returns the sum of the numbers after these names at the beginning of lines. A name ends with the
 * separator.
 */
static uint64_t sum_of(const char *path, const char *const *names)
{
	FILE *f = fopen(path, "re");
	unsigned long long value;
	uint64_t sum = 0;
	char line[256];
	size_t i;

	while (f && fgets(line, sizeof(line), f))
		for (i = 0; names[i]; i++)
			if (!strncmp(line, names[i], strlen(names[i])) &&
			    sscanf(line + strlen(names[i]), "%llu", &value) == 1)
				sum += value;
	if (f)
		fclose(f);
	return sum;
}

static int is_short(uint64_t total, uint64_t available, uint64_t *free_bytes)
{
	if (!total || available >= total / 20)
		return 0;
	*free_bytes = available;
	return 1;
}

int df_run_memory_is_short(uint64_t *free_bytes)
{
	static const char *const total[] = {"MemTotal:", NULL},
				 *const available[] = {"MemAvailable:", NULL},
				 *const whole[] = {"", NULL}, *const cache[] = {"file ", NULL};
	uint64_t limit = sum_of("/sys/fs/cgroup/memory.max", whole);
	uint64_t used = sum_of("/sys/fs/cgroup/memory.current", whole);

	if (is_short(sum_of("/proc/meminfo", total) << 10, sum_of("/proc/meminfo", available) << 10,
		     free_bytes))
		return 1;
	used -= limit ? sum_of("/sys/fs/cgroup/memory.stat", cache) : 0;
	return is_short(limit, limit > used ? limit - used : 0, free_bytes);
}

uint64_t df_run_memory_own(pid_t pid)
{
	static const char *const own[] = {"Private_Clean:", "Private_Dirty:", "Swap:", NULL};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	return sum_of(path, own) << 10;
}
