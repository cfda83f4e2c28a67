/* Memory that is never refused: the one answer to running out of it.
 *
 * What these functions return is never NULL. Where the system has no more, mem_out ends the
 * program from whichever thread asked: one sentence on standard error, unfinished output files
 * removed (sim/base/output.h), status 1. Nothing is passed up, so that no caller can mistake a
 * refusal for a fact about the user's files. What was committed stays: SQLite undoes an open
 * transaction when its file is opened next, a calibration keeps the samples that it has written,
 * and children end with their parent.
 *
 * Nothing else of ours allocates, but for three that answer for themselves: a device's memory
 * (kernels/device), whose size is the question that is asked; the reference kernels, which belong
 * to no program and return false; and plug-ins. The libraries are taught the same in
 * experiments/run/cli/libraries.h. */
#ifndef UNMASK_SIM_BASE_MEM_H
#define UNMASK_SIM_BASE_MEM_H

#include <stddef.h>
#include <stdio.h>

/* `n` elements of `size` bytes, all zero, for free(); also for no elements. */
void *mem_zeroed(size_t n, size_t size);

/* The same for tables whose used part is not known in advance: the system provides pages as they
 * are touched and ends the program if it has none. Free with mem_released. */
void *mem_reserved(size_t n, size_t size);
void mem_released(void *reserved);

/* As mem_zeroed, without the zeros, for what is written before it is read. */
void *mem_unwritten(size_t n, size_t size);

/* `items` with room for `n` elements of `size` bytes; what is new is unwritten. */
void *mem_resized(void *items, size_t n, size_t size);

/* `items` with room for one more than the `n` elements of `size` bytes that it holds; `*room` is
 * how many it has room for, and doubles. */
void *mem_grown(void *items, size_t n, size_t *room, size_t size);

/* A copy of `n` bytes with a NUL appended, and one of a text. */
void *mem_copied(const void *bytes, size_t n);
char *mem_text(const char *text);

/* A stream whose text is at `*text`, with its NUL, once mem_stream_close has returned. */
FILE *mem_stream(char **text, size_t *size);
void mem_stream_close(FILE *stream);

/* What a library allocated; NULL: it had no memory. */
void *mem_given(void *memory);

/* Ends the program: `bytes` more could not be allocated; 0: the number is not known. */
_Noreturn void mem_out(size_t bytes);

#endif
