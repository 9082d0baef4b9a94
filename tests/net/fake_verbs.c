/*
 * A libibverbs of two devices, for what `dfshim net` reads: rocex with an active Ethernet port and one that is down; ibx
 * with an InfiniBand port that has a FLID; badx cannot be opened. FAKE_VERBS=none: no device; hang: opening does not
 * return.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
/* What we fill is what the real one has. */
_Static_assert(offsetof(struct ibv_port_attr, gid_tbl_len) == 12, "");
_Static_assert(offsetof(struct ibv_port_attr, active_width) == 43, "");
_Static_assert(offsetof(struct ibv_port_attr, link_layer) == 46, "");
_Static_assert(IBV_PORT_ACTIVE == 4 && IBV_LINK_LAYER_ETHERNET == 2 && IBV_MTU_4096 == 5, "");
#endif

enum { ROCE, IB, BAD, NR };
static int devices[NR] = {ROCE, IB, BAD};
static const char *const names[NR] = {"rocex", "ibx", "badx"};

#define EXPORT(name) __asm__(#name) __attribute__((visibility("default")))

void **get_list(int *nr) EXPORT(ibv_get_device_list);
void free_list(void **list) EXPORT(ibv_free_device_list);
const char *get_name(void *device) EXPORT(ibv_get_device_name);
void *open_it(void *device) EXPORT(ibv_open_device);
int close_it(void *context) EXPORT(ibv_close_device);
int query_port(void *context, uint8_t port, void *attr) EXPORT(ibv_query_port);
int query_gid(void *context, uint8_t port, int index, void *gid) EXPORT(ibv_query_gid);

static int is_mode(const char *mode)
{
	const char *is = getenv("FAKE_VERBS");

	return is && !strcmp(is, mode);
}

void **get_list(int *nr)
{
	void **list = calloc(NR + 1, sizeof(*list));
	int i;

	*nr = is_mode("none") ? 0 : NR;
	for (i = 0; i < *nr; i++)
		list[i] = &devices[i];
	return list;
}

void free_list(void **list)
{
	free(list);
}

const char *get_name(void *device)
{
	return names[*(int *)device];
}

void *open_it(void *device)
{
	while (is_mode("hang"))
		pause();
	errno = EACCES;
	return *(int *)device == BAD ? NULL : device;
}

int close_it(void *context)
{
	(void)context;
	return 0;
}

int query_port(void *context, uint8_t port, void *attr)
{
	int device = *(int *)context;
	uint8_t *a = attr;

	if (port < 1 || port > (device == ROCE ? 2 : 1))
		return EINVAL;
	memset(a, 0, 48); /* no byte more: the exported function's structure ends there */
	memcpy(a, &(uint32_t){device == ROCE && port == 2 ? 1 : 4}, 4); /* down, active */
	memcpy(a + 8, &(uint32_t){device == ROCE ? 3 : 5}, 4);		/* MTU 1024, 4096 */
	memcpy(a + 12, &(int32_t){device == ROCE ? 5 : 2}, 4);
	memcpy(a + 34, &(uint16_t){device == IB ? 77 : 0}, 2);
	a[43] = 2;			   /* four lanes */
	a[44] = device == ROCE ? 32 : 128; /* EDR, NDR */
	a[46] = device == ROCE ? 2 : 1;
	return 0;
}

int query_gid(void *context, uint8_t port, int index, void *gid)
{
	static const char *const roce[] = {"fe80::1", "::", "2001:db8::5", "::ffff:10.1.0.5",
					   "::ffff:10.2.0.5"};
	static const char *const ib[] = {"fe80::2", "fec0:0:9::2"};

	(void)port;
	if (index < 0 || index >= (*(int *)context == ROCE ? 5 : 2))
		return EINVAL;
	return inet_pton(AF_INET6, *(int *)context == ROCE ? roce[index] : ib[index], gid) == 1
		       ? 0
		       : EINVAL;
}
