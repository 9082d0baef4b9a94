/*
 * Description: distances of devices on the PCI bus, from sysfs. NCCL_NET_GDR_LEVEL allows some
 * distances.
 */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/net/pci.h"

static char root[64];

/*
 * Makes the device's folder and its parents. `numa` is its NUMA node; -2 makes no file with the
 * node.
 */
static const char *device(const char *path, int numa)
{
	static char at[4][300];
	static int turn;
	char *to = at[turn++ % 4], *slash, file[320];
	FILE *f;

	snprintf(to, sizeof(at[0]), "%s/devices/%s", root, path);
	for (slash = strchr(to + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(to, 0700);
		*slash = '/';
	}
	mkdir(to, 0700);
	if (numa > -2) {
		snprintf(file, sizeof(file), "%s/numa_node", to);
		f = fopen(file, "w");
		ck_assert(f != NULL);
		fprintf(f, "%d\n", numa);
		fclose(f);
	}
	return to;
}

static void start(void)
{
	snprintf(root, sizeof(root), "/tmp/t_pci.XXXXXX");
	ck_assert(mkdtemp(root) != NULL);
}

static void end(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

#define SWITCH_A "pci0000:15/0000:15:01.0/0000:16:00.0"

static const struct {
	const char *a, *b;
	int numa_a, numa_b;
	enum df_pci_path path;
} cases[] = {
	{SWITCH_A "/0000:17:00.0/0000:18:00.0", SWITCH_A "/0000:17:00.0/0000:18:00.0", 0, 0,
	 DF_PCI_LOC},
	/* Two ports of one switch. */
	{SWITCH_A "/0000:17:00.0/0000:18:00.0", SWITCH_A "/0000:17:02.0/0000:1a:00.0", 0, 0,
	 DF_PCI_PIX},
	/* Two functions of one card, without a switch. */
	{"pci0000:40/0000:40:01.0/0000:41:00.0", "pci0000:40/0000:40:01.0/0000:41:00.1", 0, 0,
	 DF_PCI_PIX},
	/* A second switch is below a port of the first. */
	{SWITCH_A "/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1b:00.0",
	 SWITCH_A "/0000:17:02.0/0000:1a:00.0", 0, 0, DF_PCI_PXB},
	/* Two ports of one host bridge. A common prefix of names is not a common folder. */
	{SWITCH_A "/0000:17:00.0/0000:18:00.0", "pci0000:15/0000:15:01.1/0000:20:00.0", 0, 0,
	 DF_PCI_PHB},
	{"pci0000:15/0000:15:05.0", "pci0000:15/0000:15:06.0", 0, 0, DF_PCI_PHB},
	/* Two host bridges of one processor, and of two processors. */
	{SWITCH_A "/0000:17:00.0/0000:18:00.0", "pci0000:37/0000:37:01.0/0000:38:00.0", 0, 0,
	 DF_PCI_PHB},
	{SWITCH_A "/0000:17:00.0/0000:18:00.0", "pci0000:97/0000:97:01.0/0000:98:00.0", 0, 1,
	 DF_PCI_SYS},
	/* A machine without NUMA nodes: -1 in the file, or no file. */
	{"pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:20/0000:20:01.0/0000:21:00.0", -1, -1,
	 DF_PCI_PHB},
	{"pci0000:00/0000:00:03.0/0000:03:00.0", "pci0000:20/0000:20:03.0/0000:23:00.0", -2, -2,
	 DF_PCI_PHB},
	/* The PCI bus is below another bus; a driver's own PCI domain. */
	{"platform/bus/pci0002:00/0002:00:00.0/0002:01:00.0",
	 "platform/bus/pci0002:00/0002:00:00.0/0002:01:00.1", 0, 0, DF_PCI_PIX},
	{"pci0000:15/0000:15:00.5/pci10000:00/10000:00:01.0/10000:01:00.0",
	 "pci0000:15/0000:15:01.0/0000:18:00.0", 0, 0, DF_PCI_PHB},
	/* No device of a PCI bus. */
	{"virtual/infiniband/rxe0", SWITCH_A "/0000:17:00.0/0000:18:00.0", -2, 0, DF_PCI_UNKNOWN},
	{"pci0000:15", SWITCH_A "/0000:17:00.0/0000:18:00.0", -2, 0, DF_PCI_UNKNOWN},
	{"pci_like/0000:01:00.0", SWITCH_A "/0000:17:00.0/0000:18:00.0", -2, 0, DF_PCI_UNKNOWN},
};

START_TEST(paths)
{
	const char *a = device(cases[_i].a, cases[_i].numa_a),
		   *b = device(cases[_i].b, cases[_i].numa_b);
	char link[200];

	ck_assert_msg(df_pci_path(a, b) == cases[_i].path && df_pci_path(b, a) == cases[_i].path,
		      "%s and %s: %s and %s, not %s", cases[_i].a, cases[_i].b,
		      df_pci_name(df_pci_path(a, b)), df_pci_name(df_pci_path(b, a)),
		      df_pci_name(cases[_i].path));
	/* In sysfs devices are found by links. */
	snprintf(link, sizeof(link), "%s/link", root);
	ck_assert_int_eq(symlink(a, link), 0);
	ck_assert_int_eq(df_pci_path(link, b), cases[_i].path);
}
END_TEST

START_TEST(absent)
{
	const char *a = device(SWITCH_A "/0000:17:00.0/0000:18:00.0", 0);

	ck_assert_int_eq(df_pci_path(a, "/nowhere/at/all"), DF_PCI_UNKNOWN);
	ck_assert_int_eq(df_pci_path("", a), DF_PCI_UNKNOWN);
	ck_assert_int_eq(df_pci_to_verbs("", "mlx5_0"), DF_PCI_UNKNOWN);
	ck_assert_int_eq(df_pci_to_verbs("ffff:ff:1f.0", "nothing"), DF_PCI_UNKNOWN);
}
END_TEST

static const struct {
	const char *level;
	enum df_pci_path longest;
	int unknown; /* whether a device at an unknown distance may be used */
} levels[] = {{NULL, DF_PCI_PXB, 1},  {"LOC", DF_PCI_LOC, 0}, {"NVL", DF_PCI_LOC, 0},
	      {"PIX", DF_PCI_PIX, 1}, {"pix", DF_PCI_PIX, 1}, {"PXB", DF_PCI_PXB, 1},
	      {"PXN", DF_PCI_PXB, 1}, {"PHB", DF_PCI_PHB, 1}, {"SYS", DF_PCI_SYS, 1},
	      {"0", DF_PCI_LOC, 0},   {"1", DF_PCI_PIX, 1},   {"2", DF_PCI_PXB, 1},
	      {"3", DF_PCI_PHB, 1},   {"4", DF_PCI_SYS, 1},   {"5", DF_PCI_SYS, 1}};

/* Each case is a process, because the variable is read once. */
START_TEST(level)
{
	enum df_pci_path path;

	if (levels[_i].level)
		setenv("NCCL_NET_GDR_LEVEL", levels[_i].level, 1);
	for (path = DF_PCI_LOC; path <= DF_PCI_UNKNOWN; path++) {
		const char *why = df_pci_refuses(path);
		int may = path == DF_PCI_UNKNOWN ? levels[_i].unknown : path <= levels[_i].longest;

		ck_assert_msg((why == NULL) == may, "%s: %s: %s", levels[_i].level,
			      df_pci_name(path), why);
		ck_assert(!why || strstr(why, df_pci_name(path)));
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("pci", {.before = start, .after = end}, {paths, DF_ARRAY_LEN(cases)},
			{absent}, {level, DF_ARRAY_LEN(levels)});
}
