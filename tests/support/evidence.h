/* What test_evidence.c and test_names.c share. */
#ifndef UNMASK_TESTS_SUPPORT_EVIDENCE_H
#define UNMASK_TESTS_SUPPORT_EVIDENCE_H

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "traces/decode_trace.h"
#include "traces/reader.h"

static const struct trace_reading as_it_is = {0};

/* "us prompt output prefix tenant" of each row, "; " between them; the sentence where it is
 * refused, with the kind of error before it. The caller frees. */
static char *read_file(const char *path, const struct trace_reading *how, struct trace **kept) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    struct trace *trace = NULL;
    struct err err = {0};
    struct arrival row;
    enum source_reply reply = SOURCE_BAD;
    if (trace_open_as(path, how, &trace, &err) == 0) {
        struct arrival_source source = trace_source(trace);
        while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
            fprintf(out, "%s%" PRId64 " %u %u %u %u", row.id > 0 ? "; " : "", row.arrival_ns / 1000,
                    row.prompt_tokens, row.output_tokens, row.prefix_tokens, row.tenant);
        }
    }
    mem_stream_close(out);
    if (reply == SOURCE_BAD) {
        free(text);
        text = mem_unwritten(1, sizeof err.text + 16);
        snprintf(text, sizeof err.text + 16, "%d: %s", (int)err.kind, err.text);
    }
    if (kept != NULL) {
        *kept = trace;
    } else {
        trace_close(trace);
    }
    return text;
}

static inline char *read_text(const char *text, const struct trace_reading *how) {
    return read_file(scratch_write("trace", text), how, NULL);
}

static inline void check(const char *text, const struct trace_reading *how, const char *expected) {
    char *found = read_text(text, how);
    ck_assert_str_eq(found, expected);
    free(found);
}

/* Refused with this status and a sentence that says this. */
static inline void check_refused(const char *text, const struct trace_reading *how,
                                 enum err_kind kind, const char *sentence) {
    char *found = read_text(text, how);
    char *colon = NULL;
    ck_assert_int_eq(strtol(found, &colon, 10), (long)kind);
    ck_assert_msg(*colon == ':', "%s", found);
    ASSERT_SAYS(colon, sentence);
    free(found);
}

static inline const char *notes_of(const char *text, const struct trace_reading *how) {
    static char notes[1024];
    struct trace *trace;
    free(read_file(scratch_write("trace", text), how, &trace));
    ck_assert_ptr_nonnull(trace);
    snprintf(notes, sizeof notes, "%s", trace_notes(trace));
    trace_close(trace);
    return notes;
}

/* The session of each row by the place of its first row; -1: none. */
static inline void check_sessions(const char *text, const struct trace_reading *how, size_t n,
                                  const int expected[]) {
    struct trace *trace;
    struct err err = {0};
    struct arrival row;
    uint64_t sessions[16];
    ck_assert_msg(trace_open_as(scratch_write("trace", text), how, &trace, &err) == 0, "%s",
                  err.text);
    struct arrival_source source = trace_source(trace);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        sessions[i] = row.session;
        int first = -1;
        for (size_t k = 0; k <= i && row.session != 0 && first < 0; k++) {
            first = sessions[k] == row.session ? (int)k : -1;
        }
        ck_assert_int_eq(first, expected[i]);
    }
    trace_close(trace);
}

/* `n` rows of drawn lengths whose first `shared` blocks are one prompt's. */
static inline char *hashed_rows(uint32_t block, bool whole_blocks, uint32_t shared, uint32_t n) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    for (uint32_t i = 0; i < n; i++) {
        /* Of some prompts the last block is full or nearly so, of some it has one token. */
        const uint32_t lasts[] = {block, 1, block > 1 ? block - 1 : 1, (i * 7919 + 13) % block + 1};
        uint32_t last = lasts[i % 4];
        uint32_t tokens = block * (shared + 2 + i % 7) + last;
        uint32_t ids = whole_blocks ? tokens / block : (tokens + block - 1) / block;
        fprintf(out, "{\"timestamp\":%u,\"input_length\":%u,\"output_length\":1,\"hash_ids\":[", i,
                tokens);
        for (uint32_t k = 0; k < ids; k++) {
            fprintf(out, "%s%u", k > 0 ? "," : "", k < shared ? k : 1000 * (i + 1) + k);
        }
        fprintf(out, "]}\n");
    }
    mem_stream_close(out);
    return text;
}

#define MOONCAKE(at, more) "{\"timestamp\":" at ",\"input_length\":9,\"output_length\":1" more "}\n"

#endif
