/*
 * The path of a device in sysfs names every bridge above it:
 * .../pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0. The first is the host bridge. A switch
 * adds two: its upstream bridge and its downstream bridge.
 */
#include "runtime/base/net/pci.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/first_line.h"

#define SWITCH 2 /* components of a path: a switch's downstream bridge, and the device */

const char *df_pci_name(enum df_pci_path path)
{
	static const char *const names[] = {"LOC", "PIX", "PXB", "PHB", "SYS"};

	return path < DF_ARRAY_LEN(names) ? names[path] : "unknown";
}

/*
 * Returns the path below the host bridge, "/0000:15:01.0/0000:16:00.0", or NULL if it is on no PCI
 * bus.
 */
static const char *below_host(const char *path)
{
	const char *at = path, *end;

	while ((at = strstr(at, "/pci"))) {
		at += 4;
		for (end = at; isxdigit((unsigned char)*end); end++)
			;
		if (end == at || *end != ':')
			continue;
		end = strchr(end, '/');
		return end && end[1] ? end : NULL;
	}
	return NULL;
}

static int parts(const char *path)
{
	int n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

static int numa_node(const char *path)
{
	char file[PATH_MAX], text[16];

	if (snprintf(file, sizeof(file), "%s/numa_node", path) >= (int)sizeof(file))
		return -1;
	df_first_line(file, text, sizeof(text));
	return *text ? atoi(text) : -1;
}

enum df_pci_path df_pci_path(const char *a, const char *b)
{
	char at[PATH_MAX], bt[PATH_MAX];
	const char *x, *y;
	size_t i, common = 0;

	if (!realpath(a, at) || !realpath(b, bt))
		return DF_PCI_UNKNOWN;
	x = below_host(at);
	y = below_host(bt);
	if (!x || !y)
		return DF_PCI_UNKNOWN;
	if (!strcmp(at, bt))
		return DF_PCI_LOC;
	if (x - at != y - bt || strncmp(at, bt, (size_t)(x - at)))
		return numa_node(at) == numa_node(bt) ? DF_PCI_PHB : DF_PCI_SYS;
	/* Find the last bridge above both devices. */
	for (i = 0; x[i] && x[i] == y[i]; i++)
		if (x[i] == '/')
			common = i;
	if (!common)
		return DF_PCI_PHB;
	return parts(x + common) <= SWITCH && parts(y + common) <= SWITCH ? DF_PCI_PIX : DF_PCI_PXB;
}

enum df_pci_path df_pci_to(const char *gpu, const char *path)
{
	char at[64];

	if (!*gpu)
		return DF_PCI_UNKNOWN;
	snprintf(at, sizeof(at), "/sys/bus/pci/devices/%s", gpu);
	return df_pci_path(at, path);
}

enum df_pci_path df_pci_to_verbs(const char *gpu, const char *device)
{
	char at[128];

	snprintf(at, sizeof(at), "/sys/class/infiniband/%s/device", device);
	return df_pci_to(gpu, at);
}

const char *df_pci_refuses(enum df_pci_path path)
{
	/*
	 * The longest path that NCCL_NET_GDR_LEVEL allows, in the order of the values in its row of
	 * env.def.
	 */
	static const enum df_pci_path longest[] = {DF_PCI_LOC, DF_PCI_LOC, DF_PCI_LOC, DF_PCI_LOC,
						   DF_PCI_PIX, DF_PCI_PXB, DF_PCI_PXB, DF_PCI_PXB,
						   DF_PCI_PHB, DF_PCI_SYS, DF_PCI_LOC, DF_PCI_PIX,
						   DF_PCI_PXB, DF_PCI_PHB, DF_PCI_SYS, DF_PCI_SYS};
#define TEXT(path)                                                                                 \
	"NCCL_NET_GDR_LEVEL does not allow it: the path from the GPU to the nearest RDMA port "    \
	"is " path
	static const char *const texts[] = {TEXT("LOC"), TEXT("PIX"), TEXT("PXB"),
					    TEXT("PHB"), TEXT("SYS"), TEXT("unknown")};
#undef TEXT
	enum df_pci_path limit = longest[df_env()->nccl_net_gdr_level];

	return path <= limit || (path == DF_PCI_UNKNOWN && limit != DF_PCI_LOC) ? NULL
										: texts[path];
}
