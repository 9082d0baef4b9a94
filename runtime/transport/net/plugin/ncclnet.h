/*
 * NCCL's network plugins, whatever the version of their interface (v7 to v12): one set of functions for plugin.c, and
 * ncclnet_start.c, which finds a plugin and starts it.
 *
 * A plugin is a table of functions. Its order has only grown at the end; what has changed are arguments, and what
 * getProperties() fills in. Some plugins fill in the table when they are started, so a function is read from it each time.
 *
 * What is written here about a plugin's functions is all they promise: none waits for the other side, but connecting,
 * registering and closing may take long; one thread at a time calls those of a connection; after an error nothing but
 * closing is allowed.
 */
#ifndef DF_TRANSPORT_NET_PLUGIN_NCCLNET_H
#define DF_TRANSPORT_NET_PLUGIN_NCCLNET_H

#include <stddef.h>
#include <stdint.h>

#define DF_NCCLNET_HANDLE   128 /* bytes with which a listener is reached */
#define DF_NCCLNET_REQUESTS 32	/* so many may be under way on a connection */
#define DF_NCCLNET_DEVICES  32
#define DF_NCCLNET_OK	    0 /* else ncclResult_t's number */

struct df_ncclnet_device {
	const struct df_ncclnet *net;
	int dev; /* the plugin's number */
	char name[64];
	char pci[256];	  /* where it is in sysfs; "": not said */
	size_t max_bytes; /* of a message */
};

struct df_ncclnet {
	void *const *table;
	int version;
	char name[64], file[256];
	void *ctx;	/* v11: of init() */
	int nr_devices; /* those that can be used */
	struct df_ncclnet_device devices[DF_NCCLNET_DEVICES];
};

/*
 * ncclnet_start.c: the plugin of this process, loaded and started by the first one who asks, in bounded time; NULL: none, and it
 * has been said why. Not after a fork: it belongs to the parent. Any thread.
 */
const struct df_ncclnet *df_ncclnet_get(void);
/* The process ends: no function of the plugin is to be called any more. 0: there is none. Any thread. */
int df_ncclnet_end(void);
int df_ncclnet_ended(void);

/* ncclnet.c. Below, ncclResult_t's number is returned. The names are the plugin's own functions'. */
const char *df_ncclnet_result(int result);
/* What the plugin first complained of in this thread, since it was asked; "" nothing. */
const char *df_ncclnet_complaint(void);
/* A function that it must have and has not; NULL. */
const char *df_ncclnet_missing(const struct df_ncclnet *n);
int df_ncclnet_init(struct df_ncclnet *n);
int df_ncclnet_devices(const struct df_ncclnet *n, int *nr);
/* why: "" if the device can be used, else why it cannot. */
int df_ncclnet_properties(const struct df_ncclnet *n, int dev, struct df_ncclnet_device *out,
			  char *why, size_t size);
int df_ncclnet_listen(const struct df_ncclnet *n, int dev, void *handle, void **listener);
/* *comm is NULL as long as there is no connection: call again. The handle is the connection's own until then. */
int df_ncclnet_connect(const struct df_ncclnet *n, int dev, void *handle, void **comm);
int df_ncclnet_accept(const struct df_ncclnet *n, void *listener, void **comm);
int df_ncclnet_register(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void **mr);
int df_ncclnet_deregister(const struct df_ncclnet *n, void *comm, void *mr);
/* *request is NULL if it cannot be done now: call again. */
int df_ncclnet_send(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		    void **request);
int df_ncclnet_receive(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		       void **request);
/* Drives what is under way. When it is done, the request is gone. */
int df_ncclnet_test(const struct df_ncclnet *n, void *request, int *done, int *bytes);
int df_ncclnet_close_send(const struct df_ncclnet *n, void *comm);
int df_ncclnet_close_receive(const struct df_ncclnet *n, void *comm);
int df_ncclnet_close_listen(const struct df_ncclnet *n, void *listener);

#endif
