/*
 * Proof of a shared secret between the two ends of a connection, without a byte of the secret on
 * the wire. Stateless; any thread; nothing blocks but df_key_make(), which waits for the system's
 * random numbers once after boot.
 *
 * The end that connects sends a hello with a random challenge in it. The end that accepts answers
 * with a challenge of its own and df_auth_proof(DF_PROOF_ACCEPTS); the end that connects checks
 * that and sends df_auth_proof(DF_PROOF_CONNECTS). Each proof covers the whole hello and both
 * challenges, so a recorded one is worth nothing on another connection, and neither end's proof
 * serves as the other's. df_auth_proof(DF_PROOF_SESSION) is a key that only these two ends have,
 * for this connection alone.
 *
 * The keyed hash is SipHash-2-4 with a result of 128 bits (Aumasson and Bernstein; vectors:
 * tests/unit/t_auth.c).
 */
#ifndef DF_BASE_NET_AUTH_H
#define DF_BASE_NET_AUTH_H

#include <stddef.h>
#include <stdint.h>

/* A secret, a challenge or a proof. */
struct df_key {
	uint8_t bytes[16];
};

enum df_proof { DF_PROOF_ACCEPTS = 1, DF_PROOF_CONNECTS, DF_PROOF_SESSION };

/* 128 random bits from the system. -errno: it has none; *out is unchanged. */
int df_key_make(struct df_key *out);
/* Takes the same time whatever the bytes are. */
int df_key_equal(const struct df_key *a, const struct df_key *b);

struct df_key df_siphash(const struct df_key *key, const void *data, size_t bytes);

/* hello: the first bytes sent, at most DF_HELLO_MAX. challenge: of the end that accepts. */
#define DF_HELLO_MAX 256
struct df_key df_auth_proof(const struct df_key *secret, enum df_proof what, const void *hello,
			    size_t bytes, const struct df_key *challenge);

/*
 * Hides bytes on the wire from a listener: exclusive or with a key stream. at: its position, never
 * the same twice under one session key. Called with the same position, it undoes itself.
 */
void df_auth_mask(const struct df_key *session, uint64_t at, void *data, size_t bytes);

#endif
