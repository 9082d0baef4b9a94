/*
 * Evidence of a hardware fault: files that stand for the kernel's log and for RDMA ports. Messages
 * from before the start, other messages, and counters that do not rise are no evidence.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "runtime/watch/hardware.h"
#include "tests/lib/test.h"

static char root[256], all[4096];

static void put(const char *name, const char *text)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		ck_assert(!mkdir(path, 0777) || errno == EEXIST);
	}
	f = fopen(path, "w");
	ck_assert_msg(f && fputs(text, f) >= 0 && !fclose(f), "%s: %s", path, strerror(errno));
}

static void say(void *arg, const char *text)
{
	++*(int *)arg;
	snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s\n", text);
}

static int look(struct df_hardware *h, const char *want)
{
	int nr = 0;

	all[0] = '\0';
	df_hardware_look(h, say, &nr);
	ck_assert_msg(!strcmp(all, want), "got:\n%s\nwanted:\n%s", all, want);
	return nr;
}

START_TEST(test_faults)
{
#define PORT "sys/class/infiniband/mlx5_3/ports/1/"
	struct df_hardware h;

	snprintf(root, sizeof(root), "%s/hardware", getenv("T") ? getenv("T") : "/tmp");
	ck_assert(!mkdir(root, 0777) || errno == EEXIST);
	put(PORT "state", "4: ACTIVE\n");
	put(PORT "counters/link_downed", "3\n");
	put(PORT "counters/symbol_error", "7\n");
	put(PORT "hw_counters/packet_seq_err", "no number\n");
	put("dev/kmsg", "6,1,900,-;NVRM: Xid (PCI:0000:3b:00): 13, before the job\n");
	df_hardware_open(&h, root, 1000);
	look(&h, "");
	put("dev/kmsg",
	    "6,1,900,-;NVRM: Xid (PCI:0000:3b:00): 13, before the job\n"
	    "6,2,1500,-;usb 1-1: new device\n"
	    "3,3,2000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has \x1b[2Jfallen off the bus.\n"
	    " SUBSYSTEM=pci\n"
	    "nonsense;\n");
	look(&h,
	     "the kernel's log: NVRM: Xid (PCI:0000:3b:00): 79, GPU has ?[2Jfallen off the bus.\n");
	look(&h, "");
	put(PORT "counters/link_downed", "4\n");
	put(PORT "counters/symbol_error", "5\n");
	put(PORT "state", "1: DOWN\n");
	look(&h, "mlx5_3 port 1: link_downed +1, its state is 1: DOWN\n");
	look(&h, "");
}
END_TEST

/* Without the files, or without the right to read them, there is no evidence. */
START_TEST(test_nothing)
{
	struct df_hardware h;

	df_hardware_open(&h, "/nowhere", 0);
	ck_assert_int_eq(look(&h, ""), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("hardware", {test_faults}, {test_nothing});
}
