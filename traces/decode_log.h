/* Writing a decode trace (decode_trace.h). Passes are kept until their request is flushed. */
#ifndef UNMASK_TRACES_DECODE_LOG_H
#define UNMASK_TRACES_DECODE_LOG_H

#include "sim/base/decode.h"

struct decode_log;

/* A new file at `path`, in place of whatever stands there; an empty file is taken as it is. */
int decode_log_open(const char *path, uint32_t block_tokens, struct decode_log **out,
                    struct err *err);

/* `n` > 0 equal passes of a request, after those it already has. Ids are small: they count requests
 * from 0. `positions`: of one pass; NULL: not known. */
void decode_log_add(struct decode_log *log, uint64_t request, const struct decode_pass *pass,
                    uint32_t n, const struct decode_positions *positions);

/* What is known of a request that is done; more of its passes may follow. */
struct decode_done {
    uint32_t prompt_tokens, output_tokens; /* 0: not known */
    uint32_t answer_tokens;                /* 0: all of its output */
};
void decode_log_finish(struct decode_log *log, uint64_t request, const struct decode_done *done);

/* Writes the requests that are done, of which no pass may follow, and forgets them. */
int decode_log_flush(struct decode_log *log, struct err *err);

/* After this and each decode_log_save, which flushes, the file is a decode trace that stays one
 * whatever becomes of the program: `about` describes it until decode_log_close. The disk is not
 * waited for: a power cut may take it. */
int decode_log_keep(struct decode_log *log, const char *about, struct err *err);
int decode_log_save(struct decode_log *log, struct err *err);

/* The last of it. `about`: lines "key: value". Whatever happens the log is closed; where it fails
 * the file is of no use. */
int decode_log_close(struct decode_log *log, const char *about, struct err *err);

/* Closes it without a word; the file is of no use. NULL is fine. */
void decode_log_drop(struct decode_log *log);

/* 0 when nothing stands at `path`, or an empty file, or a decode trace; else ERR_USAGE. */
int decode_log_may_replace(const char *path, struct err *err);

#endif
