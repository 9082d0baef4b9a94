/*
 * Finds the lines of a Python program that led to a call. They are read from the interpreter's
 * frames of the calling thread. For site.c.
 */
#ifndef DF_TRACE_RECORD_SCRIPT_H
#define DF_TRACE_RECORD_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

/* Maximum number of frames that distinguish two calls. */
#define DF_SCRIPT_FRAMES 4

struct df_script_frame {
	const void *code; /* the interpreter's object for the function; NULL if unknown */
	uint64_t id;	  /* changes if another function takes the place of the object `code` */
	uint32_t at;	  /* offset of the instruction in the function's code, in bytes */
	/* whether the frame belongs to the thread that waits in PyTorch's backward() */
	int backward;
};

/* Looks for an interpreter in this process, unless one has been found. Takes the loader's lock. */
void df_script_look(void);

/*
 * Finds the frames that the interpreter executes in the calling thread, innermost first, without
 * those of PyTorch and of Python's own library: the three innermost ones, and, if they all belong
 * to installed packages, the innermost one of the program itself. Returns their number. Returns 0
 * without an interpreter, with an unknown version of it, or in a thread that executes no script.
 * For a thread in which PyTorch computes gradients, finds the frames of the main thread, if the
 * main thread called backward(). May take the loader's lock.
 */
unsigned df_script_frames(struct df_script_frame frames[DF_SCRIPT_FRAMES]);

/*
 * Writes "path:line function" of a frame that df_script_frames() has just found. Returns 0 if it
 * cannot be read.
 */
int df_script_text(const struct df_script_frame *frame, char *buf, size_t size);

/* Whether the address is in the interpreter's code. */
int df_script_has(const void *pc);

#endif
