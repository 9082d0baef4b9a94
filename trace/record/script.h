/*
 * The lines of a Python program that led to a call: the frames of the calling thread's interpreter, read where they lie.
 * For site.c.
 */
#ifndef DF_TRACE_RECORD_SCRIPT_H
#define DF_TRACE_RECORD_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

/* At most as many frames tell two calls apart. */
#define DF_SCRIPT_FRAMES 4

struct df_script_frame {
	const void *code; /* the interpreter's object for the function; NULL: not known */
	uint64_t id;	  /* differs if another function has taken that object's place */
	uint32_t at;	  /* the instruction, in bytes from the function's first */
	int backward;	  /* of the thread that waits meanwhile in PyTorch's backward() */
};

/* Looks for an interpreter in this process, unless one has been found. Takes the loader's lock. */
void df_script_look(void);

/*
 * The frames of the calling thread that its interpreter executes, innermost first, without those of PyTorch and of Python's
 * own library: the three innermost and, if they are all an installed package's, the innermost of the program itself.
 * How many; 0: no interpreter, one of an unknown version, or a thread that executes no script. A thread in which PyTorch
 * computes gradients has those of the main thread, if that called backward(). It may take the loader's lock.
 */
unsigned df_script_frames(struct df_script_frame frames[DF_SCRIPT_FRAMES]);

/* "path:line function" of a frame that df_script_frames() has just found. 0: it is not to be read. */
int df_script_text(const struct df_script_frame *frame, char *buf, size_t size);

/* The address lies in the interpreter. */
int df_script_has(const void *pc);

#endif
