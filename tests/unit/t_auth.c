/*
 * Description: SipHash-2-4 with 128 bits gives the published values, proofs depend on every byte
 * that they cover, and masking twice restores the text. The values are those of the authors'
 * reference implementation (vectors.h): the key is 00 01 .. 0f, the message 00 01 .. with the given
 * number of bytes.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/net/auth.h"
#include "tests/lib/test.h"

static const struct {
	size_t bytes;
	const char *hash;
} published[] = {
	{0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
	{7, "a1f1ebbed8dbc153c0b84aa61ff08239"},  {8, "3b62a9ba6258f5610f83e264f31497b4"},
	{15, "5493e99933b0a8117e08ec0f97cfc3d9"}, {16, "6ee2a4ca67b054bbfd3315bf85230577"},
	{63, "5150d1772f50834a503e069a973fbd7c"},
};

static struct df_key counting_key(void)
{
	struct df_key k;
	size_t i;

	for (i = 0; i < sizeof(k.bytes); i++)
		k.bytes[i] = (uint8_t)i;
	return k;
}

static void hex(const struct df_key *k, char text[33])
{
	size_t i;

	for (i = 0; i < sizeof(k->bytes); i++)
		sprintf(text + 2 * i, "%02x", k->bytes[i]);
}

START_TEST(vectors)
{
	struct df_key key = counting_key(), hash;
	uint8_t message[64];
	char text[33];
	size_t i;

	for (i = 0; i < sizeof(message); i++)
		message[i] = (uint8_t)i;
	for (i = 0; i < DF_ARRAY_LEN(published); i++) {
		hash = df_siphash(&key, message, published[i].bytes);
		hex(&hash, text);
		ck_assert_str_eq(text, published[i].hash);
	}
}
END_TEST

/* A different kind of proof, secret, challenge or hello gives a different result. */
START_TEST(proofs)
{
	struct df_key secret = counting_key(), challenge, other, first, before, now;
	uint8_t hello[DF_HELLO_MAX] = {0};
	size_t i;
	int what;

	ck_assert_int_eq(df_key_make(&challenge), 0);
	first = df_auth_proof(&secret, DF_PROOF_ACCEPTS, hello, sizeof(hello), &challenge);
	now = df_auth_proof(&secret, DF_PROOF_ACCEPTS, hello, sizeof(hello), &challenge);
	ck_assert(df_key_equal(&first, &now));
	for (what = DF_PROOF_CONNECTS, before = first; what <= DF_PROOF_SESSION; what++) {
		now = df_auth_proof(&secret, what, hello, sizeof(hello), &challenge);
		ck_assert(!df_key_equal(&first, &now));
		/*
		 * The session's key differs from every proof, because proofs are sent in the clear.
		 */
		ck_assert(!df_key_equal(&before, &now));
		before = now;
	}
	for (i = 0; i < sizeof(secret.bytes); i++) {
		other = secret;
		other.bytes[i] ^= 1;
		now = df_auth_proof(&other, DF_PROOF_ACCEPTS, hello, sizeof(hello), &challenge);
		ck_assert(!df_key_equal(&first, &now));
		other = challenge;
		other.bytes[i] ^= 1;
		now = df_auth_proof(&secret, DF_PROOF_ACCEPTS, hello, sizeof(hello), &other);
		ck_assert(!df_key_equal(&first, &now));
	}
	for (i = 0; i < sizeof(hello); i++) {
		hello[i] ^= 1;
		now = df_auth_proof(&secret, DF_PROOF_ACCEPTS, hello, sizeof(hello), &challenge);
		ck_assert(!df_key_equal(&first, &now));
		hello[i] ^= 1;
	}
}
END_TEST

START_TEST(masks)
{
	struct df_key session = counting_key();
	uint8_t text[100], plain[100];

	memset(plain, 0x5a, sizeof(plain));
	memcpy(text, plain, sizeof(text));
	df_auth_mask(&session, 3, text, sizeof(text));
	ck_assert(memcmp(text, plain, sizeof(text)));
	/* No block of the key stream repeats. */
	ck_assert(memcmp(text, text + sizeof(session), sizeof(session)));
	df_auth_mask(&session, 3, text, sizeof(text));
	ck_assert(!memcmp(text, plain, sizeof(text)));
}
END_TEST

int main(void)
{
	return DF_TESTS("auth", {vectors}, {proofs}, {masks});
}
