/*
 * The backend of a process without devices, and of every process before df_device_open(): no
 * device, no stream, no memory. Requests for a device, a stream or memory fail. Any thread.
 */
#include <errno.h>
#include <string.h>
#include "runtime/device/device.h"

static void set_hooks(const struct df_hooks *hooks)
{
	(void)hooks;
}

static int device_count(void)
{
	return 0;
}

static int get_device(void)
{
	return 0;
}

static int set_device(int device)
{
	(void)device;
	return -EINVAL;
}

static int stream_info(const void *stream, struct df_stream_info *out)
{
	(void)stream;
	(void)out;
	return -EINVAL;
}

static int stream_new(int device, struct df_stream_info *out)
{
	(void)device;
	(void)out;
	return -ENODEV;
}

static const void *stream_handle(struct df_mstream *s)
{
	return s;
}

static void stream_delete(struct df_mstream *s)
{
	(void)s;
}

static int stream_write(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value)
{
	(void)s;
	(void)addr;
	(void)near;
	(void)value;
	return -ENODEV;
}

static int stream_wait(struct df_mstream *s, const uint64_t *addr, uint64_t value)
{
	(void)s;
	(void)addr;
	(void)value;
	return -ENODEV;
}

static int stream_idle(struct df_mstream *s)
{
	(void)s;
	return 1;
}

static int event_record(void *event, struct df_mstream *s)
{
	(void)event;
	(void)s;
	return -ENODEV;
}

static int event_new(int device, void **event)
{
	(void)device;
	(void)event;
	return -ENODEV;
}

static void event_delete(void *event)
{
	(void)event;
}

static int event_wait(struct df_mstream *s, void *event)
{
	return event_record(event, s);
}

static int streams_idle(int device)
{
	(void)device;
	return 1;
}

static int capture_nodes(struct df_mstream *const *s, const struct df_capture_ops *ops,
			 void *const *args, uint32_t nr)
{
	(void)s;
	for (uint32_t i = 0; i < nr; i++)
		ops->destroy(args[i]);
	return -EINVAL;
}

static int kick(int device)
{
	(void)device;
	return 0;
}

static int mem_alloc(int device, size_t bytes, void **out)
{
	(void)device;
	(void)bytes;
	(void)out;
	return -ENODEV;
}

static int mem_free(void *ptr)
{
	(void)ptr;
	return -EINVAL;
}

static int mem_info(const void *ptr, struct df_mem_info *out)
{
	(void)ptr;
	memset(out, 0, sizeof(*out));
	return 0;
}

const struct df_backend df_no_machine = {
	.version = DF_BACKEND_VERSION,
	.set_hooks = set_hooks,
	.device_count = device_count,
	.get_device = get_device,
	.set_device = set_device,
	.stream_info = stream_info,
	.stream_new = stream_new,
	.stream_delete = stream_delete,
	.stream_handle = stream_handle,
	.stream_write = stream_write,
	.stream_wait = stream_wait,
	.stream_idle = stream_idle,
	.event_record = event_record,
	.event_new = event_new,
	.event_delete = event_delete,
	.event_wait = event_wait,
	.streams_idle = streams_idle,
	.capture_nodes = capture_nodes,
	.kick = kick,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.mem_info = mem_info,
};

const struct df_backend *df_backend = &df_no_machine;
