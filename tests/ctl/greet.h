/*
 * Both ends of a greeting (runtime/ctl/greet.c) on a blocking socket, for tests and fuzz targets.
 */
#ifndef DF_TESTS_CTL_GREET_H
#define DF_TESTS_CTL_GREET_H

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/ctl/link.h"

static inline struct df_frame gr_frame(unsigned type, size_t bytes)
{
	return (struct df_frame){.magic = DF_FRAME_MAGIC,
				 .version = DF_CTL_VERSION,
				 .type = (uint16_t)type,
				 .bytes = (uint32_t)bytes};
}

static inline void gr_say(int fd, unsigned type, const void *body, size_t bytes)
{
	struct df_frame f = gr_frame(type, bytes);
	uint8_t pad[8] = {0};

	(void)!send(fd, &f, sizeof(f), MSG_NOSIGNAL);
	(void)!send(fd, body, bytes, MSG_NOSIGNAL);
	(void)!send(fd, pad, (8 - bytes % 8) % 8, MSG_NOSIGNAL);
}

/* As recv() with MSG_WAITALL, but a signal does not end it, because libFuzzer has a timer. */
static inline size_t gr_hear(int fd, void *data, size_t bytes)
{
	size_t at = 0;
	ssize_t n;

	while (at < bytes) {
		n = recv(fd, (char *)data + at, bytes - at, MSG_WAITALL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return at;
}

struct gr_answer {
	struct df_frame frame;
	struct df_greet_answer body;
};

/*
 * The connecting end. Returns 0 if both ends have proved that they know the secret; *session is
 * then the key of the connection.
 */
static inline int gr_greet(int fd, uint64_t name, const struct df_key *secret,
			   struct df_key *session)
{
	struct df_greet g = {.name = name};
	struct df_key proof;
	struct gr_answer a;

	if (df_key_make(&g.challenge))
		return -1;
	gr_say(fd, DF_FRAME_GREET, &g, sizeof(g));
	if (gr_hear(fd, &a, sizeof(a)) != sizeof(a) || a.frame.type != DF_FRAME_ANSWER)
		return -1;
	proof = df_auth_proof(secret, DF_PROOF_ACCEPTS, &g, sizeof(g), &a.body.challenge);
	if (!df_key_equal(&proof, &a.body.proof))
		return -1;
	proof = df_auth_proof(secret, DF_PROOF_CONNECTS, &g, sizeof(g), &a.body.challenge);
	*session = df_auth_proof(secret, DF_PROOF_SESSION, &g, sizeof(g), &a.body.challenge);
	gr_say(fd, DF_FRAME_PROOF, &proof, sizeof(proof));
	return 0;
}

/*
 * The accepting end. Returns 0 if the other end names this process or id and has proved that it
 * knows the secret.
 */
static inline int gr_accept(int fd, uint64_t name, const struct df_key *secret)
{
	struct gr_answer a = {.frame = gr_frame(DF_FRAME_ANSWER, sizeof(a.body))};
	struct {
		struct df_frame frame;
		struct df_greet body;
	} g;
	struct {
		struct df_frame frame;
		struct df_key body;
	} said;
	struct df_key proof;

	if (gr_hear(fd, &g, sizeof(g)) != sizeof(g) || g.frame.type != DF_FRAME_GREET ||
	    g.body.name != name || df_key_make(&a.body.challenge))
		return -1;
	a.body.proof =
		df_auth_proof(secret, DF_PROOF_ACCEPTS, &g.body, sizeof(g.body), &a.body.challenge);
	(void)!send(fd, &a, sizeof(a), MSG_NOSIGNAL);
	if (gr_hear(fd, &said, sizeof(said)) != sizeof(said) || said.frame.type != DF_FRAME_PROOF)
		return -1;
	proof = df_auth_proof(secret, DF_PROOF_CONNECTS, &g.body, sizeof(g.body),
			      &a.body.challenge);
	return df_key_equal(&proof, &said.body) ? 0 : -1;
}

#endif
