/*
 * Readable names of C++ functions, for the frames of call stacks (stacks.h). The text is from files
 * that may be damaged or hostile, and a hundred bytes can make the library's demangler fill the
 * memory. So this reads only plain qualified names, which are enough for a reader.
 */
#ifndef DF_TRACE_READ_DEMANGLE_H
#define DF_TRACE_READ_DEMANGLE_H

#include <stddef.h>

/*
 * Changes "a.so!_ZN1b1cEi+0x12" to "a.so!b::c+0x12": the symbol after '!' without its parameters,
 * the rest unchanged. "c<>" is a template, "{}" a part without a name. Leaves other text, or text
 * without room, unchanged. Any thread.
 */
void df_demangle_frame(char *frame, size_t size);

#endif
