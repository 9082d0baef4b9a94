/*
 * Unique ids: 128 bytes that the application copies as it likes. Bytes 0 to 39 look like NCCL's own
 * handle (random magic, address); bytes 40 to 127 are ours. Stateless except for the rendezvous
 * that df_id_create() opens.
 */
#include "runtime/dfshim.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/ctl/rdv.h"

_Static_assert(sizeof(struct df_id_tail) == DF_ID_BYTES - DF_ID_TAIL, "the tail of an id");

static void put_address(struct df_id_tail *t, const union df_sockaddr *addr)
{
	if (addr->sa.sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->storage;

		memcpy(t->ip, &in6->sin6_addr, 16);
		t->flags |= DF_ID_HAS_TCP6;
	} else {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->storage;

		memcpy(t->ip, &in->sin_addr, 4);
		t->flags |= DF_ID_HAS_TCP4;
	}
	t->port = (uint16_t)df_addr_port(addr);
}

void df_id_address(const struct df_id_tail *t, union df_sockaddr *out)
{
	memset(out, 0, sizeof(*out));
	if (t->flags & DF_ID_HAS_TCP6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->storage;

		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, t->ip, 16);
		in6->sin6_port = htons(t->port);
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)&out->storage;

		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, t->ip, 4);
		in->sin_port = htons(t->port);
	}
}

const char *df_id_at(const struct df_id_tail *t, char text[DF_ADDR_TEXT])
{
	union df_sockaddr addr;

	text[0] = '\0';
	if (t->flags & (DF_ID_HAS_TCP4 | DF_ID_HAS_TCP6)) {
		df_id_address(t, &addr);
		df_addr_format(&addr, text, DF_ADDR_TEXT);
	}
	return text;
}

/*
 * Writes the first bytes as the real library would. A rank that runs without dfshim then connects
 * to our socket, and dfshim notices it.
 */
static void put_front(unsigned char id[128], uint64_t magic, const union df_sockaddr *addr)
{
	memset(id, 0, DF_ID_TAIL);
	memcpy(id, &magic, 8);
	if (addr->sa.sa_family == AF_INET6)
		memcpy(id + 8, &addr->storage, sizeof(struct sockaddr_in6));
	else
		memcpy(id + 8, &addr->storage, sizeof(struct sockaddr_in));
}

/* Makes the tail of an id that this process serves. addr: its address, for the front. */
static int make_tail(uint64_t magic, struct df_id_tail *t, union df_sockaddr *addr)
{
	struct df_member self;
	int ret;

	memset(t, 0, sizeof(*t));
	t->magic = magic;
	t->version = DF_CTL_WIRE_VERSION;
	ret = df_ctl_self(&self);
	if (ret)
		return ret;
	if (!self.tcp[0] || df_addr_parse(self.tcp, addr, 1)) {
		struct sockaddr_in *in = (struct sockaddr_in *)&addr->storage;

		memset(addr, 0, sizeof(*addr));
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		put_address(t, addr);
	}
	t->nonce = df_addr_random();
	t->proc = self.proc;
	t->sock = self.sock;
	t->pid = self.pid;
	t->host = self.host;
	return df_key_make(&t->secret);
}

int df_id_create(unsigned char id[DF_ID_BYTES])
{
	uint64_t front = df_addr_random();
	union df_sockaddr addr;
	unsigned char out[128];
	struct df_id_tail t;
	int ret;

	ret = make_tail(DF_ID_MAGIC, &t, &addr);
	if (ret)
		return ret;
	put_front(out, front, &addr);
	memcpy(out + DF_ID_TAIL, &t, sizeof(t));
	ret = df_rdv_open(&t, front);
	if (ret)
		return ret;
	memcpy(id, out, sizeof(out));
	return 0;
}

/* Whether NCCL's handle leaves our bytes zero. */
static int is_free(const unsigned char id[DF_ID_BYTES])
{
	for (size_t i = DF_ID_TAIL; i < DF_ID_BYTES; i++)
		if (id[i])
			return 0;
	return 1;
}

int df_id_name(unsigned char id[DF_ID_BYTES], uint64_t name)
{
	struct df_id_tail t = {
		.magic = DF_ID_NAME_MAGIC, .version = DF_CTL_WIRE_VERSION, .nonce = name};

	if (!is_free(id))
		return -EBUSY;
	memcpy(id + DF_ID_TAIL, &t, sizeof(t));
	return 0;
}

uint64_t df_id_named(const unsigned char id[DF_ID_BYTES])
{
	struct df_id_tail t;

	memcpy(&t, id + DF_ID_TAIL, sizeof(t));
	return t.magic == DF_ID_WATCH_MAGIC || t.magic == DF_ID_NAME_MAGIC ? t.nonce : 0;
}

int df_id_watch(unsigned char id[DF_ID_BYTES], uint64_t name)
{
	union df_sockaddr addr;
	unsigned char out[128];
	struct df_id_tail t;
	int ret;

	if (!is_free(id))
		return -EBUSY;
	ret = make_tail(DF_ID_WATCH_MAGIC, &t, &addr);
	if (ret)
		return ret;
	if (name)
		t.nonce = name;
	memcpy(out, id, DF_ID_TAIL);
	memcpy(out + DF_ID_TAIL, &t, sizeof(t));
	df_id_open(out, &t);
	/* The front is NCCL's own: a rank without dfshim connects to NCCL, not to us. */
	ret = df_rdv_open(&t, 0);
	if (ret)
		return ret;
	memcpy(id, out, sizeof(out));
	return 0;
}

int df_id_from_address(const char *host_port, unsigned char id[DF_ID_BYTES])
{
	struct df_id_tail t = {.magic = DF_ID_MAGIC, .version = DF_CTL_WIRE_VERSION};
	union df_sockaddr addr;
	unsigned char out[128];

	if (df_addr_parse(host_port, &addr, 0)) {
		df_warn("NCCL_COMM_ID=%s: not of the form host:port, or the host has no address",
			host_port);
		return -EINVAL;
	}
	put_address(&t, &addr);
	t.flags |= DF_ID_BY_ADDR;
	t.nonce = df_hash_u64(df_hash_bytes(t.ip, sizeof(t.ip), DF_ID_MAGIC), t.port) | 1;
	put_front(out, DF_ID_ADDR_MAGIC, &addr);
	memcpy(out + DF_ID_TAIL, &t, sizeof(t));
	memcpy(id, out, sizeof(out));
	return 0;
}

int df_id_open(const unsigned char id[128], struct df_id_tail *out)
{
	struct df_id_tail t;

	memcpy(&t, id + DF_ID_TAIL, sizeof(t));
	if (t.magic != DF_ID_MAGIC && t.magic != DF_ID_WATCH_MAGIC)
		return -EPROTO;
	/*
	 * NCCL logs its hash of all 128 bytes, which reveals 64 bits of them. NCCL's handle in
	 * front has 64 random bits. The secret is made of both, so 128 bits of it remain unknown.
	 */
	if (t.magic == DF_ID_WATCH_MAGIC)
		t.secret = df_siphash(&t.secret, id, DF_ID_TAIL);
	*out = t;
	return 0;
}

int df_id_is_ours(const unsigned char id[DF_ID_BYTES])
{
	struct df_id_tail t;

	return !df_id_open(id, &t) && t.magic == DF_ID_MAGIC;
}

int df_id_is_watched(const unsigned char id[DF_ID_BYTES])
{
	struct df_id_tail t;

	return !df_id_open(id, &t) && t.magic == DF_ID_WATCH_MAGIC;
}

/*
 * The hash by which NCCL's logs name a communicator. Since NCCL 2.23 it is this: two accumulators
 * that absorb eight bytes at a time; before, it was a DJB2a over the bytes. Words are
 * little-endian, as on every machine that NCCL runs on.
 *
 * The result is public and the function can be inverted. So the bytes of our ids that outsiders
 * must not learn count as zero: the secret, and the random front, by which a rank without dfshim is
 * recognised. NCCL never reads our ids.
 */
uint64_t df_id_hash(const unsigned char id[DF_ID_BYTES])
{
	const size_t secret = DF_ID_TAIL + offsetof(struct df_id_tail, secret);
	uint64_t a = 1 ^ DF_ID_BYTES, b = 1, word;
	int ours = df_id_is_ours(id);
	size_t i;

	for (i = 0; i < DF_ID_BYTES; i += sizeof(word)) {
		a += b;
		b ^= a;
		a = (a ^ a >> 31) * 0x9de62bbc8cef3ce3ull;
		b = (b ^ b >> 32) * 0x485cd6311b599e79ull;
		memcpy(&word, id + i, sizeof(word));
		if (ours && (i < 8 || (i >= secret && i < secret + sizeof(struct df_key))))
			word = 0;
		a += word;
	}
	a = (a ^ a >> 31) * 0xbac3bd562846de6bull + b;
	a = (a ^ a >> 32) * 0x995a187a14e7b445ull;
	return a;
}
