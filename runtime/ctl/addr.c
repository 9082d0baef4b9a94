/* Names of unix sockets, random numbers, and the limit of open files. Stateless; any thread. */
#include "runtime/ctl/ctl_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/base/time.h"

int df_addr_raise_files(rlim_t below)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= l.rlim_max || l.rlim_cur >= below)
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

socklen_t df_addr_unix(uint64_t sock, union df_sockaddr *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&out->storage;
	int len;

	memset(out, 0, sizeof(*out));
	un->sun_family = AF_UNIX;
	len = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "dfshim-%016llx",
		       (unsigned long long)sock);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}
