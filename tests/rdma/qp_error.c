/*
 * A libibverbs with a fault: QP_ERRORS times (10), every QP_ERROR_MS milliseconds, it puts its
 * newest queue pair into error. All other functions are the real library's, with which this one is
 * linked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_qp *newest;

static void *breaker(void *arg)
{
	int ms = atoi(getenv("QP_ERROR_MS")),
	    left = getenv("QP_ERRORS") ? atoi(getenv("QP_ERRORS")) : 10;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	while (left > 0) {
		usleep((unsigned)ms * 1000);
		pthread_mutex_lock(&lock);
		if (newest && newest->state == IBV_QPS_RTS &&
		    !ibv_modify_qp(newest, &attr, IBV_QP_STATE)) {
			fprintf(stderr, "qp_error: queue pair %u is in error\n", newest->qp_num);
			left--;
		}
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *), *qp;
	static int started;
	pthread_t t;

	*(void **)&real = dlsym(RTLD_NEXT, "ibv_create_qp");
	pthread_mutex_lock(&lock);
	qp = real(pd, attr);
	newest = qp;
	if (!started && getenv("QP_ERROR_MS") && !pthread_create(&t, NULL, breaker, NULL))
		started = 1;
	pthread_mutex_unlock(&lock);
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*real)(struct ibv_qp *), ret;

	*(void **)&real = dlsym(RTLD_NEXT, "ibv_destroy_qp");
	pthread_mutex_lock(&lock);
	if (newest == qp)
		newest = NULL;
	ret = real(qp);
	pthread_mutex_unlock(&lock);
	return ret;
}
