/*
 * The greeting of a connection: both ends prove that they know the secret of the process or id that
 * the connection is for, before any other frame is read or sent (base/net/auth.h;
 * tests/model/greet.pml). Guarded by the control plane's lock.
 *
 *   connecting end   GREET   name of the process or id, challenge
 *   accepting end    ANSWER  challenge, proof
 *   connecting end   PROOF   proof, followed at once by the frames that were held
 *
 * Frames that carry keys are masked with the session key, so a recorded connection reveals none.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/vec.h"
#include "runtime/ctl/greet.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"

/* The two directions use different positions of the key stream. */
#define ACCEPTED_AT (1ull << 63)

_Static_assert(sizeof(struct df_greet) <= DF_HELLO_MAX, "a proof covers the whole GREET");

static struct df_key proof_of(const struct df_link *l, enum df_proof what)
{
	return df_auth_proof(&l->secret, what, &l->greet, sizeof(l->greet), &l->challenge);
}

static void proved(struct df_link *l, int accepted)
{
	l->session = proof_of(l, DF_PROOF_SESSION);
	l->tx_at = accepted ? ACCEPTED_AT : 0;
	l->rx_at = accepted ? 0 : ACCEPTED_AT;
	l->greeting = DF_GREET_DONE;
}

int df_greet_begin(struct df_link *l, uint64_t name, const struct df_key *secret)
{
	int ret;

	l->secret = *secret;
	l->greet.name = name;
	ret = df_key_make(&l->greet.challenge);
	if (ret)
		return ret;
	ret = df_link_send(l, DF_FRAME_GREET, &l->greet, sizeof(l->greet), NULL, 0);
	l->greeting = DF_GREET_SENT;
	return ret;
}

/* Returns the secret if the greeting is for this process or for an id that it serves, else NULL. */
static const struct df_key *secret_of(uint64_t name)
{
	return name == df_ctl.self.proc ? &df_ctl.self.key : df_rdv_secret(name);
}

static int greeted(struct df_link *l, const void *data, size_t bytes)
{
	const struct df_key *secret;
	struct df_greet_answer a;
	int ret;

	if (bytes != sizeof(l->greet))
		return -EPROTO;
	memcpy(&l->greet, data, bytes);
	secret = secret_of(l->greet.name);
	if (!secret)
		return -EPROTO;
	l->secret = *secret;
	ret = df_key_make(&l->challenge);
	if (ret)
		return ret;
	a.challenge = l->challenge;
	a.proof = proof_of(l, DF_PROOF_ACCEPTS);
	l->greeting = DF_GREET_ANSWERED;
	return df_link_send(l, DF_FRAME_ANSWER, &a, sizeof(a), NULL, 0);
}

static int answered(struct df_link *l, const void *data, size_t bytes)
{
	struct df_greet_answer a;
	struct df_key proof;

	if (bytes != sizeof(a))
		return -EPROTO;
	memcpy(&a, data, bytes);
	l->challenge = a.challenge;
	proof = proof_of(l, DF_PROOF_ACCEPTS);
	if (!df_key_equal(&proof, &a.proof))
		return -EPROTO;
	proved(l, 0);
	proof = proof_of(l, DF_PROOF_CONNECTS);
	return df_link_release(l, DF_FRAME_PROOF, &proof, sizeof(proof));
}

static int was_proved(struct df_link *l, const void *data, size_t bytes)
{
	struct df_key proof = proof_of(l, DF_PROOF_CONNECTS);

	if (bytes != sizeof(proof) || !df_key_equal(&proof, data))
		return -EPROTO;
	proved(l, 1);
	return 0;
}

int df_greet_input(struct df_link *l, unsigned type, const void *data, size_t bytes)
{
	if (l->greeting == DF_GREET_WAIT && type == DF_FRAME_GREET)
		return greeted(l, data, bytes);
	if (l->greeting == DF_GREET_SENT && type == DF_FRAME_ANSWER)
		return answered(l, data, bytes);
	if (l->greeting == DF_GREET_ANSWERED && type == DF_FRAME_PROOF)
		return was_proved(l, data, bytes);
	return -EPROTO;
}

void df_greet_mask(const struct df_key *session, uint64_t *at, void *data, size_t bytes)
{
	df_auth_mask(session, *at, data, bytes);
	*at += (bytes + sizeof(*session) - 1) / sizeof(*session);
}
