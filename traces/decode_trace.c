#include "traces/decode_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/field.h"
#include "sim/base/inputs.h"
#include "sim/base/num.h"
#include "sim/base/zeroed.h"

static const char header[] = "request,committed,processed,kept,reach,passes";
static const char header_answers[] = "request,committed,processed,kept,reach,passes,answer";
static const char block_key[] = "# block_tokens: ", source_key[] = "# source: ";

enum { COLUMNS = 6, MOST_COLUMNS = 7, MAX_BLOCK_TOKENS = 1 << 20 };

/* Equal passes, the first of them the request's pass `first`. */
struct run {
    struct decode_pass pass;
    uint32_t first, n;
};

/* A request's runs are [begin, end). */
struct entry {
    uint64_t request, tokens;
    uint32_t answer_tokens; /* 0: not said */
    size_t begin, end;
};

struct decode_trace {
    char *path, *provenance;
    uint32_t block_tokens;
    uint64_t digest;
    bool has_answers;
    struct entry *entries; /* in increasing order of `request` */
    struct run *runs;
    size_t n_entries, n_runs, room_entries, room_runs;
};

/* Room for one element more. */
static void *grow(void *list, size_t n, size_t *room, size_t size) {
    if (n == *room) {
        *room = 2 * *room + 64;
        list = realloc(list, *room * size);
        ASSERT(list != NULL);
    }
    return list;
}

static bool is_equal(const struct decode_pass *a, const struct decode_pass *b) {
    return a->committed == b->committed && a->processed == b->processed && a->kept == b->kept &&
           a->reach == b->reach;
}

/* ---- lines ---- */

struct input {
    struct line line;
    FILE *file;
    char *text; /* getline's */
    size_t room;
};

/* `*more` is false at the end of the file. Without its newline a last row may have lost digits. */
static int next_line(struct input *input, bool *more, struct err *err) {
    struct line *line = &input->line;
    errno = 0;
    ssize_t length = getline(&input->text, &input->room, input->file);
    *more = length >= 0;
    if (length < 0) {
        return ferror(input->file) || !feof(input->file)
                   ? err_world(err, "cannot read %s: %s", line->path, strerror(errno))
                   : 0;
    }
    line->number++;
    line->text = input->text;
    line->length = (size_t)length;
    if (line->text[line->length - 1] != '\n') {
        return err_world(err, "%s:%" PRIu64 ": found an unfinished last line, expected a newline",
                         line->path, line->number);
    }
    line->length--;
    line->length -= line->length > 0 && line->text[line->length - 1] == '\r';
    input->text[line->length] = '\0';
    if (strlen(line->text) != line->length) {
        return err_world(err, "%s:%" PRIu64 ": found a NUL byte, expected text", line->path,
                         line->number);
    }
    if (line->number == 1 && strncmp(line->text, "\xef\xbb\xbf", 3) == 0) {
        line->text += 3;
        line->length -= 3;
    }
    return 0;
}

static int unexpected(const struct line *line, const char *expected, struct err *err) {
    char quoted[64];
    return err_world(err, "%s:%" PRIu64 ": found '%s', expected %s", line->path, line->number,
                     field_quote(line->text, line->length, quoted, sizeof quoted), expected);
}

static bool begins(const struct line *line, const char *with) {
    return strncmp(line->text, with, strlen(with)) == 0;
}

static int read_comment(struct decode_trace *trace, const struct line *line, struct err *err) {
    if (begins(line, source_key) && trace->provenance[0] == '\0') {
        free(trace->provenance);
        trace->provenance = strdup(line->text + strlen(source_key));
        ASSERT(trace->provenance != NULL);
    }
    if (!begins(line, block_key)) {
        return 0;
    }
    uint64_t tokens;
    if (trace->block_tokens > 0 ||
        !num_u64(line->text + strlen(block_key), MAX_BLOCK_TOKENS, &tokens) || tokens == 0) {
        return unexpected(line, "block_tokens once, from 1 to 1048576", err);
    }
    trace->block_tokens = (uint32_t)tokens;
    return 0;
}

static int read_head(struct decode_trace *trace, struct input *input, struct err *err) {
    bool more;
    int status = next_line(input, &more, err);
    if (status == 0 && !more) {
        status = err_world(err, "%s:1: found an empty file, expected a decode trace", trace->path);
    }
    if (status == 0 && strcmp(input->line.text, DECODE_TRACE_HEAD) != 0) {
        status = unexpected(&input->line, "'" DECODE_TRACE_HEAD "'", err);
    }
    while (status == 0 && (status = next_line(input, &more, err)) == 0) {
        if (!more) {
            return err_world(err, "%s:%" PRIu64 ": found the end of the file, expected '%s'",
                             trace->path, input->line.number + 1, header);
        }
        if (input->line.text[0] != '#') {
            break;
        }
        status = read_comment(trace, &input->line, err);
    }
    trace->has_answers = status == 0 && strcmp(input->line.text, header_answers) == 0;
    if (status == 0 && !trace->has_answers && strcmp(input->line.text, header) != 0) {
        char expected[96];
        snprintf(expected, sizeof expected, "'%s'", header);
        status = unexpected(&input->line, expected, err);
    }
    if (status == 0 && trace->block_tokens == 0) {
        status = unexpected(&input->line, "a line '# block_tokens: N' before the header", err);
    }
    return status;
}

/* ---- rows ---- */

/* The fields of a line, each ended with NUL in place. */
static int split(const struct line *line, char *text, int columns, char *fields[MOST_COLUMNS],
                 struct err *err) {
    int n = 0;
    for (char *rest = text; rest != NULL; n++) {
        char *field = strsep(&rest, ",");
        if (n < columns) {
            fields[n] = field;
        }
    }
    if (n != columns) {
        return err_world(err, "%s:%" PRIu64 ": found %d field%s, expected %d as in the header",
                         line->path, line->number, n, n == 1 ? "" : "s", columns);
    }
    return 0;
}

/* One number of a row and what it may be; `of` says of what `most` or `least` is the number. */
static int read_count(const struct line *line, const char *field, const char *column,
                      uint32_t least, uint32_t most, const char *of, uint32_t *out,
                      struct err *err) {
    uint64_t value;
    if (num_u64(field, most, &value) && value >= least) {
        *out = (uint32_t)value;
        return 0;
    }
    char expected[96];
    snprintf(expected, sizeof expected, "%" PRIu32 " to %" PRIu32 "%s", least, most, of);
    return field_bad(line, field, strlen(field), column, expected, err);
}

static int read_row(const struct decode_trace *trace, const struct line *line,
                    char *const fields[MOST_COLUMNS], uint64_t *request, struct run *run,
                    uint32_t *answer_tokens, struct err *err) {
    struct decode_pass *pass = &run->pass;
    uint32_t block = trace->block_tokens;
    if (!num_u64(fields[0], UINT64_MAX, request)) {
        return field_bad(line, fields[0], strlen(fields[0]), "request", "a whole number below 2^64",
                         err);
    }
    int status = read_count(line, fields[2], "processed", 1, block, ", the positions of a block",
                            &pass->processed, err);
    if (status == 0) {
        status = read_count(line, fields[3], "kept", 1, pass->processed,
                            ", the positions processed", &pass->kept, err);
    }
    if (status == 0) {
        status = read_count(line, fields[4], "reach", pass->kept, block,
                            ", from the positions kept to those of a block", &pass->reach, err);
    }
    if (status == 0) {
        status = read_count(line, fields[1], "committed", 0, pass->kept, ", the positions kept",
                            &pass->committed, err);
    }
    if (status == 0) {
        status = read_count(line, fields[5], "passes", 1, UINT32_MAX, "", &run->n, err);
    }
    *answer_tokens = 0;
    return status != 0 || !trace->has_answers
               ? status
               : read_count(line, fields[6], "answer", 1, UINT32_MAX, "", answer_tokens, err);
}

static void take_digest(struct decode_trace *trace, uint64_t value) {
    for (int i = 0; i < 64; i += 8) {
        trace->digest = (trace->digest ^ (value >> i & 0xff)) * UINT64_C(0x100000001b3);
    }
}

/* A request's answer is the same in all its rows, which commit as much when they end. */
static int check_answer(const struct decode_trace *trace, const struct line *line,
                        const struct entry *entry, struct err *err) {
    if (!trace->has_answers || entry->answer_tokens <= entry->tokens) {
        return 0;
    }
    return err_world(err,
                     "%s:%" PRIu64 ": found the end of request %" PRIu64 " after %" PRIu64
                     " committed tokens, expected the %" PRIu32 " of its answer",
                     line->path, line->number, entry->request, entry->tokens, entry->answer_tokens);
}

static int keep_row(struct decode_trace *trace, const struct line *line, uint64_t request,
                    struct run *run, uint32_t answer_tokens, struct err *err) {
    struct entry *entry = trace->n_entries > 0 ? &trace->entries[trace->n_entries - 1] : NULL;
    if (entry != NULL && request < entry->request) {
        return err_world(err,
                         "%s:%" PRIu64 ": found request %" PRIu64 " behind request %" PRIu64
                         ", expected requests in increasing order",
                         line->path, line->number, request, entry->request);
    }
    bool is_new = entry == NULL || request != entry->request;
    if (!is_new && entry->answer_tokens != answer_tokens) {
        return err_world(err,
                         "%s:%" PRIu64 ": found answer %" PRIu32 ", expected %" PRIu32
                         " as in the request's row before",
                         line->path, line->number, answer_tokens, entry->answer_tokens);
    }
    if (is_new && entry != NULL && check_answer(trace, line, entry, err) != 0) {
        return (int)err->kind;
    }
    if (is_new) {
        trace->entries =
            grow(trace->entries, trace->n_entries, &trace->room_entries, sizeof *trace->entries);
        entry = &trace->entries[trace->n_entries++];
        *entry = (struct entry){.request = request,
                                .answer_tokens = answer_tokens,
                                .begin = trace->n_runs,
                                .end = trace->n_runs};
    }
    const struct run *last = entry->end > entry->begin ? &trace->runs[entry->end - 1] : NULL;
    run->first = last != NULL ? last->first + last->n : 0;
    if (run->n > UINT32_MAX - run->first) {
        return err_world(err,
                         "%s:%" PRIu64 ": found more than 4294967295 passes of request %" PRIu64
                         ", expected no more",
                         line->path, line->number, request);
    }
    trace->runs = grow(trace->runs, trace->n_runs, &trace->room_runs, sizeof *trace->runs);
    trace->runs[trace->n_runs++] = *run;
    entry->end = trace->n_runs;
    entry->tokens += (uint64_t)run->n * run->pass.committed;
    const uint64_t values[] = {
        request, run->pass.committed, run->pass.processed, run->pass.kept, run->pass.reach,
        run->n,  trace->block_tokens};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        take_digest(trace, values[i]);
    }
    if (trace->has_answers) {
        take_digest(trace, answer_tokens);
    }
    return 0;
}

static int read_rows(struct decode_trace *trace, struct input *input, struct err *err) {
    for (;;) {
        bool more;
        char *fields[MOST_COLUMNS];
        uint64_t request = 0;
        uint32_t answer_tokens = 0;
        struct run run = {0};
        int status = next_line(input, &more, err);
        if (status == 0 && !more && trace->n_entries > 0) {
            return check_answer(trace, &input->line, &trace->entries[trace->n_entries - 1], err);
        }
        if (status != 0 || !more) {
            return status;
        }
        status = split(&input->line, input->text, trace->has_answers ? MOST_COLUMNS : COLUMNS,
                       fields, err);
        if (status == 0) {
            status = read_row(trace, &input->line, fields, &request, &run, &answer_tokens, err);
        }
        if (status == 0) {
            status = keep_row(trace, &input->line, request, &run, answer_tokens, err);
        }
        if (status != 0) {
            return status;
        }
    }
}

int decode_trace_read(const char *path, struct decode_trace **out, struct err *err) {
    struct input input = {.file = fopen(path, "rb")};
    if (input.file == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    inputs_note("decode trace", path);
    struct decode_trace *trace = zeroed(1, sizeof *trace);
    *trace = (struct decode_trace){
        .path = strdup(path), .provenance = strdup(""), .digest = UINT64_C(0xcbf29ce484222325)};
    ASSERT(trace->path != NULL && trace->provenance != NULL);
    input.line.path = trace->path;
    int status = read_head(trace, &input, err);
    if (status == 0) {
        status = read_rows(trace, &input, err);
    }
    free(input.text);
    fclose(input.file);
    if (status != 0) {
        decode_trace_close(trace);
        return status;
    }
    *out = trace;
    return 0;
}

void decode_trace_close(struct decode_trace *trace) {
    if (trace != NULL) {
        free(trace->path);
        free(trace->provenance);
        free(trace->entries);
        free(trace->runs);
        free(trace);
    }
}

/* ---- asking ---- */

static int find(const struct decode_trace *trace, uint64_t request, const struct entry **out,
                struct err *err) {
    size_t begin = 0, end = trace->n_entries;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (trace->entries[middle].request < request) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    if (begin == trace->n_entries || trace->entries[begin].request != request) {
        return err_world(err, "%s has no request %" PRIu64, trace->path, request);
    }
    *out = &trace->entries[begin];
    return 0;
}

static int tokens_of(const void *state, uint64_t request, uint64_t *out, struct err *err) {
    const struct entry *entry;
    int status = find(state, request, &entry, err);
    *out = status == 0 ? entry->tokens : 0;
    return status;
}

static int answer_of(const void *state, uint64_t request, uint64_t *out, struct err *err) {
    const struct entry *entry;
    int status = find(state, request, &entry, err);
    *out = status == 0 ? entry->answer_tokens : 0;
    return status;
}

static int pass_of(const void *state, uint64_t request, uint32_t index, struct decode_pass *out,
                   struct err *err) {
    const struct decode_trace *trace = state;
    const struct entry *entry;
    int status = find(trace, request, &entry, err);
    if (status != 0) {
        return status;
    }
    const struct run *last = &trace->runs[entry->end - 1];
    if (index - last->first >= last->n && index >= last->first) {
        return err_world(err,
                         "%s ends after %" PRIu32 " passes of request %" PRIu64
                         ", which is not done by then",
                         trace->path, last->first + last->n, request);
    }
    size_t begin = entry->begin, end = entry->end;
    while (end - begin > 1) {
        size_t middle = begin + (end - begin) / 2;
        if (trace->runs[middle].first <= index) {
            begin = middle;
        } else {
            end = middle;
        }
    }
    *out = trace->runs[begin].pass;
    return 0;
}

struct decode_source decode_trace_source(const struct decode_trace *trace) {
    return (struct decode_source){.state = trace,
                                  .name = trace->path,
                                  .tokens = tokens_of,
                                  .answer = answer_of,
                                  .pass = pass_of};
}

uint32_t decode_trace_block_tokens(const struct decode_trace *trace) {
    return trace->block_tokens;
}

bool decode_trace_has_answers(const struct decode_trace *trace) {
    return trace->has_answers;
}

size_t decode_trace_requests(const struct decode_trace *trace) {
    return trace->n_entries;
}

const char *decode_trace_provenance(const struct decode_trace *trace) {
    return trace->provenance;
}

uint64_t decode_trace_digest(const struct decode_trace *trace) {
    return trace->digest;
}

/* ---- writing ---- */

struct written {
    struct run *runs;
    size_t n, room;
    uint64_t tokens;
    uint32_t answer_tokens; /* 0: all of the output */
    bool is_finished;
};

struct decode_log {
    uint32_t block_tokens;
    bool has_answers;
    struct written *requests; /* by id */
    size_t n;
};

struct decode_log *decode_log_open(uint32_t block_tokens) {
    struct decode_log *log = zeroed(1, sizeof *log);
    log->block_tokens = block_tokens;
    return log;
}

void decode_log_close(struct decode_log *log) {
    if (log != NULL) {
        for (size_t i = 0; i < log->n; i++) {
            free(log->requests[i].runs);
        }
        free(log->requests);
        free(log);
    }
}

static struct written *written_of(struct decode_log *log, uint64_t request) {
    if (request >= log->n) {
        size_t n = 2 * (size_t)request + 64;
        log->requests = realloc(log->requests, n * sizeof *log->requests);
        ASSERT(log->requests != NULL);
        memset(log->requests + log->n, 0, (n - log->n) * sizeof *log->requests);
        log->n = n;
    }
    return &log->requests[request];
}

void decode_log_add(struct decode_log *log, uint64_t request, const struct decode_pass *pass,
                    uint32_t n) {
    struct written *written = written_of(log, request);
    struct run *last = written->n > 0 ? &written->runs[written->n - 1] : NULL;
    written->tokens += (uint64_t)n * pass->committed;
    if (last != NULL && is_equal(&last->pass, pass) && n <= UINT32_MAX - last->n) {
        last->n += n;
        return;
    }
    written->runs = grow(written->runs, written->n, &written->room, sizeof *written->runs);
    written->runs[written->n++] = (struct run){.pass = *pass, .n = n};
}

void decode_log_finish(struct decode_log *log, uint64_t request, uint32_t answer_tokens) {
    struct written *written = written_of(log, request);
    written->is_finished = true;
    written->answer_tokens = answer_tokens;
    log->has_answers = log->has_answers || answer_tokens > 0;
}

/* The answer of a request whose text fills its output is all that it committed. */
static void write_row(const struct decode_log *log, size_t request, const struct run *run,
                      FILE *out) {
    const struct written *written = &log->requests[request];
    const struct decode_pass *pass = &run->pass;
    fprintf(out, "%zu,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32, request,
            pass->committed, pass->processed, pass->kept, pass->reach, run->n);
    if (log->has_answers) {
        fprintf(out, ",%" PRIu64,
                written->answer_tokens > 0 ? written->answer_tokens : written->tokens);
    }
    fputc('\n', out);
}

bool decode_log_write(const struct decode_log *log, const char *comments, FILE *out) {
    fprintf(out, "%s\n%s%" PRIu32 "\n", DECODE_TRACE_HEAD, block_key, log->block_tokens);
    for (const char *line = comments; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "# %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    fprintf(out, "%s\n", log->has_answers ? header_answers : header);
    for (size_t request = 0; request < log->n; request++) {
        const struct written *written = &log->requests[request];
        for (size_t i = 0; written->is_finished && i < written->n; i++) {
            write_row(log, request, &written->runs[i], out);
        }
    }
    return fflush(out) == 0 && !ferror(out);
}
