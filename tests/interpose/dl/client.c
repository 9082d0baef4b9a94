/*
 * The ways in which applications find NCCL's functions: ELF references, dlopen and dlsym; and
 * everything else that dlsym and dlvsym must still do. Prints one line for each fact; t_preload.sh
 * and t_dlsym.sh compare them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "interpose/nccl/nccl_types.h"

#define NCCL_FN(since, kind, result, name, params, args) result name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

int df_test_which(void);
void *df_test_next_allreduce(void);

static const char *where(void *fn)
{
	Dl_info info;
	const char *slash;

	if (!fn || !dladdr(fn, &info))
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static void run(void)
{
	static ncclComm_t two[2]; /* kept until the process ends */
	ncclComm_t comm = NULL;
	ncclUniqueId id;
	int version = 0, rank = -1;
	char buf[8];

	printf("version %d", ncclGetVersion(&version));
	printf(" %d\n", version);
	printf("id %d\n", ncclGetUniqueId(&id));
	printf("init %d\n", ncclCommInitRank(&comm, 1, id, 0));
	if (comm) {
		printf("magic %d\n", *(uint64_t *)comm == DF_NCCL_COMM_MAGIC);
		printf("rank %d", ncclCommUserRank(comm, &rank));
		printf(" %d\n", rank);
		printf("group %d\n", ncclGroupStart());
		printf("allreduce %d\n", ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comm, NULL));
		printf("send %d\n", ncclSend(buf, 1, ncclInt8, 0, comm, NULL));
		printf("recv %d\n", ncclRecv(buf, 1, ncclInt8, 0, comm, NULL));
		printf("end %d\n", ncclGroupEnd());
		printf("destroy %d\n", ncclCommDestroy(comm));
	}
	printf("initall %d\n", ncclCommInitAll(two, 2, NULL));
	printf("last error: %s\n", ncclGetLastError(NULL));
}

/* A group that is only simulated, then one that is executed. */
static void simulate(void)
{
	ncclComm_t comm = NULL;
	ncclUniqueId id;
	char buf[8];

	ncclGetUniqueId(&id);
	ncclCommInitRank(&comm, 1, id, 0);
	ncclGroupStart();
	ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comm, NULL);
	printf("simulate %d\n", ncclGroupSimulateEnd(NULL));
	ncclGroupStart();
	ncclSend(buf, 1, ncclInt8, 0, comm, NULL);
	printf("end %d\n", ncclGroupEnd());
	ncclCommDestroy(comm);
}

static void symbols(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *c = dlopen("libc.so.6", RTLD_NOW);

	if (!lib) {
		printf("dlopen: %s\n", dlerror());
		exit(1);
	}
	printf("handle ncclAllReduce %s\n", where(dlsym(lib, "ncclAllReduce")));
	printf("handle pncclAllReduce %s\n", where(dlsym(lib, "pncclAllReduce")));
	printf("handle ncclCommGrow %s\n", where(dlsym(lib, "ncclCommGrow")));
	printf("handle ncclNothing %s\n", where(dlsym(lib, "ncclNothing")));
	printf("error %s\n", strstr(dlerror(), "ncclNothing") ? "names it" : "missing");
	printf("other library's ncclAllReduce %s\n", where(dlsym(c, "ncclAllReduce")));
	printf("default getpid %s\n", where(dlsym(RTLD_DEFAULT, "getpid")));
	printf("dlvsym %s\n", where(dlvsym(c, "memcpy", "GLIBC_2.14")));
	printf("dlvsym wrong version %s\n", where(dlvsym(c, "memcpy", "GLIBC_9.9")));
	printf("next which %d\n", df_test_which());
	printf("next ncclAllReduce %s\n", where(df_test_next_allreduce()));
}

int main(int argc, char **argv)
{
	setbuf(stdout, NULL);
	if (argc > 2 && !strcmp(argv[1], "symbols")) {
		symbols(argv[2]);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "simulate")) {
		simulate();
		return 0;
	}
	run();
	if (argc > 1 && !strcmp(argv[1], "fork")) {
		int status;

		if (!fork()) {
			printf("in the child:\n");
			run();
			_exit(0);
		}
		wait(&status);
		printf("child's status %d\n", status);
	}
	return 0;
}
