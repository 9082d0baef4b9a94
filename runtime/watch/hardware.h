/*
 * Evidence of a fault of the machine that any user may read: the driver's messages of failing GPUs
 * (Xid) in the kernel's log, where it is readable, and the error counters and states of RDMA ports.
 */
#ifndef DF_RUNTIME_WATCH_HARDWARE_H
#define DF_RUNTIME_WATCH_HARDWARE_H

#include <stddef.h>
#include <stdint.h>

#define DF_HARDWARE_PORTS    16
#define DF_HARDWARE_COUNTERS 12

struct df_hardware_port {
	char path[256]; /* path of the port's folder */
	char name[80];	/* such as "mlx5_0 port 1" */
	int is_active;
	uint64_t counters[DF_HARDWARE_COUNTERS];
};

/* The state at the last look. Used by one thread at a time. */
struct df_hardware {
	const char *root; /* prefix of /dev and /sys; "" except in tests */
	uint64_t log_us;  /* time of the last message, on the kernel's clock */
	struct df_hardware_port ports[DF_HARDWARE_PORTS];
	size_t nr_ports;
};

/*
 * Reads the counters, so that df_hardware_look() can report later changes. Messages from before
 * since_us are skipped.
 */
void df_hardware_open(struct df_hardware *h, const char *root, uint64_t since_us);
/*
 * Calls say() for each new message, and for each port with new errors or that is no longer active.
 */
void df_hardware_look(struct df_hardware *h, void (*say)(void *arg, const char *text), void *arg);

/*
 * For this machine, from any thread: df_hardware_start() is df_hardware_open(), and
 * df_hardware_note() writes what df_hardware_look() reports into the trace.
 */
void df_hardware_start(void);
void df_hardware_note(void);

#endif
