/*
 * Wraps dlsym() and dlvsym(), so that a program that looks up NCCL's functions in a handle (JAX,
 * ctypes, CuPy) gets dfshim's. If a name of our table exists in the handle, they return our
 * function. All other requests go to the C library by a jump, not a call: RTLD_NEXT and
 * RTLD_DEFAULT depend on the caller's address, which must stay the application's.
 *
 * Requests for functions of the CUDA driver return wrappers (interpose/cuda/cuda_hook.c), which
 * need to know the function that they replace.
 *
 * Any thread, from the first instruction of the process on: constructors of other libraries call
 * these functions before ours runs. No lock, no allocation.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "interpose/cuda/cuda_hook.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_pass.h"
#include "interpose/real/real.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"

/* Returns our function for the request, or NULL. `version` NULL means any version. */
static void *answer(void *handle, const char *name, const char *version)
{
	void *ours = NULL, *real;
	int cuda;

	df_dlsym_resolve();
	if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name)
		return NULL;
	cuda = df_cuda_is_name(name);
	if (df_likely(!cuda)) {
		ours = df_nccl_find(name);
		if (df_likely(!ours))
			return NULL;
	}
	real = version ? df_real_dlvsym(handle, name, version) : df_real_dlsym(handle, name);
	if (!real)
		return NULL;
	return cuda ? df_cuda_answer(name, real) : ours;
}

/*
 * Called by the entries below before they jump. Returns our function, or NULL to jump. A name is
 * replaced only if it exists in the handle, in that version: a lookup of a function that the
 * library lacks must still fail.
 */
__attribute__((used)) static void *dl_answer(void *handle, const char *name)
{
	return answer(handle, name, NULL);
}

__attribute__((used)) static void *dlv_answer(void *handle, const char *name, const char *version)
{
	return version ? answer(handle, name, version) : NULL;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name);
__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name,
						    const char *version);

#if defined(__x86_64__)
/* Saves the arguments on the stack, and keeps it aligned to 16 bytes for the call. */
#define ENTRY(name, real, answer)                                                                  \
	__asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n"                   \
		"\t.cfi_startproc\n"                                                               \
		"\tendbr64\n"                                                                      \
		"\tsubq $24, %rsp\n"                                                               \
		"\t.cfi_adjust_cfa_offset 24\n"                                                    \
		"\tmovq %rdi, (%rsp)\n"                                                            \
		"\tmovq %rsi, 8(%rsp)\n"                                                           \
		"\tmovq %rdx, 16(%rsp)\n"                                                          \
		"\tcall " answer "\n"                                                              \
		"\tmovq (%rsp), %rdi\n"                                                            \
		"\tmovq 8(%rsp), %rsi\n"                                                           \
		"\tmovq 16(%rsp), %rdx\n"                                                          \
		"\taddq $24, %rsp\n"                                                               \
		"\t.cfi_adjust_cfa_offset -24\n"                                                   \
		"\ttestq %rax, %rax\n"                                                             \
		"\tjne 1f\n"                                                                       \
		"\tjmp *" real "(%rip)\n"                                                          \
		"1:\tret\n"                                                                        \
		"\t.cfi_endproc\n"                                                                 \
		".size " name ", .-" name "\n")
#elif defined(__aarch64__)
#define ENTRY(name, real, answer)                                                                  \
	__asm__(".text\n.globl " name "\n.type " name ", %function\n" name ":\n"                   \
		"\t.cfi_startproc\n"                                                               \
		"\tstp x29, x30, [sp, #-48]!\n"                                                    \
		"\t.cfi_adjust_cfa_offset 48\n"                                                    \
		"\t.cfi_rel_offset 29, 0\n\t.cfi_rel_offset 30, 8\n"                               \
		"\tstp x0, x1, [sp, #16]\n"                                                        \
		"\tstr x2, [sp, #32]\n"                                                            \
		"\tbl " answer "\n"                                                                \
		"\tmov x9, x0\n"                                                                   \
		"\tldp x0, x1, [sp, #16]\n"                                                        \
		"\tldr x2, [sp, #32]\n"                                                            \
		"\tldp x29, x30, [sp], #48\n"                                                      \
		"\t.cfi_adjust_cfa_offset -48\n"                                                   \
		"\t.cfi_restore 29\n\t.cfi_restore 30\n"                                           \
		"\tcbnz x9, 1f\n"                                                                  \
		"\tadrp x16, " real "\n"                                                           \
		"\tldr x16, [x16, :lo12:" real "]\n"                                               \
		"\tbr x16\n"                                                                       \
		"1:\tmov x0, x9\n"                                                                 \
		"\tret\n"                                                                          \
		"\t.cfi_endproc\n"                                                                 \
		".size " name ", .-" name "\n")
#else
#error "write ENTRY for this machine: it jumps to the C library with the caller's return address"
#endif

ENTRY("dlsym", "df_real_dlsym", "dl_answer");
ENTRY("dlvsym", "df_real_dlvsym", "dlv_answer");
