/*
 * The registry of collectives: each communicator has a uthash table from signature to df_coll,
 * filled on first use. All functions need the device's lock, except df_coll_slot_bytes().
 *
 * Instances form a list from oldest to newest. A block keeps a pointer to the instance that it
 * finished last until it starts the next one. So an instance is reused only when all blocks have
 * finished a later one and the host has noted that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/blocks.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/coll/calibrate.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/recycle.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/coll/dev.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/program.h"
#include "runtime/program/proto.h"
#include "trace/record/writer.h"

#define PROBE_EVERY 32 /* one instance in 32 is timed */
#define PROBE_MAX   64 /* limit of timed instances of one collective */

#define NET_SLOTS 16
#define NET_BYTES (64u << 10) /* limit for a connector that has more slots than DFSHIM_SLOTS */

static int is_pair(const struct df_sig *sig)
{
	return sig->kind == DF_COLL_SEND || sig->kind == DF_COLL_RECV;
}

/*
 * Returns the number of slots to request. Credits of another node take long to arrive, so more
 * small slices may be in flight there.
 */
static uint32_t slots_wanted(const struct df_comm *comm, int peer, uint64_t slice, int pair)
{
	uint32_t nr = pair		       ? DF_MAX(df_rt.slots, 8u)
		      : comm->choice.nodes > 1 ? df_rt.far_slots
					       : df_rt.slots;

	if (df_conn_direct(comm, peer))
		return nr;
	return DF_MAX(nr, (uint32_t)DF_MIN(NET_BYTES / DF_MAX(slice, 1u), (uint64_t)NET_SLOTS));
}

static int contexts(struct df_coll *coll)
{
	const struct df_program *prog = coll->prog;
	struct df_kcoll *k = &coll->k;
	struct df_kconn *kc;
	int pair = is_pair(&coll->sig);
	uint64_t slice = k->tile_elems * k->elem_bytes * prog->max_cnt;
	struct df_slots slots;
	uint32_t b, i, nr = 0, lead = 1;

	k->ctx = df_kalloc(prog->nr_blocks * sizeof(*k->ctx));
	kc = df_kalloc((prog->nr_conns + 1) * sizeof(*kc));
	coll->ends = calloc(prog->nr_conns + 1, sizeof(*coll->ends));
	if (!k->ctx || !kc || !coll->ends) {
		df_kfree(k->ctx);
		df_kfree(kc);
		free(coll->ends);
		return -ENOMEM;
	}
	for (b = 0; b < prog->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(prog, b);
		struct df_kctx *ctx = &k->ctx[b];

		df_kctx_init(ctx, k, kc, b);
		if (!pb->nr_inst)
			continue;
		ctx->lead = lead;
		lead = 0;
		k->nr_blocks++;
		for (i = 0; i < pb->nr_send + pb->nr_recv; i++) {
			int sends = i < pb->nr_send;
			uint32_t at = sends ? pb->first_send + i : pb->first_recv + i - pb->nr_send;
			const struct df_conn_spec *spec = df_prog_conn(prog, at);
			struct df_cend *end = &coll->ends[nr++];
			int src = sends ? coll->comm->rank : spec->peer;
			int dst = sends ? spec->peer : coll->comm->rank;
			uint64_t name[3] = {coll->key,
					    (uint64_t)(uint32_t)src << 32 | (uint32_t)dst,
					    spec->channel};

			end->k = &kc[at];
			end->ctx = ctx;
			end->k->per_loop = spec->per_loop;
			end->key = df_hash_bytes(name, sizeof(name), 0);
			end->sends = (uint8_t)sends;
			/* The owner has the slots: see runtime/transport/transport.h. */
			end->owner = pair ? sends : !sends;
			end->k->proto = DF_PROTO_SIMPLE;
			if (df_proto_words(coll->pick.proto) &&
			    df_conn_direct(coll->comm, spec->peer))
				end->k->proto = coll->pick.proto;
			/*
			 * The sender of a message must know exactly how much was received: each
			 * slice of a pair is acknowledged by itself.
			 */
			slots = df_proto_slots((enum df_proto)end->k->proto, slice,
					       slots_wanted(coll->comm, spec->peer, slice, pair),
					       prog->min_slots, pair, df_blocks->gpu ? 16 : 8);
			end->nr_slots = slots.nr;
			end->slot_bytes = slots.bytes;
			end->k->credit = slots.credit;
		}
	}
	coll->nr_ends = nr;
	return 0;
}

int df_coll_scratch(struct df_coll *coll)
{
	void *p;
	int ret = df_blocks->scratch(coll->dev->index, coll->scratch_bytes, &p);

	if (ret)
		return ret;
	coll->k.scratch = p;
	coll->no_scratch = 0;
	/*
	 * RELEASE pairs with the ACQUIRE in dfk_waits_over() (kernels/task.inl): the pointer is
	 * set before an instance that waited for it starts.
	 */
	__atomic_store_n(coll->scratch_word, coll->scratch_from + 1, __ATOMIC_RELEASE);
	return 0;
}

static int scratch(struct df_coll *coll, uint64_t bytes)
{
	int ret;

	coll->scratch_bytes = bytes;
	coll->scratch_word = df_word_get();
	if (!coll->scratch_word)
		return -ENOMEM;
	coll->scratch_from = __atomic_load_n(coll->scratch_word, __ATOMIC_RELAXED);
	ret = df_coll_scratch(coll);
	if (ret == -EAGAIN) {
		coll->no_scratch = 1;
		coll->nr_open++; /* df_connector_connect() tries again */
		ret = 0;
	}
	if (ret)
		df_word_put(coll->scratch_word);
	return ret;
}

static void scratch_free(struct df_coll *coll)
{
	if (coll->scratch_word) {
		df_blocks->scratch_free(coll->k.scratch);
		df_word_put(coll->scratch_word);
	}
}

/* Returns the number of elements that it moves; 1 without data: the ranks wait for each other. */
static uint64_t moved(const struct df_sig *sig)
{
	return sig->no_data ? 1 : sig->count;
}

/* Chooses the program: from a file, else by the tuner. */
static int choose(struct df_coll *coll, int in_place)
{
	const struct df_comm *comm = coll->comm;
	const struct df_sig *sig = &coll->sig;
	struct df_prog_req req = {
		.kind = (enum df_coll_kind)sig->kind,
		.nranks = comm->nranks,
		.rank = comm->rank,
		.nodes = comm->choice.nodes,
		.layout = comm->choice.layout,
		.root = sig->root,
		.peer = sig->root,
		.count = moved(sig),
		.elem_bytes = df_type_bytes(sig->type),
		.max_blocks = comm->blocks,
		.in_place = in_place,
	};
	const struct df_algo_query query = {
		.req = &req, .type = sig->type, .redop = sig->redop, .cost = &comm->choice.cost};
	char why[256];
	int ret = df_program_select(df_rt.algos, df_rt.tuner, &query, &coll->prog, &coll->pick);

	if (ret)
		return ret;
	if (df_rt.algos && df_rt.algos->nr && !df_algo_find(df_rt.algos, &query, why, sizeof(why)))
		df_info("DFSHIM_ALGO: no file for %s of %llu elements: %s",
			df_coll_kind_name(req.kind), (unsigned long long)sig->count, why);
	return 0;
}

/*
 * A send on one rank is a receive on the other: both derive the same name for the pair's
 * connectors.
 */
static uint64_t key_of(const struct df_comm *comm, const struct df_sig *sig)
{
	const int pair = is_pair(sig);
	const uint64_t name[] = {comm->hash, sig->count,
				 (uint64_t)(pair ? DF_COLL_SEND : sig->kind) << 32 | sig->type,
				 pair ? 0 : (uint64_t)sig->redop << 32 | (uint32_t)sig->root,
				 sig->id | (uint64_t)sig->no_data << 32};

	return df_hash_bytes(name, sizeof(name), 0);
}

uint32_t df_coll_slot_bytes(const struct df_comm *comm)
{
	return comm->choice.nodes > 1 ? df_rt.far_slot_bytes : df_rt.slot_bytes;
}

/*
 * Divides the data into chunks, and these into slices. Takes another protocol if the chosen one has
 * no room for a slice.
 */
static void divide(struct df_coll *coll)
{
	int pair = is_pair(&coll->sig);
	uint32_t most = pair ? df_rt.slot_bytes : df_coll_slot_bytes(coll->comm);
	struct df_kcoll *k = &coll->k;

	k->type = coll->sig.type;
	k->redop = coll->sig.redop;
	k->elem_bytes = df_type_bytes(coll->sig.type);
	k->count = moved(&coll->sig);
	k->chunk_elems = (k->count + coll->prog->chunks - 1) / coll->prog->chunks;
	k->tile_elems =
		df_proto_tile(coll->pick.proto, coll->prog, k->chunk_elems, k->elem_bytes, most);
	if (!k->tile_elems) {
		coll->pick.proto = DF_PROTO_SIMPLE;
		k->tile_elems = df_proto_tile(DF_PROTO_SIMPLE, coll->prog, k->chunk_elems,
					      k->elem_bytes, most);
	}
	k->loops = DF_MAX((k->chunk_elems + k->tile_elems - 1) / k->tile_elems, 1);
}

/* Returns the number of lower ranks that share this rank's daemon. */
static uint32_t ranks_before(const struct df_comm *comm)
{
	uint32_t n = 0;
	int i;

	for (i = 0; i < comm->rank; i++)
		n += comm->members[i].proc == df_rt.self.proc &&
		     comm->members[i].device == comm->dev->index;
	return n;
}

static int coll_create(struct df_comm *comm, const struct df_sig *sig, int in_place,
		       struct df_coll **out)
{
	struct df_coll *coll = df_kalloc(sizeof(*coll));
	struct df_kcoll *k;
	int ret;

	if (!coll)
		return -ENOMEM;
	df_recycle_look(comm->dev);
	k = &coll->k;
	coll->sig = *sig;
	coll->entering = 1;
	coll->comm = comm;
	coll->dev = comm->dev;
	df_list_init(&coll->node);
	df_list_init(&coll->waiting);
	df_list_init(&coll->flying);
	df_list_init(&coll->holding);
	df_list_init(&coll->using);
	ret = choose(coll, in_place);
	if (ret)
		goto err_coll;
	coll->first_block = ranks_before(comm) * coll->prog->nr_blocks;
	k->id = coll->key = key_of(comm, sig);
	df_kcoll_program(k, coll->prog);
	if (df_blocks->gpu) {
		struct df_program *p = df_kalloc_raw(coll->prog->bytes);

		ret = -ENOMEM;
		if (!p)
			goto err_prog;
		k->prog = memcpy(p, coll->prog, coll->prog->bytes);
	}
	divide(coll);
	if (coll->prog->scratch_chunks) {
		uint64_t bytes = coll->prog->scratch_chunks * k->chunk_elems * k->elem_bytes;

		ret = scratch(coll, bytes + 1);
		if (ret)
			goto err_prog;
	}
	ret = -ENOMEM;
	k->done = df_word_get();
	if (!k->done)
		goto err_scratch;
	/* RELAXED: nothing writes the word before the first instance. */
	coll->base = __atomic_load_n(k->done, __ATOMIC_RELAXED);
	ret = contexts(coll);
	if (ret)
		goto err_word;
	if (coll->nr_ends || coll->nr_open) {
		ret = df_coll_connect(coll);
		if (ret)
			goto err_ctx;
	}
	df_log(DF_LOG_INFO,
	       "%s of %llu elements on %d ranks: program %s, %u blocks, %llu slices a block, %s%s",
	       df_coll_kind_name((enum df_coll_kind)sig->kind), (unsigned long long)sig->count,
	       comm->nranks, coll->prog->name, k->nr_blocks, (unsigned long long)k->loops,
	       df_proto_name(coll->pick.proto),
	       coll->pick.staged ? ", copies its input first" : "");
	coll->name = df_trace_text(coll->prog->name);
	df_list_add_tail(&coll->dev->colls, &coll->node);
	HASH_ADD(hh, comm->registry.all, sig, sizeof(coll->sig), coll);
	coll->entering = 0;
	*out = coll;
	return 0;

err_ctx:
	free(coll->ends);
	df_kfree(k->ctx->send);
	df_kfree(k->ctx);
err_word:
	df_word_put(k->done);
err_scratch:
	scratch_free(coll);
err_prog:
	if (k->prog != coll->prog)
		df_kfree((void *)k->prog);
	df_program_free(coll->prog);
err_coll:
	df_kfree(coll);
	return ret;
}

int df_coll_get(struct df_comm *comm, const struct df_sig *sig, int in_place, struct df_coll **out)
{
	struct df_coll *coll = comm->registry.last;

	if (!coll || memcmp(&coll->sig, sig, sizeof(*sig)) != 0) {
		HASH_FIND(hh, comm->registry.all, sig, sizeof(*sig), coll);
		if (!coll) {
			int ret = coll_create(comm, sig, in_place, &coll);

			if (ret)
				return ret;
		}
		comm->registry.last = coll;
	}
	*out = coll;
	return 0;
}

/* Returns the oldest instance if neither a block nor the host uses it any more, else NULL. */
static struct df_kinst *reuse(struct df_coll *coll)
{
	struct df_kinst *inst = coll->oldest;

	/*
	 * retired > seq + 1: all blocks have finished the next instance, so none holds this one.
	 * (The host retires an instance after it has seen the completion word, which orders the
	 * blocks' reads.)
	 */
	if (!inst || !inst->next || coll->retired <= inst->seq + 1)
		return NULL;
	coll->oldest = inst->next;
	return inst;
}

static void instance_free(struct df_kinst *inst)
{
	if (inst->waits != inst->own_waits)
		df_kfree(inst->waits);
	df_kfree(inst);
}

struct df_kinst *df_coll_instance(struct df_coll *coll, uint32_t nr_waits)
{
	struct df_kinst *inst = reuse(coll);

	if (!inst) {
		inst = df_kalloc(sizeof(*inst));
		if (!inst)
			return NULL;
		inst->waits = inst->own_waits;
		inst->cap_waits = DF_INST_WAITS;
	}
	if (nr_waits > inst->cap_waits) {
		struct df_kwait *w = df_kalloc(nr_waits * sizeof(*w));

		if (!w) {
			instance_free(inst);
			return NULL;
		}
		if (inst->waits != inst->own_waits)
			df_kfree(inst->waits);
		inst->waits = w;
		inst->cap_waits = nr_waits;
	}
	inst->next = NULL;
	inst->gate = NULL;
	inst->nr_waits = 0;
	inst->blocks_left = coll->k.nr_blocks;
	return inst;
}

/*
 * Starts timing every PROBE_EVERY-th instance, if it waits for nothing. The median of DF_PROBES
 * times, compared with the model's prediction, corrects the costs of the next communicator
 * (runtime/coll/calibrate.c).
 */
static void probe(struct df_coll *coll, const struct df_kinst *inst)
{
	if (df_likely(inst->seq % PROBE_EVERY != PROBE_EVERY / 2) || coll->probe.since ||
	    inst->nr_waits || coll->pick.ns <= 0 || coll->probe.nr >= PROBE_MAX)
		return;
	coll->probe.seq = inst->seq;
	coll->probe.since = df_now_ns();
}

static void probed(struct df_coll *coll)
{
	uint64_t ns = df_now_ns() - coll->probe.since;
	double factor = coll->comm->choice.cost.factor[coll->pick.algo];
	uint32_t i = coll->probe.nr++ % DF_PROBES;

	coll->probe.since = 0;
	/*
	 * Insertion sort, for the median: the last rank to call measures almost no time, and the
	 * first one also measures how late the others are.
	 */
	for (; i && coll->probe.ns[i - 1] > ns; i--)
		coll->probe.ns[i] = coll->probe.ns[i - 1];
	coll->probe.ns[i] = ns;
	/* pick.ns includes the factor of this communicator. */
	if (coll->probe.nr % DF_PROBES == 0)
		df_cal_note(coll->pick.algo, (double)coll->probe.ns[DF_PROBES / 2] / coll->pick.ns *
						     (factor > 0 ? factor : 1));
}

void df_coll_append(struct df_coll *coll, struct df_kinst *inst)
{
	inst->seq = coll->issued++;
	inst->done_value = df_coll_last(coll);
	probe(coll, inst);
	if (!coll->oldest)
		coll->oldest = inst;
	if (!coll->unretired) {
		coll->unretired = inst;
		df_list_add_tail(&coll->dev->flying, &coll->flying);
	}
	if (coll->newest)
		/*
		 * RELEASE pairs with the ACQUIRE of next in dfk_task_poll() (kernels/task.inl): the
		 * instance is initialised before a block can reach it.
		 */
		__atomic_store_n(&coll->newest->next, inst, __ATOMIC_RELEASE);
	coll->newest = inst;
}

void df_coll_retire(struct df_coll *coll)
{
	struct df_comm *comm = coll->comm;
	struct df_dev *dev = coll->dev;
	/*
	 * ACQUIRE pairs with the RELEASE of done in dfk_finish(): the blocks' last reads of the
	 * instances precede their reuse.
	 */
	uint64_t done = __atomic_load_n(coll->k.done, __ATOMIC_ACQUIRE) - coll->base;

	while (coll->unretired && coll->unretired->seq < done) {
		struct df_kinst *inst = coll->unretired;

		df_trace(DF_REC_OP_DONE, dev->index, comm->trace, comm->rank, inst->op,
			 coll->k.aborted, 0, 0, 0);
		df_trace_comm_done(comm->trace);
		if (df_unlikely(coll->probe.since) && inst->seq == coll->probe.seq)
			probed(coll);
		coll->unretired = inst->next;
		coll->retired++;
		/* RELAXED: readers only ask whether something is in flight. */
		__atomic_store_n(&comm->retired, comm->retired + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&dev->exec.retired, dev->exec.retired + 1, __ATOMIC_RELAXED);
		df_dev_needs(coll, -1);
	}
	if (!coll->unretired)
		df_list_del(&coll->flying);
	/* A buffered send outlives its communicator until the receiver has it (connector.c). */
	if (is_pair(&coll->sig))
		df_coll_note(coll);
	if (df_unlikely(coll->asked))
		df_coll_let_go(coll);
}

void df_coll_abort(struct df_coll *coll)
{
	/*
	 * RELEASE pairs with the ACQUIRE of aborted in dfk_decide() (kernels/daemon.inl). The
	 * caller then purges the blocks; after that only the host touches the collective.
	 */
	__atomic_store_n(&coll->k.aborted, 1, __ATOMIC_RELEASE);
}

void df_coll_destroy(struct df_coll *coll)
{
	struct df_kinst *inst, *next;

	df_list_del(&coll->node);
	df_list_del(&coll->holding);
	df_list_del(&coll->using);
	df_list_del(&coll->flying);
	if (!df_list_empty(&coll->waiting)) {
		df_list_del(&coll->waiting);
		__atomic_store_n(&coll->dev->nr_connecting, coll->dev->nr_connecting - 1,
				 __ATOMIC_RELAXED);
	}
	df_coll_disconnect(coll);
	for (inst = coll->oldest; inst; inst = next) {
		next = inst->next;
		instance_free(inst);
	}
	df_word_put(coll->k.done);
	df_kfree(coll->k.ctx->send);
	df_kfree(coll->k.ctx);
	free(coll->ends);
	scratch_free(coll);
	if (coll->k.prog != coll->prog)
		df_kfree((void *)coll->k.prog);
	df_program_free(coll->prog);
	df_kfree(coll);
}
