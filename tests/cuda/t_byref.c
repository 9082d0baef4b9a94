/*
 * Slices by reference between two GPUs of one process that can access each other's memory, on the
 * test driver: which memory is sent by reference, that no thread waits for a receiver that has
 * stopped, and that the references of an aborted operation are not read any more. The last test has
 * a control: without the withdrawal (df_refs_withdraw(), replaced by the linker) they are read.
 */
#define _GNU_SOURCE
#include <unistd.h>
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/device/cuda/cuda_int.h"
#include "tests/cuda/backend.h"

#ifdef DF_DEBUG
/*
 * A sanitizer's build has no GPU code (SAN=debug has). The test driver needs none: it knows the
 * kernel by its name.
 */
const void *df_cuda_fatbin(void)
{
	return "none";
}
#endif

#define BYTES ((size_t)1 << 20)

static uint64_t turns[RANKS]; /* turns that each device's block has made */
/* the second device's block stops after this number of slices; 0: never */
static uint64_t stops_at;
/* goes_on: the stopped block continues (atomic); untaken: nothing is withdrawn */
static int goes_on, untaken;

static void turned(const struct df_kdaemon *d, const struct df_kblock *blk, unsigned int block)
{
	int device = d == &df_rt.devs[1].exec.d;
	uint64_t at = __atomic_load_n(&stops_at, __ATOMIC_RELAXED);

	(void)block;
	__atomic_add_fetch(&turns[device], 1, __ATOMIC_RELAXED);
	while (device && at && blk->stats.slices == at &&
	       !__atomic_load_n(&goes_on, __ATOMIC_RELAXED))
		usleep(50);
}

uint32_t __real_df_refs_withdraw(struct df_comm *comm);
uint32_t __wrap_df_refs_withdraw(struct df_comm *comm);
uint32_t __wrap_df_refs_withdraw(struct df_comm *comm)
{
	return untaken ? 0 : __real_df_refs_withdraw(comm);
}

/* Returns the number of slices that the device's rank has sent by reference. */
static uint64_t refs_of(int device)
{
	/* RELAXED: only a count. */
	return __atomic_load_n(&df_rt.devs[device].exec.blocks[0].stats.refs, __ATOMIC_RELAXED);
}

static void settings(void)
{
	setenv("NCCL_ALGO", "Ring", 1);
	setenv("NCCL_PROTO", "Simple", 1);
	setenv("DFSHIM_BLOCKS", "1", 1);
	setenv("DFSHIM_SLOTS", "4", 1);
	setenv("DFSHIM_SLOT_KB", "16", 1);
	setenv("DFSHIM_QUIT_US", "1200000000", 1);
}

/* ---- which memory ---------------------------------------------------------------------------- */

static void *device_memory(int device, size_t bytes)
{
	void *p = NULL;

	ck_assert_int_eq(df_cuda_api.mem_alloc(device, bytes, &p), 0);
	return p;
}

/*
 * Allocates memory with cuMemMap(), accessible to its own device only: peer access does not extend
 * to it.
 */
static void *mapped_memory(int device, size_t bytes)
{
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			unsigned long long);
	CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemAccessDesc desc = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	size_t whole = (bytes + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
	CUdeviceptr at;

	*(void **)&reserve = dlsym(RTLD_DEFAULT, "cuMemAddressReserve");
	*(void **)&create = dlsym(RTLD_DEFAULT, "cuMemCreate");
	*(void **)&map = dlsym(RTLD_DEFAULT, "cuMemMap");
	*(void **)&access = dlsym(RTLD_DEFAULT, "cuMemSetAccess");
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(device)) >= 0, 1);
	ck_assert_int_eq(reserve(&at, whole, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(create(&handle, whole, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(map(at, whole, 0, handle, 0), CUDA_SUCCESS);
	ck_assert_int_eq(access(at, whole, &desc, 1), CUDA_SUCCESS);
	return (void *)(uintptr_t)at;
}

START_TEST(memory)
{
	static const struct {
		void *(*from)(int device, size_t bytes);
		const char *set;
		int graph, goes;
	} cases[] = {
		{device_memory, NULL, 0, 1},
		{device_memory, NULL, 1, 1},
		{device_memory, "FAKE_CUDA_NO_P2P", 0, 0},
		{device_memory, "NCCL_P2P_DIRECT_DISABLE", 0, 0},
		{mapped_memory, NULL, 0, 0},
		{host_memory, NULL, 0, 0},
	};

	settings();
	if (cases[_i].set)
		setenv(cases[_i].set, "1", 1);
	job_memory = cases[_i].from;
	start();
	job(BYTES / sizeof(float), 3, cases[_i].graph);
	in_place = 1;
	job(BYTES / sizeof(float), 3, cases[_i].graph);
	ck_assert_int_eq(refs_of(0) > 0, cases[_i].goes);
	ck_assert_int_eq(refs_of(1) > 0, cases[_i].goes);
}
END_TEST

/* ---- one message ----------------------------------------------------------------------------- */

struct side {
	int rank;
	struct df_comm *comm;
	struct df_ticket ticket;
	unsigned char *buf;
};

static void meet(struct side side[RANKS])
{
	struct df_comm *comm[RANKS];
	int i;

	settings();
	start();
	/*
	 * The test calls the driver without the hook. That alone would make streams wait for
	 * operations (strict order), so it is switched off.
	 */
	df_rt.strict = 0;
	comms_new(comm);
	for (i = 0; i < RANKS; i++) {
		side[i].rank = i;
		side[i].comm = comm[i];
		side[i].buf = device_memory(i, BYTES);
		memset(side[i].buf, i ? 0 : 0x11, BYTES);
	}
}

/* Submits a send on the first device, the matching receive on the second. */
static void submit(struct side *s, const void *stream)
{
	struct df_op op = {.kind = s->rank ? DF_COLL_RECV : DF_COLL_SEND,
			   .comm = s->comm,
			   .send = s->rank ? NULL : s->buf,
			   .recv = s->rank ? s->buf : NULL,
			   .count = BYTES,
			   .type = DF_INT8,
			   .root = !s->rank,
			   .stream = stream,
			   .ticket = &s->ticket};

	ck_assert_int_eq(df_submit(&op, 1), 0);
}

static int is_done(const struct side *s)
{
	/* ACQUIRE pairs with the RELEASE in dfk_finish(). */
	return __atomic_load_n(s->ticket.done, __ATOMIC_ACQUIRE) >= s->ticket.value;
}

/*
 * Waits for the first device's operation. Returns the number of slots of its only connector;
 * *slices is the number of slices of the operation.
 */
static uint64_t slots_of(uint64_t *slices)
{
	const struct df_coll *coll;
	uint64_t slots = 0;

	while (!slots) {
		df_mutex_lock(&df_rt.devs[0].lock);
		coll = df_list_first(&df_rt.devs[0].flying, struct df_coll, flying);
		ck_assert_uint_eq(coll->nr_ends, 1);
		slots = coll->ends[0].k->nr_slots;
		*slices = coll->k.loops * coll->ends[0].k->per_loop;
		df_mutex_unlock(&df_rt.devs[0].lock);
		usleep(100);
	}
	return slots;
}

/*
 * A send finishes when the receiver has taken all slices except the last ones, as many as there are
 * slots. A send that copies its slices does so too.
 */
START_TEST(stopped)
{
	struct side side[RANKS] = {{0}};
	uint64_t slots, slices;
	size_t i;

	meet(side);
	submit(&side[0], DF_NO_STREAM);
	slots = slots_of(&slices);
	ck_assert_uint_gt(slices, 2 * slots);
	__atomic_store_n(&stops_at, slices - slots, __ATOMIC_RELAXED);
	submit(&side[1], DF_NO_STREAM);
	while (!is_done(&side[0]))
		usleep(100);
	ck_assert(!is_done(&side[1]));
	/* The application may change the sender's buffer now. */
	memset(side[0].buf, 0xee, BYTES);
	__atomic_store_n(&goes_on, 1, __ATOMIC_RELAXED);
	while (!is_done(&side[1]))
		usleep(100);
	for (i = 0; i < BYTES && side[1].buf[i] == 0x11; i++)
		;
	ck_assert_uint_eq(i, BYTES);
	for (i = 0; i < RANKS; i++)
		df_comm_destroy(side[i].comm);
	ck_assert_uint_eq(refs_of(0), slices - slots);
}
END_TEST

/*
 * The sender sends references to its buffer. Its communicator is aborted before the receiver has
 * read them, so the application may change the buffer. The receiver does not know about the abort,
 * and must not read the buffer. Without the withdrawal it does.
 */
START_TEST(withdrawn)
{
	static uint64_t gate;
	struct side side[RANKS] = {{0}};
	struct df_stream_info s;
	uint64_t slots, slices, from;
	const void *read;
	int i;

	untaken = _i;
	meet(side);
	ck_assert_int_eq(df_cuda_api.stream_new(1, &s), 0);
	ck_assert_int_eq(df_cuda_api.stream_wait(s.stream, &gate, 1), 0);
	submit(&side[1], s.stream->handle);
	submit(&side[0], DF_NO_STREAM);
	slots = slots_of(&slices);
	while (refs_of(0) < slots)
		usleep(100);
	df_comm_abort(side[0].comm);
	memset(side[0].buf, 0xee, BYTES);
	/* RELEASE pairs with the load of `gate` by the driver's stream wait. */
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	while (!df_cuda_api.stream_idle(s.stream))
		usleep(50);
	/* The receiver's operation may start now: wait for 2,000 turns of its block. */
	from = __atomic_load_n(&turns[1], __ATOMIC_RELAXED);
	while (__atomic_load_n(&turns[1], __ATOMIC_RELAXED) - from < 2000)
		usleep(1000);
	df_comm_abort(side[1].comm);
	read = memchr(side[1].buf, 0xee, BYTES);
	ck_assert_int_eq(read != NULL, untaken);
	for (i = 0; i < RANKS; i++)
		df_comm_destroy(side[i].comm);
}
END_TEST

int main(void)
{
	if (access(fake_path(), R_OK) || !df_cuda_fatbin()) {
		printf("skipped: built without CUDA headers or without nvcc\n");
		return 77;
	}
	daemon_turn = turned;
	return DF_TESTS("by reference", {memory, 6}, {stopped}, {withdrawn, 2});
}
