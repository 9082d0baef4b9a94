/*
 * Names of C++ functions as people write them, for the frames of call stacks (stacks.h). The text comes from files that
 * may be damaged or hostile, and the library's demangler can be made to fill the memory by a hundred bytes; so only
 * plain qualified names are read, which is what tells a reader where he is.
 */
#ifndef DF_TRACE_READ_DEMANGLE_H
#define DF_TRACE_READ_DEMANGLE_H

#include <stddef.h>

/*
 * "a.so!_ZN1b1cEi+0x12" becomes "a.so!b::c+0x12": the symbol after '!' without its parameters, what follows as it is;
 * "c<>" for a template, "{}" for a part without a name. As it was where it is no such name, or there is no room. Any thread.
 */
void df_demangle_frame(char *frame, size_t size);

#endif
