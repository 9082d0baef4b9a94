/*
 * The way from a process to a session: a connection, retried where that makes sense, or plain
 * function calls if the session is in this process. Guarded by the control plane's lock.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/rdv.h"

#define RETRY_FIRST_NS (20 * DF_NS_PER_MS)
#define RETRY_LAST_NS  (500 * DF_NS_PER_MS)
/* A listener that is known to exist may refuse for a moment when many processes connect at once. */
#define REFUSED_NS (5 * DF_NS_PER_S)
/*
 * The previous user of the address may still be releasing it: another session, or the real
 * library's root.
 */
#define TAKEN_NS (5 * DF_NS_PER_S)
/* limit of retries while the listener at the address accepts but hangs up */
#define SHUT_NS (5 * DF_NS_PER_S)

static int up_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	struct df_rdv_up *up = link->owner;

	if (!up)
		return -EPROTO;
	up->answered = 1;
	up->input(up, type, data, bytes);
	return 0;
}

static void up_again(struct df_rdv_up *up)
{
	up->retry_ns = up->retry_ns ? DF_MIN(up->retry_ns * 2, RETRY_LAST_NS) : RETRY_FIRST_NS;
	up->retry_at = df_now_ns() + up->retry_ns;
	df_ctl_timer(up->retry_at);
}

/*
 * An id by address: rank 0 may not be listening yet, and the previous user of the address may still
 * be there.
 */
static int is_hang_up(int error)
{
	return !error || error == -ECONNRESET;
}

static int up_may_retry(struct df_rdv_up *up, int was_open, int error)
{
	uint64_t now = df_now_ns();

	if (up->answered || df_ctl_lacks(error))
		return 0;
	if (up->id.flags & DF_ID_BY_ADDR) {
		if (!was_open || error == -ECONNREFUSED)
			up->shut_since = 0;
		else if (!up->shut_since)
			up->shut_since = now;
		return !up->shut_since || now - up->shut_since < SHUT_NS;
	}
	/*
	 * The other end hung up without sending anything. If it has died, it refuses the next
	 * attempt. If it does not know the id, or has no descriptors, it hangs up again.
	 */
	if (was_open && is_hang_up(error) && !up->hung_up) {
		up->hung_up = 1;
		return 1;
	}
	if (up->hung_up || (error != -ECONNREFUSED && error != -EAGAIN && error != -ETIMEDOUT))
		return 0;
	if (error == -ECONNREFUSED && up->id.host == df_ctl.self.host)
		return 0;
	if (!up->give_up_at)
		up->give_up_at = now + REFUSED_NS;
	return now < up->give_up_at;
}

/*
 * The process that serves the id has died. Only the id identifies it: the trace of that process
 * shows its rank.
 */
static void up_dead(const struct df_rdv_up *up)
{
	const struct df_member who = {.host = up->id.host, .pid = up->id.pid, .rank = -1};

	if (!(up->id.flags & DF_ID_BY_ADDR) && df_ctl.events && df_ctl.events->lost)
		df_ctl.events->lost(&who);
}

/* A restarted job may find the id of its previous run in a store or a file. */
#define EARLIER                                                                                    \
	"; after a restart: the id is of an earlier attempt, and rank 0 has to make a new one"

static void up_lost(struct df_rdv_up *up, int error)
{
	char reason[240], at[DF_ADDR_TEXT];
	size_t n;
	int was_open = up->open;

	up->link = NULL;
	up->open = 0;
	if (up_may_retry(up, was_open, error)) {
		up_again(up);
		return;
	}
	if (df_ctl_lacks(error)) {
		/* The other side cannot help. */
		snprintf(reason, sizeof(reason), "cannot connect: %s", strerror(-error));
		up->failed(up, error, reason);
		return;
	}
	if (up->shut_since) {
		snprintf(
			reason, sizeof(reason),
			"what listens at the address of NCCL_COMM_ID does not know dfshim: perhaps "
			"rank 0 runs on plain NCCL");
	} else if (up->answered ? is_hang_up(error) : up->hung_up && error == -ECONNREFUSED) {
		snprintf(reason, sizeof(reason),
			 "the process that serves the id (pid %u) has died or exited%s", up->id.pid,
			 up->answered ? "" : EARLIER);
		up_dead(up);
	} else if (up->hung_up && is_hang_up(error)) {
		snprintf(reason, sizeof(reason),
			 "the process that serves the id (pid %u) hangs up: it does not know the "
			 "id, or has no file descriptor left, which its log says",
			 up->id.pid);
	} else if (error == -EPROTO) {
		snprintf(reason, sizeof(reason),
			 "what listens where the id was made (pid %u) does not know the id's "
			 "secret: the id is of an earlier job",
			 up->id.pid);
	} else if (!was_open && error == -ECONNREFUSED && up->id.host == df_ctl.self.host) {
		snprintf(
			reason, sizeof(reason),
			"the id is stale: the process that made it (pid %u) has exited. After a "
			"restart rank 0 has to make a new id, and the others must not read the old "
			"one from a store or file that was kept",
			up->id.pid);
	} else if (up->remote) {
		df_link_why(df_id_at(&up->id, at), error, reason, sizeof(reason));
		n = strlen(reason);
		if (error == -ECONNREFUSED && !(up->id.flags & DF_ID_BY_ADDR))
			snprintf(reason + n, sizeof(reason) - n, EARLIER);
	} else {
		snprintf(reason, sizeof(reason),
			 "cannot reach the process that serves the id (pid %u): %s" EARLIER,
			 up->id.pid, strerror(-error));
	}
	up->failed(up, -ECONNRESET, reason);
}

static void up_closed(struct df_link *link, int error)
{
	if (link->owner)
		up_lost(link->owner, error);
}

static void up_connected(struct df_link *link)
{
	struct df_rdv_up *up = link->owner;

	if (!up || up->open)
		return;
	up->open = 1;
	up->opened(up);
}

static const struct df_link_ops up_ops = {
	.name = "rendezvous", .input = up_input, .connected = up_connected, .closed = up_closed};

/*
 * Opens the session of an id by address in this process. Returns 0 if that failed or must be
 * retried.
 */
static int up_serve(struct df_rdv_up *up)
{
	int ret = df_rdv_open_address(&up->id);
	char at[DF_ADDR_TEXT], why[240];

	if (!ret)
		return 1;
	if (!up->give_up_at)
		up->give_up_at = df_now_ns() + TAKEN_NS;
	if (ret == -EADDRINUSE && df_now_ns() < up->give_up_at) {
		up_again(up);
		return 0;
	}
	snprintf(why, sizeof(why), "rank 0 cannot serve NCCL_COMM_ID=%s: %s", df_id_at(&up->id, at),
		 strerror(-ret));
	up->failed(up, ret, why);
	return 0;
}

void df_rdv_up_start(struct df_rdv_up *up)
{
	struct df_rdv_hello hello = {.proc = df_ctl.self.proc};
	/*
	 * The connection is for the id: its nonce and secret take the place of a process's number
	 * and key.
	 */
	struct df_member m = {.proc = up->id.nonce,
			      .host = up->id.host,
			      .sock = up->id.sock,
			      .key = up->id.secret};
	char at[DF_ADDR_TEXT];
	struct df_rdv *r;
	int error = 0;

	up->retry_at = 0;
	if (up->serves && !up_serve(up))
		return;
	r = df_rdv_find(up->id.nonce);
	if (r) {
		up->end = df_rdv_attach(r, NULL, up);
		if (!up->end) {
			up->failed(up, -ENOMEM, "no memory");
			return;
		}
		up->open = 1;
		up->opened(up);
		return;
	}
	if (up->id.proc == df_ctl.self.proc) {
		up->failed(up, -EPROTO, "the id is not known to the process that made it");
		return;
	}
	snprintf(m.tcp, sizeof(m.tcp), "%s", df_id_at(&up->id, at));
	if (!up->id.proc)
		m.host = 0;
	up->remote = m.tcp[0] && m.host != df_ctl.self.host;
	up->link = df_link_open_member(&m, &up_ops, up, &error);
	if (!up->link) {
		up_lost(up, error);
		return;
	}
	df_link_send(up->link, DF_FRAME_RDV_HELLO, &hello, sizeof(hello), NULL, 0);
	if (!up->link->connecting)
		up_connected(up->link);
}

void df_rdv_up_send(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes)
{
	if (up->end)
		df_rdv_say(up->end, type, data, bytes);
	else if (up->link)
		df_link_send(up->link, type, data, bytes, NULL, 0);
}

void df_rdv_up_stop(struct df_rdv_up *up)
{
	struct df_rdv_end *end = up->end;
	struct df_link *link = up->link;

	up->open = 0;
	up->retry_at = 0;
	up->end = NULL;
	up->link = NULL;
	if (link) {
		link->owner = NULL;
		df_link_finish(link);
	}
	if (end)
		df_rdv_detach(end, 0, NULL);
}

uint64_t df_rdv_up_timer(struct df_rdv_up *up, uint64_t now)
{
	if (up->retry_at && up->retry_at <= now)
		df_rdv_up_start(up);
	return up->retry_at;
}
