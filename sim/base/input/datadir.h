/* Where the files lie that the program ships: systems, profiles, workloads, the papers' numbers. */
#ifndef UNMASK_SIM_BASE_INPUT_DATADIR_H
#define UNMASK_SIM_BASE_INPUT_DATADIR_H

#include <stddef.h>

#include "sim/base/err.h"

/* The directory that UNMASK_DATA names in the environment; else the nearest one above the program
 * that holds the files, or whose share/unmask does; else the source tree the program was built
 * from; else the present one. So a program never takes the files of another checkout because it was
 * started there. */
const char *data_dir(void);

/* data_dir() and `relative` joined. Returns `path`. */
const char *data_path(char *path, size_t size, const char *relative);

/* The paths of the files that end so in a folder of the data folder, `depth` folders down, in their
 * order; ends with NULL, and the caller runs names_free. A folder that is not there has none; where
 * one cannot be read, `err` says so. */
char **data_files(const char *folder, unsigned depth, const char *ending, struct err *err);

/* The names of the INI files in a folder of the data folder, without their ending; the same. */
char **data_names(const char *folder, struct err *err);
void names_free(char **names);

#endif
