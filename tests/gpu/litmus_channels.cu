/*
 * Which streams share a hardware queue, so that a waiting stream blocks the other? Each stream in
 * turn waits for a word, and every other stream writes its own word; those that do not share the
 * queue. Tests streams of several priorities, of a green context, of the thread, streams that
 * replace destroyed ones, and one made by another thread; with 8 and 32 connections. Finally tests
 * whether a stream that waits for an event blocks its queue as one that waits for a word does.
 */
#include "tests/gpu/litmus.h"

#define STILL_NS 3000000ull /* a write that has not arrived by then counts as blocked */

struct named {
	std::string name;
	cudaStream_t s;
};
static std::vector<named> streams;
static struct word *w; /* word 0: streams wait for it; the others are written by one stream each */
static uint64_t turn;

static cudaStream_t make(std::string name, int priority)
{
	cudaStream_t s;

	MUST(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority));
	streams.push_back({name, s});
	return s;
}

/* While stream `but` waits, finds the streams that are blocked. Ends the wait and returns them. */
static std::vector<size_t> held(size_t but)
{
	std::vector<size_t> out;
	value64_fn write64 = stream_write64();
	uint64_t end;
	size_t i;

	turn++;
	/* The calls themselves may block, so another thread ends the wait then. */
	std::atomic<int> done{0};
	std::thread rescue([&] {
		uint64_t t = now_ns() + 500000000ull;

		while (!done && now_ns() < t)
			usleep(100);
		put(&w[0], turn);
	});
	for (i = 0; i < streams.size(); i++)
		if (i != but)
			write64((CUstream)streams[i].s, (CUdeviceptr)&w[1 + i].v, turn, 0);
	end = now_ns() + STILL_NS;
	for (i = 0; i < streams.size(); i++) {
		while (i != but && get(&w[1 + i]) < turn && now_ns() < end)
			;
		if (i != but && get(&w[1 + i]) < turn)
			out.push_back(i);
	}
	done = 1;
	rescue.join();
	MUST(cudaDeviceSynchronize());
	return out;
}

static std::vector<size_t> held_by(size_t waiter)
{
	stream_wait64()((CUstream)streams[waiter].s, (CUdeviceptr)&w[0].v, turn + 1,
			CU_STREAM_WAIT_VALUE_GEQ);
	return held(waiter);
}

static void tell(const char *connections, size_t waiter)
{
	std::string names;

	for (size_t i : held_by(waiter))
		names += (names.empty() ? "" : " ") + streams[i].name;
	result("\"test\":\"channels\",\"connections\":%s,\"waits\":\"%s\",\"holds\":\"%s\"",
	       connections, streams[waiter].name.c_str(), names.c_str());
}

/*
 * Stream b waits for an event of stream a, which waits for a word. Reports whether a stream is
 * blocked that shares b's queue and not a's.
 */
static void events(const char *connections)
{
	for (size_t a = 0; a < streams.size(); a++) {
		std::vector<size_t> of_a = held_by(a);

		for (size_t b = 0; b < streams.size(); b++) {
			std::vector<size_t> of_b = held_by(b), seen;
			cudaEvent_t e;

			if (b == a || of_b.empty() || std::count(of_a.begin(), of_a.end(), b))
				continue;
			MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
			stream_wait64()((CUstream)streams[a].s, (CUdeviceptr)&w[0].v, turn + 1,
					CU_STREAM_WAIT_VALUE_GEQ);
			MUST(cudaEventRecord(e, streams[a].s));
			MUST(cudaStreamWaitEvent(streams[b].s, e, 0));
			seen = held(a);
			result("\"test\":\"channels\",\"connections\":%s,\"event\":true,\"a\":\"%s\",\"b\":\"%s\","
			       "\"held\":%zu,\"of_a\":%zu,\"of_b\":%zu",
			       connections, streams[a].name.c_str(), streams[b].name.c_str(),
			       seen.size(), of_a.size(), of_b.size());
			return;
		}
	}
}

static int one(const char *connections)
{
	int least, greatest, i, n = atoi(connections);
	cudaStream_t green;

	litmus_start("channels", 60);
	w = words(300);
	MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	result("\"test\":\"channels\",\"connections\":%s,\"least\":%d,\"greatest\":%d", connections,
	       least, greatest);
	make("H0", greatest);
	for (i = 0; i < n + 4; i++)
		make("A" + std::to_string(i), least);
	for (i = 1; i < 6; i++)
		make("H" + std::to_string(i), greatest);
	for (i = 0; i < 3; i++)
		make("M" + std::to_string(i), (least + greatest) / 2);
	streams.push_back({"thread", cudaStreamPerThread});
	for (i = 0; i < 2; i++)
		if (green_stream((CUstream *)&green))
			streams.push_back({"G" + std::to_string(i), green});
	for (size_t k = 0; k < streams.size(); k++)
		tell(connections, k);
	/* Streams that replace destroyed ones. */
	for (i = 3; i < 6; i++) {
		MUST(cudaStreamDestroy(streams[i].s));
		MUST(cudaStreamCreateWithPriority(&streams[i].s, cudaStreamNonBlocking, least));
		streams[i].name = "N" + std::to_string(i);
	}
	std::thread([&] { make("T", least); }).join();
	for (i = 3; i < 6; i++)
		tell(connections, i);
	tell(connections, streams.size() - 1);
	events(connections);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *connections[] = {"8", "32"};

	if (argc == 2)
		return one(argv[1]);
	return each_connections("channels", argv[0], connections, 2);
}
