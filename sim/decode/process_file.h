/* Decode processes by name: the sections of experiments/decode.ini, or of another such file. */
#ifndef UNMASK_SIM_DECODE_PROCESS_FILE_H
#define UNMASK_SIM_DECODE_PROCESS_FILE_H

#include "sim/decode/process.h"

/* The process of that name in experiments/decode.ini; "FILE.ini:NAME" of another file; or
 * "kumaraswamy" with shapes 2 and 1. An unknown name or a bad file is a sentence. */
int decode_process_find(const char *name, struct decode_process *out, struct err *err);

/* The name of the process that decode.ini has for a model on a workload: the MODEL/DATA that has
 * the workload in its key `workloads`, else MODEL/WORKLOAD. "" where it has neither. */
int decode_process_of(const char *model, const char *workload, char *name, size_t size,
                      struct err *err);

struct config;
/* What is known of its error: of the first of `names` (a cache, a decoder or "smooth"; up to NULL)
 * that its file has an error of, else `error`. */
const char *decode_process_error(const struct decode_process *process, const char *const *names);

struct config_entry;

/* The entry that makes its section a process, its location, behind `last` (NULL: the first); NULL
 * after the last. Sections without one are shapes. */
const struct config_entry *decode_process_next(const struct config *config,
                                               const struct config_entry *last);

/* The same as decode_process_find from another file. */
int decode_process_read(const char *path, const char *name, struct decode_process *out,
                        struct err *err);

#endif
