#include "traces/server_log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/field.h"
#include "sim/base/mem.h"
#include "traces/format/format.h"

enum { HEAD_BYTES = 64 << 10 };

static const char bench_name[] = "serving-bench", log_name[] = "sglang-log",
                  vllm_name[] = "vllm-log";
static const char finish_text[] = "Finish: obj=", finish_json[] = "\"request.finished\"";

const char *server_log_is(FILE *file) {
    static const struct {
        const char *word, *name;
    } signs[] = {{"\"input_lens\"", bench_name}, {"server_args=ServerArgs(", log_name},
                 {finish_text, log_name},        {finish_json, log_name},
                 {"Receive: obj=", log_name},    {"\"request.received\"", log_name}};
    char *head = mem_unwritten(HEAD_BYTES + 1, 1);
    size_t n = fread(head, 1, HEAD_BYTES, file);
    const char *name = NULL;
    head[n] = '\0';
    for (size_t i = 0; i < sizeof signs / sizeof signs[0] && name == NULL; i++) {
        name = strstr(head, signs[i].word) != NULL ? signs[i].name : NULL;
    }
    name = name == NULL && vllm_log_is(head) ? vllm_name : name;
    free(head);
    clearerr(file);
    return fseek(file, 0, SEEK_SET) == 0 ? name : NULL;
}

struct server_row *server_rows_add(struct server_rows *rows) {
    rows->items = mem_grown(rows->items, rows->n, &rows->room, sizeof *rows->items);
    rows->items[rows->n] = (struct server_row){.place = rows->n};
    return &rows->items[rows->n++];
}

/* ---- what a benchmark wrote ---- */

static bool read_count(const json_t *list, size_t i, uint32_t *out) {
    const json_t *value = json_array_get(list, i);
    json_int_t whole = json_integer_value(value);
    *out = (uint32_t)whole;
    return json_is_integer(value) && whole >= 0 && whole <= UINT32_MAX;
}

/* The whole of a file that is one object. */
static json_t *read_object(FILE *file, json_error_t *trouble) {
    char *text, bytes[1 << 14];
    size_t size, n;
    FILE *whole = mem_stream(&text, &size);
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) {
        fwrite(bytes, 1, n, whole);
    }
    mem_stream_close(whole);
    json_t *object = json_lenient(text, size, JSON_DISABLE_EOF_CHECK, trouble);
    /* Nothing may follow it. */
    size_t end = object != NULL ? (size_t)trouble->position : size;
    if (object != NULL && strspn(text + end, " \r\n\t") != size - end) {
        trouble->position = -1;
    }
    free(text);
    return object;
}

/* The lists that have an element for each request and are not read. */
static void name_unread(const json_t *object, size_t n, struct survey_names *unread) {
    static const char *const read[] = {"input_lens", "output_lens", "start_times", NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t i = 0;
        while (read[i] != NULL && strcmp(read[i], key) != 0) {
            i++;
        }
        if (read[i] == NULL && json_array_size(value) == n) {
            survey_add_name(unread, key, strlen(key));
        }
    }
}

static int read_bench(FILE *file, const char *path, struct server_rows *rows,
                      struct survey_names *unread, struct err *err) {
    json_error_t trouble;
    json_t *object = read_object(file, &trouble);
    json_t *inputs = json_object_get(object, "input_lens");
    json_t *outputs = json_object_get(object, "output_lens");
    json_t *starts = json_object_get(object, "start_times");
    int status = 0;
    size_t n = json_array_size(inputs);
    if (object == NULL) {
        status = err_world(err, "%s:%d: found no whole JSON object (%s)", path, trouble.line,
                           trouble.text);
    } else if (n == 0 || json_array_size(outputs) != n ||
               (starts != NULL && json_array_size(starts) != n)) {
        status =
            err_world(err,
                      "%s: found %zu input_lens, %zu output_lens and %zu start_times, expected "
                      "lists of one length",
                      path, n, json_array_size(outputs), json_array_size(starts));
    }
    rows->has_times = starts != NULL;
    for (size_t i = 0; i < n && status == 0; i++) {
        struct server_row *row = server_rows_add(rows);
        double start_s = starts != NULL ? json_number_value(json_array_get(starts, i)) : 0;
        if (!read_count(inputs, i, &row->input_tokens) ||
            !read_count(outputs, i, &row->output_tokens) ||
            (starts != NULL && !json_is_number(json_array_get(starts, i))) || start_s < 0 ||
            start_s > (double)FIELD_MAX_NS / 1e9 ||
            (row->input_tokens == 0 && row->output_tokens > 0)) {
            status =
                err_world(err, "%s: element %zu of the lists is no number in its range", path, i);
        }
        row->start_ns = status == 0 ? llround(start_s * 1e9) : 0;
    }
    if (status == 0) {
        name_unread(object, n, unread);
    }
    json_decref(object);
    if (status == 0 && trouble.position < 0) {
        status = err_world(err,
                           "%s: found several results, expected those of one benchmark (one line "
                           "of the file)",
                           path);
    }
    return status;
}

/* ---- what a server logged ---- */

/* The number after the last 'key': or "key": of a line; NULL: there is none. */
static const char *find_value(const char *line, const char *key) {
    const char *found = NULL;
    size_t length = strlen(key);
    for (const char *at = line; (at = strstr(at, key)) != NULL; at += length) {
        bool is_quoted = at > line && (at[-1] == '\'' || at[-1] == '"') && at[length] == at[-1];
        if (is_quoted && at[length + 1] == ':') {
            found = at + length + 2 + strspn(at + length + 2, " ");
        }
    }
    return found;
}

static bool read_token_count(const char *line, const char *key, uint32_t *out) {
    const char *value = find_value(line, key);
    return value != NULL && field_u32(value, strspn(value, "0123456789"), out);
}

static bool read_seconds(const char *line, const char *key, int64_t *out) {
    const char *value = find_value(line, key);
    return value != NULL && field_time_ns(value, strspn(value, "0123456789.eE+-"), 1000000000, out);
}

/* "[2025-05-27 20:00:14 TP0] ..." or {"timestamp": "2025-05-27T20:00:14.123456", ...}. */
static bool read_line_time(const char *line, int64_t *out) {
    const char *from = strstr(line, "\"timestamp\": \"");
    from = from != NULL ? from + strlen("\"timestamp\": \"") : line[0] == '[' ? line + 1 : NULL;
    if (from == NULL) {
        return false;
    }
    size_t length = strspn(from, "0123456789-:.T ");
    while (length > 0 && strchr("T ", from[length - 1]) != NULL) {
        length--;
    }
    return field_date_ns(from, length, out);
}

static int read_finish(const char *line, const char *path, uint64_t number,
                       struct server_rows *rows, struct err *err) {
    struct server_row *row = server_rows_add(rows);
    int64_t latency_ns = 0;
    if (!read_token_count(line, "prompt_tokens", &row->input_tokens) ||
        !read_token_count(line, "completion_tokens", &row->output_tokens) ||
        (row->input_tokens == 0 && row->output_tokens > 0)) {
        return err_world(err,
                         "%s:%" PRIu64 ": found a finished request without prompt_tokens and "
                         "completion_tokens, expected both",
                         path, number);
    }
    if (read_seconds(line, "request_received_ts", &row->start_ns)) {
        return 0;
    }
    if (!read_line_time(line, &row->start_ns) || !read_seconds(line, "e2e_latency", &latency_ns)) {
        return err_world(err,
                         "%s:%" PRIu64 ": found a finished request without its time and "
                         "e2e_latency, or request_received_ts",
                         path, number);
    }
    row->start_ns = row->start_ns > latency_ns ? row->start_ns - latency_ns : 0;
    return 0;
}

static int read_log(FILE *file, const char *path, struct server_rows *rows, struct err *err) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int status = 0;
    rows->has_times = true;
    for (uint64_t number = 1; status == 0 && (length = getline(&line, &room, file)) >= 0;
         number++) {
        bool finishes = strstr(line, finish_text) != NULL || strstr(line, finish_json) != NULL;
        if (finishes && line[length - 1] != '\n') {
            status = err_world(err, "%s:%" PRIu64 ": found an unfinished last line", path, number);
        } else if (finishes) {
            status = read_finish(line, path, number, rows, err);
        }
    }
    free(line);
    if (status == 0 && !feof(file) && !ferror(file)) {
        mem_out(0); /* the one other reason for which getline ends */
    }
    return status == 0 && rows->n == 0
               ? err_world(err, "%s: found no finished request, expected a log with --log-requests",
                           path)
               : status;
}

/* ---- as a table ---- */

static int by_start(const void *a, const void *b) {
    const struct server_row *x = a, *y = b;
    return x->start_ns != y->start_ns ? (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns)
                                      : (x->place > y->place) - (x->place < y->place);
}

int server_log_rows(FILE *file, const char *path, const char *name, char **out, char **notes,
                    struct survey_names *unread, struct err *err) {
    struct server_rows rows = {0};
    size_t notes_size;
    FILE *said = mem_stream(notes, &notes_size);
    int status = name == bench_name  ? read_bench(file, path, &rows, unread, err)
                 : name == vllm_name ? vllm_log_read(file, path, &rows, said, err)
                                     : read_log(file, path, &rows, err);
    mem_stream_close(said);
    if (ferror(file)) {
        *err = (struct err){0};
        status = err_world(err, "%s: %s", path,
                           errno == EBADMSG ? "the compressed data is damaged or cut off"
                                            : strerror(errno));
    }
    if (status == 0) {
        size_t size;
        qsort(rows.items, rows.n, sizeof *rows.items, by_start);
        FILE *text = mem_stream(out, &size);
        fprintf(text, "%sinput,output\n", rows.has_times ? "start_ns," : "");
        for (size_t i = 0; i < rows.n; i++) {
            if (rows.has_times) {
                fprintf(text, "%" PRId64 ",", rows.items[i].start_ns);
            }
            fprintf(text, "%" PRIu32 ",%" PRIu32 "\n", rows.items[i].input_tokens,
                    rows.items[i].output_tokens);
        }
        mem_stream_close(text);
    }
    free(rows.items);
    return status;
}
