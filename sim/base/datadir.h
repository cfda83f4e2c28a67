/* Where the files lie that the program ships: systems, profiles, workloads, the papers' numbers. */
#ifndef UNMASK_SIM_BASE_DATADIR_H
#define UNMASK_SIM_BASE_DATADIR_H

#include <stddef.h>

/* The directory UNMASK_DATA names in the environment, else the present one when it holds the
 * files, else the source tree the program was built from. */
const char *data_dir(void);

/* data_dir() and `relative` joined. Returns `path`. */
const char *data_path(char *path, size_t size, const char *relative);

#endif
