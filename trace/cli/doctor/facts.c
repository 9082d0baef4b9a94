/*
 * Facts about this machine: the conditions of a result, and for people versions, topology, and
 * network. It creates no context, but it runs as a part, because any call of the driver may hang.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/first_line.h"
#include "runtime/base/version.h"
#include "runtime/evidence/evidence_file.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/doctor/doctor.h"
#include "trace/cli/run/run.h"

static void *driver;

static void *find(const char *name)
{
	return dlsym(driver, name);
}

/* Reports and returns the version of the library; 0 if there is none. */
static int nccl_version(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	int (*version)(int *), v = 0;
	Dl_info where;

	*(void **)&version = lib ? dlsym(lib, "ncclGetVersion") : NULL;
	if (!version || version(&v)) {
		df_doctor_tell("fact\tNCCL\tnone: %s", lib ? "not an NCCL" : dlerror());
		return 0;
	}
	df_doctor_tell("fact\tNCCL\t%d.%d.%d, %s", v / 10000, v / 100 % 100, v % 100,
		       dladdr(*(void **)&version, &where) ? where.dli_fname : library);
	return v;
}

/* Reports each entry of a folder of /sys with the contents of one of its files. */
static void network(const char *kind, const char *folder, const char *file)
{
	char path[PATH_MAX], said[64], all[700] = "";
	DIR *d = opendir(folder);
	struct dirent *e;
	size_t n = 0;

	while (d && (e = readdir(d)) && n < sizeof(all) - 100) {
		if (*e->d_name == '.' || !strcmp(e->d_name, "lo"))
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", folder, e->d_name, file);
		df_first_line(path, said, sizeof(said));
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%.32s %.40s", n ? ", " : "",
				      e->d_name, *said ? said : "?");
	}
	if (d)
		closedir(d);
	df_doctor_tell("fact\t%s\t%s", kind, *all ? all : "none");
}

/* Reports which GPUs can access each other, and where they are. */
static void topology(int nr)
{
	int (*can)(int *, int, int), (*bus)(char *, int, int), (*get)(int *, int);
	char id[32], path[128], numa[16], text[700] = "";
	int i, j, yes, a, b;
	size_t n = 0;

	*(void **)&can = find("cuDeviceCanAccessPeer");
	*(void **)&bus = find("cuDeviceGetPCIBusId");
	*(void **)&get = find("cuDeviceGet");
	for (i = 0; i < nr && n < sizeof(text) - 160; i++) {
		if (!get || get(&a, i))
			continue;
		*numa = *id = '\0';
		if (bus && !bus(id, sizeof(id), a)) {
			for (char *p = id; *p; p++)
				*p |= *p >= 'A' && *p <= 'F' ? 0x20 : 0;
			snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
			df_first_line(path, numa, sizeof(numa));
		}
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sGPU %d at %s, NUMA node %s",
				      n ? "; " : "", i, *id ? id : "?", *numa ? numa : "?");
		for (j = 0; can && j < nr && n < sizeof(text) - 60; j++)
			if (j != i && !get(&b, j) && !can(&yes, a, b) && !yes)
				n += (size_t)snprintf(text + n, sizeof(text) - n,
						      ", does not reach GPU %d", j);
	}
	if (nr)
		df_doctor_tell("fact\ttopology\t%s", text);
}

int df_doctor_facts(const struct df_doctor_opts *o)
{
	struct df_evidence_facts facts;
	char library[PATH_MAX], *whole, reason[256], line[256];
	struct utsname u;
	int nccl;

	df_doctor_tell("fact\tdfshim\t%s", DF_VERSION);
	if (!uname(&u))
		df_doctor_tell("fact\tsystem\t%s %s %s", u.sysname, u.release, u.machine);
	df_first_line("/proc/driver/nvidia/version", line, sizeof(line));
	if (*line)
		df_doctor_tell("fact\tdriver\t%s", line);
	nccl = nccl_version(o->nccl ? o->nccl : "libnccl.so.2");
	network("network", "/sys/class/net", "operstate");
	network("RDMA", "/sys/class/infiniband", "node_type");
	if (df_run_library("doctor", "libdfshim.so", library, sizeof(library)))
		return 1;
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		df_doctor_tell("unable\tno GPU: %s", dlerror());
		return 0;
	}
	whole = realpath(library, NULL);
	if (df_evidence_ask(find, whole ? whole : library, nccl, &facts, reason, sizeof(reason))) {
		df_doctor_tell("unable\t%s", reason);
		return 0;
	}
	if (!facts.nr_gpus)
		df_doctor_tell("unable\tno GPU: the driver has no device");
	for (char *l = strtok(facts.common, "\n"); l; l = strtok(NULL, "\n"))
		df_doctor_tell("key\t%s", l);
	for (int i = 0; i < facts.nr_gpus; i++)
		df_doctor_tell("gpu\t%s", facts.gpu[i]);
	if (*facts.refused)
		df_doctor_tell("refused\t%s", facts.refused);
	topology(facts.nr_gpus);
	return 0;
}
