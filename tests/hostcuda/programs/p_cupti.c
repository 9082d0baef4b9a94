/*
 * CUPTI, opened as a profiler does: its version, its clock, refused functions, and the texts of
 * errors.
 */
#include <dlfcn.h>
#include "tests/hostcuda/programs/cu.h"

int main(void)
{
	static const char *const refused[] = {"cuptiSubscribe", "cuptiActivityEnable",
					      "cuptiActivityPushExternalCorrelationId"};
	void *lib = dlopen("libcupti.so.13", RTLD_NOW), *args[4] = {NULL};
	int (*version)(uint32_t *), (*text)(int, const char **), (*stamp)(uint64_t *);
	int (*fn)(void *, void *, void *, void *);
	const char *said = NULL;
	uint64_t first, second;
	uint32_t number = 0;
	size_t i;

	CHECK(lib && dlopen("libcupti.so.12", RTLD_NOW));
	CHECK(*(void **)&version = dlsym(lib, "cuptiGetVersion"));
	CHECK(*(void **)&text = dlsym(lib, "cuptiGetResultString"));
	CHECK(*(void **)&stamp = dlsym(lib, "cuptiGetTimestamp"));
	CHECK(version(&number) == 0 && number >= 130000);
	CHECK(version(NULL) && text(0, NULL) && stamp(NULL));
	CHECK(stamp(&first) == 0 && stamp(&second) == 0 && first && second >= first);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		CHECK(*(void **)&fn = dlsym(lib, refused[i]));
		CHECK(fn(&args[0], &args[1], &args[2], &args[3]) == 27);
	}
	CHECK(text(27, &said) == 0 && !strcmp(said, "CUPTI_ERROR_NOT_SUPPORTED"));
	return 0;
}
