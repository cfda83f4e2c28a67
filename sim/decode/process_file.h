/* Decode processes by name: the rows of experiments/study/locations.csv, the sections of
 * experiments/study/decode.ini, or those of another such file. */
#ifndef UNMASK_SIM_DECODE_PROCESS_FILE_H
#define UNMASK_SIM_DECODE_PROCESS_FILE_H

#include "sim/decode/process.h"

/* The process of that name in experiments/study/locations.csv or decode.ini; "FILE.ini:NAME" of
 * another file; or "kumaraswamy" with shapes 2 and 1. An unknown name or a bad file is a sentence.
 */
int decode_process_find(const char *name, struct decode_process *out, struct err *err);

/* The name of the process that a model draws from on a workload: the first row MODEL/TASK of
 * locations.csv that lists the workload, else MODEL/WORKLOAD of decode.ini. "": there is neither.
 */
int decode_process_of(const char *model, const char *workload, char *name, size_t size,
                      struct err *err);

struct config;
/* What is known of its error: of the first of `names` (a cache, a decoder or "smooth"; up to NULL)
 * that its file has an error of, else `error`. */
const char *decode_process_error(const struct decode_process *process, const char *const *names);

struct config_entry;

/* The entry that makes its section a process, its location, after `last` (NULL: the first); NULL
 * after the last. Sections without one are shapes. */
const struct config_entry *decode_process_next(const struct config *config,
                                               const struct config_entry *last);

/* The constants of a shape, its location 0. */
int decode_shape_read(const char *path, const char *shape, struct decode_process *out,
                      struct err *err);

/* The same as decode_process_find from another file. */
int decode_process_read(const char *path, const char *name, struct decode_process *out,
                        struct err *err);

#endif
