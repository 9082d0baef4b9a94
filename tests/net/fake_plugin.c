/*
 * A network plugin that is loaded and never started: what `dfshim net` looks for. SYMBOL: e.g. ncclNetPlugin_v9; NAME: what
 * it calls itself. TRAP: its constructor does not come back (1), or dies (2).
 */
#include <stdlib.h>
#include <unistd.h>

#ifdef SYMBOL
static void init(void)
{
	abort(); /* nobody has asked for devices */
}

struct net {
	const char *name;
	void (*init)(void);
} SYMBOL = {.name = NAME, .init = init};
#endif

#ifdef TRAP
static void __attribute__((constructor)) trap(void)
{
	if (TRAP == 2)
		abort();
	for (;;)
		pause();
}
#endif
