/*
 * Where the application's threads are. Any thread.
 */
#ifndef DF_RUNTIME_WATCH_HOSTS_H
#define DF_RUNTIME_WATCH_HOSTS_H

#include <stdint.h>

struct df_check_host;

/* Writes it down (HOST_AT); takes some milliseconds. */
void df_hosts_note(void);
/*
 * What is certain now of each of the application's threads (struct df_check_host, trace/check.h), sorted; to be freed.
 * -errno: nothing is.
 */
int df_hosts_certain(struct df_check_host **out, uint32_t *nr);

#endif
