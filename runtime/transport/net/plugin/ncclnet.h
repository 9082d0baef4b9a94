/*
 * One set of functions for NCCL's network plugins, whatever the version of their interface (v7 to
 * v12). plugin.c uses it; ncclnet_start.c finds and starts a plugin.
 *
 * A plugin is a table of functions. New versions append functions and change arguments and the
 * fields that getProperties() fills in. Some plugins fill in the table when they are started, so
 * each call reads it.
 *
 * A plugin promises only this: no function waits for the other side, but connecting, registering
 * and closing may take long; one thread at a time calls the functions of a connection; after an
 * error only closing is allowed.
 */
#ifndef DF_TRANSPORT_NET_PLUGIN_NCCLNET_H
#define DF_TRANSPORT_NET_PLUGIN_NCCLNET_H

#include <stddef.h>
#include <stdint.h>

#define DF_NCCLNET_HANDLE   128 /* bytes of the address of a listener */
#define DF_NCCLNET_REQUESTS 32	/* largest number of pending requests of a connection */
#define DF_NCCLNET_DEVICES  32
#define DF_NCCLNET_OK	    0 /* other values are those of ncclResult_t */

struct df_ncclnet_device {
	const struct df_ncclnet *net;
	int dev; /* the plugin's number */
	char name[64];
	char pci[256];	  /* path in sysfs, or "" if the plugin gives none */
	size_t max_bytes; /* of a message */
};

struct df_ncclnet {
	void *const *table;
	int version;
	char name[64], file[256];
	void *ctx;	/* v11: from init() */
	int nr_devices; /* number of usable devices */
	struct df_ncclnet_device devices[DF_NCCLNET_DEVICES];
};

/*
 * ncclnet_start.c: returns the plugin of this process, or NULL after a message. The first caller
 * loads and starts it, in bounded time. The child of a fork has none: the plugin belongs to the
 * parent. Any thread.
 */
const struct df_ncclnet *df_ncclnet_get(void);
/*
 * Forbids further calls of the plugin, because the process exits. Returns 0 if there is no plugin.
 * Any thread.
 */
int df_ncclnet_end(void);
int df_ncclnet_ended(void);

/*
 * ncclnet.c. The functions below return a value of ncclResult_t; they have the names of the
 * plugin's functions.
 */
const char *df_ncclnet_result(int result);
/* Returns the plugin's first warning in this thread since the last call, or "". */
const char *df_ncclnet_complaint(void);
/* Returns the name of a required function that the plugin lacks, or NULL. */
const char *df_ncclnet_missing(const struct df_ncclnet *n);
int df_ncclnet_init(struct df_ncclnet *n);
int df_ncclnet_devices(const struct df_ncclnet *n, int *nr);
/* why: "" if the device can be used, else the reason. */
int df_ncclnet_properties(const struct df_ncclnet *n, int dev, struct df_ncclnet_device *out,
			  char *why, size_t size);
int df_ncclnet_listen(const struct df_ncclnet *n, int dev, void *handle, void **listener);
/*
 * Sets *comm to NULL while there is no connection; call it again. Until then the handle belongs to
 * this connection.
 */
int df_ncclnet_connect(const struct df_ncclnet *n, int dev, void *handle, void **comm);
int df_ncclnet_accept(const struct df_ncclnet *n, void *listener, void **comm);
int df_ncclnet_register(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void **mr);
int df_ncclnet_deregister(const struct df_ncclnet *n, void *comm, void *mr);
/* df_ncclnet_send() and df_ncclnet_receive() set *request to NULL if the caller must try again. */
int df_ncclnet_send(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		    void **request);
int df_ncclnet_receive(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		       void **request);
/* Advances a pending request. A completed request is freed. */
int df_ncclnet_test(const struct df_ncclnet *n, void *request, int *done, int *bytes);
int df_ncclnet_close_send(const struct df_ncclnet *n, void *comm);
int df_ncclnet_close_receive(const struct df_ncclnet *n, void *comm);
int df_ncclnet_close_listen(const struct df_ncclnet *n, void *listener);

#endif
