/*
 * The command line that `dfshim run` starts: whether it can be started, and its parts if it is
 * Python's. Private to `dfshim run`.
 */
#ifndef DF_TRACE_CLI_RUN_RUN_PROGRAM_H
#define DF_TRACE_CLI_RUN_RUN_PROGRAM_H

/* The parts of a Python command line. */
struct df_run_python {
	int nr_options; /* number of arguments before the program, the interpreter included */
	char kind;	/* f: a file, m: a module, c: text */
	const char *program;
};

/*
 * Whether the command line runs a Python program that is not its standard input, with an
 * interpreter that reads our sitecustomize.
 */
int df_run_is_python(char **app, struct df_run_python *py);
/* Returns the arguments of torchrun if the command line is one of torchrun, else NULL. */
char **df_run_torchrun(char **app);
/*
 * Looks for the program, and for the file that a Python interpreter or the ranks of torchrun
 * would run. Returns 0 if both exist. Else returns the status with which each rank would end,
 * after one message.
 */
int df_run_missing(char **app);

#endif
