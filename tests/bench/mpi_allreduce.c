/*
 * The twin of tests/clients/latency.c in MPI, for a comparison on one machine: it has the same
 * sizes, measures the time in the same way, and prints the same output. b_mpi.sh and b_net.sh build
 * it with mpicc.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double processor(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
	size_t bytes, max = 64 << 20;
	double times[101], t0, cpu = 0;
	int rank, n, r, i, inner, rounds = 11;
	float *buf;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (getenv("LATENCY_MAX"))
		max = strtoull(getenv("LATENCY_MAX"), NULL, 0);
	if (getenv("LATENCY_ROUNDS"))
		rounds = atoi(getenv("LATENCY_ROUNDS"));
	if (rounds < 1 || rounds > 101 || !(buf = malloc(max)))
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(buf, 0, max);
	for (bytes = 8; bytes <= max; bytes = bytes < (1 << 20) ? 1 << 20 : bytes * 4) {
		inner = bytes <= 65536 ? 200 : bytes <= (1 << 20) ? 20 : 4;
		for (r = -1; r < rounds; r++) {
			if (!r)
				cpu = processor();
			t0 = MPI_Wtime();
			for (i = 0; i < inner; i++)
				MPI_Allreduce(MPI_IN_PLACE, buf, (int)(bytes / sizeof(float)),
					      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			if (r >= 0)
				times[r] = (MPI_Wtime() - t0) / inner;
		}
		if (getenv("LATENCY_CPU"))
			printf("cpu: %zu bytes %.3f us\n", bytes,
			       (processor() - cpu) * 1e6 / ((double)inner * rounds));
		qsort(times, (size_t)rounds, sizeof(*times), by_value);
		if (!rank)
			printf("latency: %zu bytes %.3f us %.4f GB/s call 0 us\n", bytes,
			       times[rounds / 2] * 1e6,
			       (double)bytes / times[rounds / 2] * 1e-9 * 2 * (n - 1) / n);
	}
	free(buf);
	MPI_Finalize();
	return 0;
}
