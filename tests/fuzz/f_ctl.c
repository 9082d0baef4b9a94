/*
 * The control plane's protocol. A client that knows all secrets sends any bytes: before its proof,
 * at the rendezvous, as a link of the tree, or to get descriptors. The server must not crash, and
 * the connection must always end.
 *
 * Input: one byte chooses the part. Frames follow: type, length in words, words. Words 1 to 5 stand
 * for values that cannot be guessed (see special()). Built with -DDF_FUZZ_MAIN, the program reads
 * files or stdin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"
#include "runtime/ctl/tree_int.h"
#include "runtime/dfshim.h"
#include "tests/ctl/greet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FAKE_PROC 0x66616b65ull
#define HASH	  0x1234567890ull

static struct df_member self;
static unsigned char id[128];
static struct df_id_tail tail;
static uint64_t peer;

/* No connection leaves this machine, whatever addresses the input contains. */
int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (addr->sa_family != AF_UNIX) {
		errno = ECONNREFUSED;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, addr, len);
}

static void start(void)
{
	struct df_member m[2];
	struct df_group *g;

	setenv("DFSHIM_DEBUG", "warn", 1);
	if (df_ctl_self(&self))
		abort();
	memset(m, 0, sizeof(m));
	m[0] = self;
	m[1] = self;
	m[1].proc = FAKE_PROC;
	m[1].rank = 1;
	df_ctl_lock();
	if (df_group_get(HASH, m, 2, &g))
		abort();
	df_ctl_unlock();
}

static uint64_t special(uint64_t word)
{
	switch (word) {
	case 1:
		return self.proc;
	case 2:
		return FAKE_PROC;
	case 3:
		return HASH;
	case 4:
		return tail.nonce;
	case 5:
		return self.host;
	case 6:
		return peer;
	default:
		return word;
	}
}

static void introduce(int fd, unsigned part)
{
	struct hop hop = {.proc = peer, .host = self.host};
	struct df_key session;

	/* In part 0 the input contains the greeting. Part 3 is for bytes before the greeting. */
	if (part == 1 ? gr_greet(fd, tail.nonce, &tail.secret, &session)
		      : part < 3 && gr_greet(fd, self.proc, &self.key, &session))
		abort();
	if (part == 1)
		gr_say(fd, DF_FRAME_RDV_HELLO, &peer, sizeof(peer));
	else if (part == 2)
		gr_say(fd, DF_FRAME_TREE_HELLO, &hop, sizeof(hop));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int started;
	uint64_t body[256];
	union df_sockaddr addr;
	socklen_t len;
	size_t at = 1, i, n;
	char sink[4096];
	unsigned part;
	int fd;

	if (!started)
		start();
	started = 1;
	if (size < 2)
		return 0;
	part = data[0] % 4;
	peer = df_addr_random();
	if (part == 1 && (df_id_create(id) || df_id_open(id, &tail)))
		abort();
	len = df_addr_unix(self.sock, &addr);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, &addr.sa, len))
		abort();
	introduce(fd, part);
	if (part == 3)
		(void)!send(fd, data + 1, size - 1, MSG_NOSIGNAL);
	while (part != 3 && at + 2 <= size) {
		unsigned type = data[at];

		n = data[at + 1];
		at += 2;
		for (i = 0; i < n; i++, at += 8) {
			body[i] = 0;
			if (at < size)
				memcpy(&body[i], data + at, size - at < 8 ? size - at : 8);
			body[i] = special(body[i]);
		}
		/* The last word may be cut off. */
		gr_say(fd, type, body, n * 8 - (n && type & 128 ? type & 7 : 0));
	}
	shutdown(fd, SHUT_WR);
	while (gr_hear(fd, sink, sizeof(sink)) == sizeof(sink))
		;
	close(fd);
	return 0;
}

#ifdef DF_FUZZ_MAIN
int main(int argc, char **argv)
{
	static uint8_t buf[1 << 16];
	int i;

	for (i = 1; i < argc || (argc == 1 && i == 1); i++) {
		FILE *f = argc == 1 ? stdin : fopen(argv[i], "rb");

		if (!f) {
			perror(argv[i]);
			return 1;
		}
		LLVMFuzzerTestOneInput(buf, fread(buf, 1, sizeof(buf), f));
		if (f != stdin)
			fclose(f);
	}
	return 0;
}
#endif
