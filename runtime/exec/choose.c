/* The executor of this process. */
#include "runtime/daemon/engine.h"
#include "runtime/executor.h"

const struct df_executor *const df_executor = &df_daemon_executor;
