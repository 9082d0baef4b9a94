/*
 * Each end of a connection proves to the other that it knows a shared secret, without sending a
 * byte of it. Stateless; any thread. Only df_key_make() can block: until the system has random
 * numbers, once after boot.
 *
 * The connecting end sends a hello with a random challenge. The accepting end answers with its own
 * challenge and df_auth_proof(DF_PROOF_ACCEPTS). The connecting end checks that and sends
 * df_auth_proof(DF_PROOF_CONNECTS). Each proof covers the whole hello and both challenges, so a
 * recorded proof is useless on another connection, and the proof of one end cannot serve as the
 * other's. df_auth_proof(DF_PROOF_SESSION) is a key that only these two ends know, for this
 * connection alone.
 *
 * The keyed hash is SipHash-2-4 with a result of 128 bits (Aumasson and Bernstein; test vectors:
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

/* Reads 128 random bits from the system. Returns -errno if it has none; *out is then unchanged. */
int df_key_make(struct df_key *out);
/* Compares in constant time. */
int df_key_equal(const struct df_key *a, const struct df_key *b);

struct df_key df_siphash(const struct df_key *key, const void *data, size_t bytes);

/* hello: the first bytes sent, at most DF_HELLO_MAX. challenge: that of the accepting end. */
#define DF_HELLO_MAX 256
struct df_key df_auth_proof(const struct df_key *secret, enum df_proof what, const void *hello,
			    size_t bytes, const struct df_key *challenge);

/*
 * Hides bytes from a listener: XOR with a key stream. at: the position in the stream; a session key
 * must never use one position twice. A second call with the same position restores the bytes.
 */
void df_auth_mask(const struct df_key *session, uint64_t at, void *data, size_t bytes);

#endif
