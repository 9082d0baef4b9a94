/* The start of the daemon in a process. */
#ifndef DF_RUNTIME_DAEMON_SETUP_H
#define DF_RUNTIME_DAEMON_SETUP_H

/* struct df_executor.setup */
int df_engine_setup(void);

#endif
