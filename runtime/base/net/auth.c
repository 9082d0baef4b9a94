/*
 * SipHash-2-4 with a result of 128 bits, and the texts that df_auth_proof() hashes. Written from
 * the paper "SipHash: a fast short-input PRF" (Aumasson, Bernstein, 2012) and the authors'
 * extension to 128 bits.
 */
#include "runtime/base/net/auth.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/base/err.h"

struct sip {
	uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_rounds(struct sip *s, int nr)
{
	while (nr--) {
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = rotate(s->v1, 13) ^ s->v0;
		s->v3 = rotate(s->v3, 16) ^ s->v2;
		s->v0 = rotate(s->v0, 32);
		s->v2 += s->v1;
		s->v0 += s->v3;
		s->v1 = rotate(s->v1, 17) ^ s->v2;
		s->v3 = rotate(s->v3, 21) ^ s->v0;
		s->v2 = rotate(s->v2, 32);
	}
}

/* SipHash reads words in little-endian order on every machine. */
static uint64_t word_at(const uint8_t *p, size_t bytes)
{
	uint64_t w = 0;
	size_t i;

	for (i = 0; i < bytes; i++)
		w |= (uint64_t)p[i] << 8 * i;
	return w;
}

static void put_word(uint8_t *p, uint64_t w)
{
	int i;

	for (i = 0; i < 8; i++)
		p[i] = (uint8_t)(w >> 8 * i);
}

static void sip_absorb(struct sip *s, uint64_t word)
{
	s->v3 ^= word;
	sip_rounds(s, 2);
	s->v0 ^= word;
}

struct df_key df_siphash(const struct df_key *key, const void *data, size_t bytes)
{
	uint64_t k0 = word_at(key->bytes, 8), k1 = word_at(key->bytes + 8, 8);
	struct sip s = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull ^ 0xee,
			k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull};
	const uint8_t *p = data;
	struct df_key out;
	size_t i;

	for (i = 0; i + 8 <= bytes; i += 8)
		sip_absorb(&s, word_at(p + i, 8));
	sip_absorb(&s, word_at(p + i, bytes - i) | (uint64_t)bytes << 56);
	s.v2 ^= 0xee;
	sip_rounds(&s, 4);
	put_word(out.bytes, s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
	s.v1 ^= 0xdd;
	sip_rounds(&s, 4);
	put_word(out.bytes + 8, s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
	return out;
}

int df_key_make(struct df_key *out)
{
	struct df_key k;
	ssize_t n;

	do {
		n = getrandom(&k, sizeof(k), 0);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(k))
		return n < 0 ? -errno : -EIO;
	*out = k;
	return 0;
}

int df_key_equal(const struct df_key *a, const struct df_key *b)
{
	unsigned differ = 0;
	size_t i;

	for (i = 0; i < sizeof(a->bytes); i++)
		differ |= a->bytes[i] ^ b->bytes[i];
	return !differ;
}

struct df_key df_auth_proof(const struct df_key *secret, enum df_proof what, const void *hello,
			    size_t bytes, const struct df_key *challenge)
{
	uint8_t text[8 + sizeof(*challenge) + DF_HELLO_MAX] = {(uint8_t)what};

	memcpy(text + 8, challenge, sizeof(*challenge));
	memcpy(text + 8 + sizeof(*challenge), hello, DF_MIN(bytes, (size_t)DF_HELLO_MAX));
	return df_siphash(secret, text,
			  8 + sizeof(*challenge) + DF_MIN(bytes, (size_t)DF_HELLO_MAX));
}

void df_auth_mask(const struct df_key *session, uint64_t at, void *data, size_t bytes)
{
	uint8_t *p = data;
	struct df_key stream;
	size_t i, j;

	for (i = 0; i < bytes; i += sizeof(stream), at++) {
		stream = df_siphash(session, &at, sizeof(at));
		for (j = 0; j < sizeof(stream) && i + j < bytes; j++)
			p[i + j] ^= stream.bytes[j];
	}
}
