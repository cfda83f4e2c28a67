#include "traces/format/format.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"

int format_check_parts(const struct line *line, const struct trace_row *row, bool has_answer,
                       struct err *err) {
    if (has_answer && (row->answer_tokens == 0 || row->answer_tokens > row->output_tokens)) {
        return err_world(err,
                         "%s:%" PRIu64 ": found %" PRIu32
                         " answer_tokens, expected 1 to the output's %" PRIu32,
                         line->path, line->number, row->answer_tokens, row->output_tokens);
    }
    return row->prefix_tokens <= row->input_tokens
               ? 0
               : err_world(err,
                           "%s:%" PRIu64 ": found %" PRIu32 " prefix_tokens, expected at most the "
                           "prompt's %" PRIu32,
                           line->path, line->number, row->prefix_tokens, row->input_tokens);
}

uint64_t format_session(const char *text, size_t length) {
    char *name = mem_copied(text, length);
    uint64_t session = hash_text(name);
    free(name);
    return session != 0 ? session : 1;
}

int format_check_tokens(const struct format *format, const struct line *line, struct trace_row *row,
                        struct err *err) {
    row->failed = row->output_tokens == 0 && format->zero_output_is_failure;
    if (row->failed || (row->input_tokens > 0 && row->output_tokens > 0)) {
        return 0;
    }
    return field_bad(line, "0", 1,
                     format->columns[row->input_tokens == 0 ? COLUMN_INPUT : COLUMN_OUTPUT],
                     "at least 1 token", err);
}
