/*
 * Readable names of C++ functions, for kernels and the frames of call stacks (trace/read/stacks.h).
 * The text may be from files that are damaged or hostile, and a hundred bytes can make the
 * library's demangler fill the memory. So this reads only plain qualified names, which are enough
 * for a reader.
 */
#ifndef DF_BASE_DEMANGLE_H
#define DF_BASE_DEMANGLE_H

#include <stddef.h>

/*
 * Changes "_ZN1b1cEi" to "b::c". The name ends at the first '+'; the text from there on stays. Also
 * changes the name of a template whose end is cut off. size: of the buffer.
 */
void df_demangle_name(char *name, size_t size);
/*
 * Changes "a.so!_ZN1b1cEi+0x12" to "a.so!b::c+0x12": the symbol after '!' without its parameters,
 * the rest unchanged. "c<>" is a template, "{}" a part without a name. Leaves other text, or text
 * without room, unchanged. Any thread.
 */
void df_demangle_frame(char *frame, size_t size);

#endif
