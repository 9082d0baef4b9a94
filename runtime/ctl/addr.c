/*
 * Who we are: names of unix sockets, random nonces, the hash that says whether two processes are on one node; and
 * how many files we may open. Stateless; any thread.
 */
#include "runtime/ctl/ctl_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/base/time.h"

int df_addr_raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= l.rlim_max)
		return 0;
	l.rlim_cur = l.rlim_max;
	return !setrlimit(RLIMIT_NOFILE, &l);
}

uint64_t df_addr_random(void)
{
	static uint64_t count;
	uint64_t x = 0;

	if (getrandom(&x, sizeof(x), GRND_NONBLOCK) != (ssize_t)sizeof(x)) {
		x = df_hash_u64(df_now_ns(), (uint64_t)getpid() << 32 ^ df_wall_ns());
		x = df_hash_u64(x, __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
	}
	return x ? x : 1;
}

socklen_t df_addr_unix(const char *name, union df_sockaddr *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&out->storage;
	size_t len = strnlen(name, sizeof(un->sun_path) - 1);

	memset(out, 0, sizeof(*out));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

uint64_t df_addr_host_hash(void)
{
	char boot[64] = "", name[256] = "";
	struct stat st = {0};
	uint64_t h;
	ssize_t n;
	int fd;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, boot, sizeof(boot) - 1);
		boot[n > 0 ? n : 0] = '\0';
		close(fd);
	}
	gethostname(name, sizeof(name) - 1);
	h = df_hash_bytes(boot, strlen(boot), 1);
	if (!boot[0])
		h = df_hash_bytes(name, strlen(name), h);
	/* Abstract sockets belong to a network namespace; other users are refused by us. */
	if (!stat("/proc/self/ns/net", &st))
		h = df_hash_u64(h, (uint64_t)st.st_ino);
	return df_hash_u64(h, (uint64_t)geteuid());
}
