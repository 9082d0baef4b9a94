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
	char path[256]; /* of its folder */
	char name[80];	/* "mlx5_0 port 1" */
	int is_active;
	uint64_t counters[DF_HARDWARE_COUNTERS];
};

/* Evidence that has been seen. One thread at a time. */
struct df_hardware {
	const char *root; /* in front of /dev and /sys: "" */
	uint64_t log_us;  /* of the last message, on the kernel's clock */
	struct df_hardware_port ports[DF_HARDWARE_PORTS];
	size_t nr_ports;
};

/* Reads the counters, with which later ones are compared. since_us: older messages are not read. */
void df_hardware_open(struct df_hardware *h, const char *root, uint64_t since_us);
/* Calls say() with each new message, and each port that has changed. */
void df_hardware_look(struct df_hardware *h, void (*say)(void *arg, const char *text), void *arg);

/* The same for this machine, by any thread: df_hardware_note() writes into the trace. */
void df_hardware_start(void);
void df_hardware_note(void);

#endif
