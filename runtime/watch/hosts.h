/* Finds where the application's threads are. Any thread may call this. */
#ifndef DF_RUNTIME_WATCH_HOSTS_H
#define DF_RUNTIME_WATCH_HOSTS_H

#include <stdint.h>

struct df_check_host;

/* Records what each thread does (HOST_AT). Takes some milliseconds. */
void df_hosts_note(void);
/*
 * Stores the certain state of each of the application's threads, sorted by thread id. The caller
 * frees the array. Returns 0, or -errno if nothing is certain.
 */
int df_hosts_certain(struct df_check_host **out, uint32_t *nr);

#endif
