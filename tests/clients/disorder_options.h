/*
 * What disorder.c is asked for on its command line.
 */
#ifndef CLIENT_DISORDER_OPTIONS_H
#define CLIENT_DISORDER_OPTIONS_H

#include "client.h"

#include <getopt.h>

static struct options {
	int warmup, ranks, colls, iters, comms, streams, procs, sync, inorder, mix, single,
		plain_wait, json;
	int no_check;
	size_t min, max;
	uint64_t seed;
	double timeout;
} opt = {.ranks = 0,
	 .colls = 8,
	 .iters = 200,
	 .comms = 0,
	 .streams = 1,
	 .min = 256,
	 .max = 1048576,
	 .seed = 1};

static const char help[] =
	"usage: disorder [OPTIONS]\n\n"
	"Every rank issues the same collectives in an order of its own and checks every result.\n\n"
	"  --ranks N        NCCL ranks (default 8; 1 for each process when started by a launcher)\n"
	"  --colls N        collectives in one iteration (8)\n"
	"  --iters N        iterations (200)\n"
	"  --min B --max B  smallest and largest buffer, in bytes (256, 1048576)\n"
	"  --seed N         of the orders (1)\n"
	"  --comms N        communicators (one for each collective)\n"
	"  --streams N      streams of one rank (1)\n"
	"  --sync[=N]       cudaDeviceSynchronize between the collectives: everywhere, or N times\n"
	"  --mix            all kinds of collectives instead of AllReduce alone\n"
	"  --inorder        the same order on all ranks: the control\n"
	"  --warmup         one iteration in the same order first, so that NCCL is connected\n"
	"  --procs N        processes; started here unless torchrun, mpirun or dfshim run did it\n"
	"  --single-thread  one thread for all ranks: ncclCommInitAll and groups\n"
	"  --wait poll|sync how the host waits: as PyTorch does (poll), or cudaStreamSynchronize\n"
	"  --timeout S      give up after S seconds without progress (exit 4)\n"
	"  --no-check       do not compare results\n"
	"  --json           the summary as JSON\n\n"
	"Exit status: 0 right, 1 wrong results, 2 wrong usage, 3 NCCL or CUDA error, 4 no progress.\n";

static long number(const char *name, const char *text, long min, long max)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < min || v > max) {
		fprintf(stderr, "disorder: --%s %s: a number from %ld to %ld is needed\n", name,
			text, min, max);
		exit(EXIT_USAGE);
	}
	return v;
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"ranks", 1, 0, 'r'},	      {"colls", 1, 0, 'c'},   {"iters", 1, 0, 'i'},
		{"min", 1, 0, 'm'},	      {"max", 1, 0, 'M'},     {"seed", 1, 0, 's'},
		{"comms", 1, 0, 'C'},	      {"streams", 1, 0, 'S'}, {"sync", 2, 0, 'y'},
		{"procs", 1, 0, 'p'},	      {"inorder", 0, 0, 'o'}, {"warmup", 0, 0, 'u'},
		{"mix", 0, 0, 'x'},	      {"wait", 1, 0, 'w'},    {"timeout", 1, 0, 't'},
		{"single-thread", 0, 0, '1'}, {"json", 0, 0, 'j'},    {"help", 0, 0, 'h'},
		{"no-check", 0, 0, 'n'},      {0, 0, 0, 0},
	};
	int o, i = 0;

	while ((o = getopt_long(argc, argv, "h", longs, &i)) != -1) {
		const char *name = o == '?' ? "" : longs[i].name;

		switch (o) {
		case 'r':
			opt.ranks = (int)number(name, optarg, 1, 4096);
			break;
		case 'c':
			opt.colls = (int)number(name, optarg, 1, 100000);
			break;
		case 'i':
			opt.iters = (int)number(name, optarg, 1, 1000000000);
			break;
		case 'm':
			opt.min = (size_t)number(name, optarg, 4, 1L << 40);
			break;
		case 'M':
			opt.max = (size_t)number(name, optarg, 4, 1L << 40);
			break;
		case 's':
			opt.seed = (uint64_t)number(name, optarg, 0, LONG_MAX);
			break;
		case 'C':
			opt.comms = (int)number(name, optarg, 1, 100000);
			break;
		case 'S':
			opt.streams = (int)number(name, optarg, 1, 100000);
			break;
		case 'y':
			opt.sync = optarg ? (int)number(name, optarg, 0, 100000) : 100000;
			break;
		case 'p':
			opt.procs = (int)number(name, optarg, 1, 1024);
			break;
		case 't':
			opt.timeout = (double)number(name, optarg, 1, 1000000);
			break;
		case 'o':
			opt.inorder = 1;
			break;
		case 'u':
			opt.warmup = 1;
			break;
		case 'x':
			opt.mix = 1;
			break;
		case '1':
			opt.single = 1;
			break;
		case 'j':
			opt.json = 1;
			break;
		case 'n':
			opt.no_check = 1;
			break;
		case 'w':
			opt.plain_wait = !strcmp(optarg, "sync");
			if (!opt.plain_wait && strcmp(optarg, "poll")) {
				fprintf(stderr, "disorder: --wait %s: poll or sync is needed\n",
					optarg);
				exit(EXIT_USAGE);
			}
			break;
		case 'h':
			fputs(help, stdout);
			exit(0);
		default:
			fputs("Try 'disorder --help'.\n", stderr);
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "disorder: unknown argument '%s'\n", argv[optind]);
		exit(EXIT_USAGE);
	}
	if (opt.max < opt.min)
		opt.max = opt.min;
	if (!opt.comms || opt.comms > opt.colls)
		opt.comms = opt.colls;
	if (!opt.ranks && !getenv("WORLD_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE"))
		opt.ranks = 8;
}

#endif
