/*
 * The protocol between nodes. The other side of a link over sockets knows all names and sends any
 * bytes, while this side creates, uses and gives up connectors. Nothing may crash, no counter of a
 * connector may leave its slots, and nothing may leak. Until the other side has proved that it
 * knows the key, nothing of the link may change.
 *
 * Input: steps (enum step), each a byte and its arguments. Where a step needs a value that cannot
 * be guessed, a byte names it (see value()).
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/transport/transport_int.h"
#include "tests/transport/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAMS 4
#define CONNS	8

enum step {
	CREATE,
	FIND,
	BLOCK,
	GIVE_UP,
	PASS,
	ACCEPT,
	DIAL,
	SAY_HELLO,
	FRAME,
	BYTES,
	SHUT_DOWN,
	DRAIN,
	STEPS
};

static struct df_net_ep ep;
static struct df_net_link *the_link;
static struct df_net_conn *conns[CONNS];
static int fds[STREAMS];
static const uint8_t *in, *end;
static unsigned proofs;	     /* number of valid proofs, in both directions */
static uint64_t our_session; /* number of the last session that this side has started */

static unsigned arg(void)
{
	return in < end ? *in++ : 0;
}

#define must(holds) ((holds) ? (void)0 : does_not_hold(#holds, __LINE__))

static void does_not_hold(const char *what, int line)
{
	fprintf(stderr, "line %d: does not hold: %s\n", line, what);
	abort();
}

/* ---- this side ------------------------------------------------------------------------------- */

static void start(void)
{
	setenv("NCCL_DEBUG_FILE", "/dev/null", 1);
	must(!wire_start(&ep));
	/*
	 * Offers may be as large as any connector. Those that do not fit into memory are refused.
	 */
	df_arena_limit(64u << 20);
}

static uint64_t head_of(const struct df_net_conn *c)
{
	return __atomic_load_n(&c->conn.hdr->head, __ATOMIC_RELAXED);
}

static uint64_t tail_of(const struct df_net_conn *c)
{
	return __atomic_load_n(&c->conn.hdr->tail, __ATOMIC_RELAXED);
}

static void pass(void)
{
	int i;

	df_net_pass(&ep);
	if (!proofs) {
		const struct session *p = the_link->session;

		must(!the_link->up && !df_net_dead(the_link) && !the_link->next &&
		     df_net_links(&ep) == the_link);
		must(!p || p->session == our_session);
	}
	for (i = 0; i < CONNS; i++)
		must(!conns[i] || tail_of(conns[i]) - head_of(conns[i]) <= conns[i]->nr_slots);
}

static void connector(int finds)
{
	struct df_peer *peer = (struct df_peer *)(void *)the_link;
	struct df_conn *conn = NULL;
	unsigned i = arg() % CONNS, key = arg() % 4, how = arg(), slots = 1 + how / 2 % 4;
	uint64_t base = arg() * 3u;
	int ret;

	if (conns[i])
		return;
	if (finds)
		ret = df_tl_net_ops.find(peer, key, &conn);
	else
		ret = df_tl_net_ops.create(peer, key, slots, how / 8 % 5 * 16,
					   how & 1 ? DF_CONN_SENDS : 0, base, &conn);
	if (!ret)
		conns[i] = (struct df_net_conn *)conn;
}

/* Sends or consumes a slice, as a block does. */
static void block(struct df_net_conn *c)
{
	if (c && c->says & DF_NET_SENDS && tail_of(c) - head_of(c) < c->nr_slots)
		__atomic_store_n(&c->conn.hdr->tail, tail_of(c) + 1, __ATOMIC_RELEASE);
	if (c && !(c->says & DF_NET_SENDS) && tail_of(c) != head_of(c))
		__atomic_store_n(&c->conn.hdr->head, head_of(c) + 1, __ATOMIC_RELEASE);
}

static void give_up(unsigned i)
{
	if (conns[i] && conns[i]->conn.owner)
		df_tl_net_ops.close(&conns[i]->conn);
	else if (conns[i])
		df_tl_net_ops.forget(&conns[i]->conn);
	conns[i] = NULL;
}

/* ---- the other side -------------------------------------------------------------------------- */

static uint64_t value(void)
{
	unsigned v = arg();
	const struct df_net_conn *c = conns[v % CONNS];
	uint64_t raw = 0;
	int i;

	if (v < 32)
		return v;
	if (v >= 128) {
		for (i = 0; i < 8; i++)
			raw = raw << 8 | arg();
		return raw;
	}
	switch (v / CONNS) {
	case 4:
		return c ? c->id : 0;
	case 5:
		return c ? c->received : 0;
	case 6:
		return c ? head_of(c) : 0;
	case 7:
		return c ? tail_of(c) : 0;
	case 8:
		return c ? c->next : 0;
	case 9:
		return the_link->heard + v % CONNS;
	case 10:
		return the_link->seq - v % CONNS;
	case 11:
		return UINT64_MAX - v % CONNS;
	default:
		return 1ull << (v % 64);
	}
}

static void drain(int fd)
{
	char sink[4096];

	while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

/* Creates a stream. *fd is the other end of its connection. */
static struct stream *stream(int *fd, struct df_net_link *l, enum state state)
{
	int two[2], small = 4096;
	struct stream *s;

	if (*fd >= 0)
		close(*fd);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two));
	setsockopt(two[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	*fd = two[1];
	s = df_tcp_new(&ep, l, two[0], state);
	must(s != NULL);
	return s;
}

/* Accepts a connection, as accept_all() does. */
static void accepted(int *fd)
{
	struct stream *s = stream(fd, NULL, STRANGER);

	df_list_add_tail(&df_sessions(&ep)->strangers, &s->node);
	df_sessions(&ep)->nr_strangers++;
}

/* Connects as attempt() does, with `nr` streams. */
static void dialled(unsigned nr)
{
	struct session *p = the_link->session;
	unsigned i;

	if (df_net_dead(the_link))
		return;
	if (!p)
		the_link->session = p = calloc(1, sizeof(*p));
	must(p != NULL);
	if (p->nr)
		return;
	our_session = ++p->session;
	p->nr_open = 0;
	for (i = 0; i < nr; i++) {
		p->v[i] = stream(&fds[i], the_link, CONNECTING);
		p->v[i]->index = i;
		p->nr = i + 1;
	}
}

/*
 * Sends a message with a proof. `wrong` chooses a byte of the proof to change, or where to cut the
 * message off. Otherwise counts a valid proof.
 */
static void prove(int fd, const void *message, size_t bytes, struct df_key *proof, unsigned wrong)
{
	uint8_t *p = (uint8_t *)proof;
	unsigned off = wrong - (unsigned)sizeof(struct hello);

	if (off < sizeof(*proof))
		p[off] ^= (uint8_t)(1 + arg() % 255);
	else if (off < 2 * sizeof(*proof))
		bytes -= 9 + off % 8; /* too many to be guessed by the input */
	else
		proofs++;
	(void)!send(fd, message, bytes, MSG_NOSIGNAL);
}

/* Greets as the side that connects. */
static void hello(int fd, struct hello *h, unsigned wrong)
{
	struct df_key proof;
	struct answer a;

	if (wrong < sizeof(*h))
		((uint8_t *)h)[wrong] ^= (uint8_t)arg();
	(void)!send(fd, h, sizeof(*h), MSG_NOSIGNAL);
	pass();
	if (recv(fd, &a, sizeof(a), MSG_DONTWAIT) != sizeof(a))
		return;
	proof = df_auth_proof(&ep.key, DF_PROOF_ACCEPTS, h, sizeof(*h), &a.challenge);
	/* The answer may be for another hello, or no answer at all. */
	if (!df_key_equal(&proof, &a.proof))
		return;
	proof = df_auth_proof(&ep.key, DF_PROOF_CONNECTS, h, sizeof(*h), &a.challenge);
	prove(fd, &proof, sizeof(proof), &proof, wrong);
}

/* Greets as the side that accepts. */
static void answer(int fd, enum word word, unsigned wrong)
{
	struct outcome o = {.word = word, .carries = DF_NET_BIT_TCP};
	struct answer a = {.challenge = {{1, 2, 3}}};
	struct hello h;

	if (recv(fd, &h, sizeof(h), MSG_DONTWAIT) == sizeof(h)) {
		a.proof = df_auth_proof(&df_net_member(the_link)->key, DF_PROOF_ACCEPTS, &h,
					sizeof(h), &a.challenge);
		prove(fd, &a, sizeof(a), &a.proof, wrong);
		pass();
	}
	if (wrong < sizeof(o))
		((uint8_t *)&o)[wrong] ^= (uint8_t)arg();
	(void)!send(fd, &o, sizeof(o), MSG_NOSIGNAL);
}

static void greet(int fd)
{
	const struct session *p = the_link->session;
	struct hello h = wire_hello();
	unsigned how = arg(), wrong = arg();

	h.nr = (uint16_t)(1 + how % 3);
	h.index = (uint16_t)(how / 4 % 3);
	h.session = (p ? p->session : 0) + how / 16 % 3;
	if (how & 64)
		h.from_proc = value();
	h.word = how & 128 ? arg() % 4 : HELLO;
	if (h.word == WELCOME || h.word == OVER)
		answer(fd, h.word, wrong);
	else
		hello(fd, &h, wrong);
}

static void frame(int fd)
{
	static const uint8_t payload[64] = "what is in a slice, and more than any slot here has";
	struct df_net_frame f = {.type = arg() % (DF_NET_NR + 1)};
	unsigned how = arg();

	f.to = value();
	f.pos = value();
	f.aux = value();
	f.a = how & 1 ? (uint32_t)value() : 1 + how / 8 % 4;
	f.b = how & 2 ? (uint32_t)value() : 16 | (how & 16 ? DF_NET_SENDS : 0);
	if (f.type == DF_NET_DATA)
		f.bytes = how & 4 ? (uint32_t)value() : 16;
	if (f.type >= DF_NET_OPEN)
		f.seq = how & 32 ? value() : the_link->heard + 1;
	f.ack = how & 64 ? value() : the_link->seq;
	(void)!send(fd, &f, sizeof(f), MSG_NOSIGNAL);
	if (f.bytes)
		(void)!send(fd, payload, DF_MIN(f.bytes, sizeof(payload)), MSG_NOSIGNAL);
}

static void step(void)
{
	unsigned what = arg(), i = arg();
	int *fd = &fds[i % STREAMS];

	switch ((enum step)(what % STEPS)) {
	case CREATE:
	case FIND:
		connector(what % STEPS == FIND);
		break;
	case BLOCK:
		block(conns[i % CONNS]);
		break;
	case GIVE_UP:
		give_up(i % CONNS);
		break;
	case ACCEPT:
		accepted(fd);
		break;
	case DIAL:
		dialled(1 + i % STREAMS);
		break;
	case SAY_HELLO:
		greet(*fd);
		break;
	case FRAME:
		frame(*fd);
		break;
	case BYTES:
		i = arg();
		i = DF_MIN((unsigned)(end - in), i);
		(void)!send(*fd, in, i, MSG_NOSIGNAL);
		in += i;
		break;
	case SHUT_DOWN:
		shutdown(*fd, SHUT_RDWR);
		break;
	case DRAIN:
		drain(*fd);
		break;
	case PASS:
	case STEPS:
		break;
	}
	/* Without a pass, the next frame is sent together with this step's. */
	if (!(what & 128))
		pass();
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_link(struct df_net_link *l)
{
	struct df_net_offer *o, *more;

	must(df_list_empty(&l->conns) && df_list_empty(&l->notes) && !l->owned);
	HASH_ITER(hh, l->offers, o, more)
	{
		HASH_DEL(l->offers, o);
		free(o);
	}
	free(l->by_id);
	free(l->session);
	free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int started;
	struct df_net_link *l, *next;
	struct stream *s;
	unsigned i;

	if (!started)
		start();
	started = 1;
	in = data;
	end = data + size;
	the_link = df_net_link_of(&ep, THEIRS, 0, 0);
	must(the_link != NULL);
	proofs = 0;
	our_session = 0;
	df_sessions(&ep)->in_a_row = df_sessions(&ep)->guesses = 0;
	for (i = 0; i < STREAMS; i++)
		fds[i] = -1;
	while (in < end)
		step();
	for (i = 0; i < CONNS; i++)
		give_up(i);
	while ((s = df_list_first(&df_sessions(&ep)->strangers, struct stream, node)))
		df_tcp_close(&ep, s);
	for (l = df_net_links(&ep); l; l = l->next)
		df_net_mark_dead(l);
	/* Then connections are closed and connectors freed. */
	for (i = 0; i < 3; i++)
		df_net_pass(&ep);
	must(df_list_empty(&ep.inbox) && df_list_empty(&df_sessions(&ep)->shut) &&
	     !df_sessions(&ep)->nr_strangers);
	for (l = df_net_links(&ep); l; l = next) {
		next = l->next;
		free_link(l);
	}
	ep.links = NULL;
	for (i = 0; i < STREAMS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return 0;
}
