/* The version of dfshim: library, CLI, packages. */
#ifndef DF_BASE_VERSION_H
#define DF_BASE_VERSION_H

#define DF_VERSION "0.1.0"

#endif
