/* Looks for deaths that no process noticed. Everything is under the control plane's lock. */
#ifndef DF_CTL_PROBE_H
#define DF_CTL_PROBE_H

#include <stdint.h>

/* Starts a round after a short delay. */
void df_probe_soon(void);
uint64_t df_probe_timers(uint64_t now);
void df_probe_forget_all(void);

#endif
