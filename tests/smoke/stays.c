/*
 * Preloaded before libdfnccl.so. A send that fails after 6 s, even if its communicator is aborted
 * before.
 */
#include <stddef.h>
#include <unistd.h>

int pncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
	(void)from;
	(void)count;
	(void)type;
	(void)peer;
	(void)comm;
	(void)stream;
	sleep(6);
	return 3;
}
