/*
 * Configurations of `dfshim sim` and `dfshim plan`: any bytes are read, or refused with a reason.
 * A configuration that is read is simulated and planned for. A plan may fail only with -ERANGE or
 * -ENOMEM. Large configurations are only read, to keep inputs fast.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace/cli/cmd_plan.h"
#include "trace/sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Limits the events of a round. With synchronisations the time of a round grows with their square.
 */
#define MAX_EVENTS 500

static void simulate(const char *path)
{
	struct df_sim_options opt = {.rounds = 2, .seed = 1, .jobs = 1};
	struct df_sim_result result;
	struct df_sim_config cfg;
	json_t *root = NULL;
	char err[600] = "";

	if (df_sim_json_load(&root, path, err, sizeof(err))) {
		if (!err[0])
			abort();
		return;
	}
	memset(&cfg, 0, sizeof(cfg));
	if (df_sim_config_from_json(&cfg, root, err, sizeof(err))) {
		if (!err[0])
			abort();
	} else {
		if (df_sim_workload_events(&cfg.load) <= MAX_EVENTS &&
		    !df_sim_run(&cfg, &opt, &result) &&
		    !(result.rounds == 2 && result.deadlocks >= 0 && result.deadlocks <= 2))
			abort();
		df_sim_config_fini(&cfg);
	}
	json_decref(root);
}

static void plan(const char *path)
{
	static struct df_plan_config c;
	struct df_plan_profile *p = &c.profile;
	struct df_plan_outcome all[4];
	double ratio = 0;
	int i, rc, rounds = 0;
	char err[600] = "";

	memset(all, 0, sizeof(all));
	rc = df_plan_config_read(&c, path, err, sizeof(err));
	if (rc && !err[0])
		abort();
	if (rc || p->nr_buckets > 12)
		return;
	rc = df_plan_ddp(p, &all[0]);
	if (!rc)
		rc = df_plan_bytescheduler(p, &all[1]);
	if (!rc)
		rc = df_plan_usbyte(p, &all[2]);
	if (!rc && c.has_walk)
		rc = df_plan_feedback(p, &c.walk, 20, &all[3], &ratio, &rounds);
	else if (!rc)
		rc = df_plan_deft_replay(p, p->nr_links, 20, &all[3]);
	if (rc && rc != -ERANGE && rc != -ENOMEM)
		abort();
	for (i = 0; i < 4; i++)
		df_plan_outcome_fini(&all[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("config", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	simulate(path);
	plan(path);
	close(fd);
	return 0;
}
