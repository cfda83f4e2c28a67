/* vLLM's log with --enable-log-requests and --enable-log-outputs: of each request a line when it
 * came and lines with the tokens that it got. */
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/field.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "traces/server_log.h"

static const char received[] = "Received request ", details[] = "Request ",
                  generated[] = "Generated response ", ids_of_prompt[] = "prompt_token_ids: [",
                  ids_of_output[] = "output_token_ids: [";

/* Times without a year are kept as if every month had 31 days until the whole log is read: only
 * then is it known which years had a 29th of February. */
static const int64_t day_ns = INT64_C(86400000000000);
enum { DAYS_OF_MONTH = 31, DAYS_OF_YEAR = 12 * DAYS_OF_MONTH };

/* ---- years ---- */

/* The years of a log, as far as its lines tell. */
struct years {
    int64_t last_ns; /* of the line before; -1: none */
    int64_t year;    /* counted from that of the first line */
    uint64_t leap;   /* a bit for each year that has a 29th of February */
    bool passes_february, passes_new_year;
};
enum { MOST_YEARS = 60 };

/* A line's time with its year: a time half a year before the last is the next year's. */
static int64_t with_year(struct years *years, int64_t ns) {
    static const int64_t half_year_ns = DAYS_OF_YEAR / 2 * INT64_C(86400000000000);
    int64_t february_ns = (DAYS_OF_MONTH + 28) * day_ns; /* the 29th */
    int64_t year = years->year;
    bool is_first = years->last_ns < 0;
    bool is_next = !is_first && ns < years->last_ns - half_year_ns && year + 1 < MOST_YEARS;
    if (!is_first && ns > years->last_ns + half_year_ns && year > 0) {
        year--; /* a line of the old year after the first of the new one */
    } else {
        year = years->year += is_next;
        years->passes_new_year = years->passes_new_year || is_next;
        bool begins_before = !is_first && (is_next || years->last_ns < february_ns);
        years->passes_february =
            years->passes_february || (begins_before && ns >= february_ns + 2 * day_ns);
        years->last_ns = ns;
    }
    if (ns >= february_ns && ns < february_ns + day_ns) {
        years->leap |= UINT64_C(1) << year;
    }
    return year * DAYS_OF_YEAR * day_ns + ns;
}

/* From months of 31 days to those of the calendar. */
static int64_t calendar_ns(const struct years *years, int64_t ns) {
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t day = ns / day_ns, year = day / DAYS_OF_YEAR,
            month = day % DAYS_OF_YEAR / DAYS_OF_MONTH;
    int64_t days = before[month] + day % DAYS_OF_MONTH;
    for (int64_t y = 0; y <= year; y++) {
        bool is_leap = (years->leap >> y & 1) != 0;
        days += (y < year ? 365 : 0) + (is_leap && (y < year || month > 1));
    }
    return days * day_ns + ns % day_ns;
}

/* Notes on what was assumed, where it matters. */
static void say_years(const struct years *years, FILE *notes) {
    if (years->passes_february || years->passes_new_year) {
        fprintf(notes, "its times have no year: %s%s%s; ",
                years->passes_new_year ? "one that goes back by half a year is the next year's"
                                       : "",
                years->passes_new_year && years->passes_february ? ", and " : "",
                !years->passes_february ? ""
                : years->leap != 0      ? "a leap year is one with a 29th of February in the log"
                                        : "a year without a 29th of February in the log is no "
                                          "leap year");
    }
}

/* A request under way; its row is rows->items[row]. */
struct logged {
    char *id;
    size_t row;
    bool has_come, has_output;
};

struct log {
    struct logged **items;
    size_t n, room;
    void *tree; /* of tsearch, by id */
    const char *path;
    uint64_t number; /* of the line */
    struct years years;
};

/* ---- lines ---- */

/* "INFO 08-13 12:34:56 [logger.py:41] ...", with whatever before the level: the time within a year.
 * False where a line has none. */
static bool read_time(const char *line, int64_t *out) {
    enum { TIME_CHARS = sizeof "08-13 12:34:56" - 1 };
    static const char *const levels[] = {"INFO ", "DEBUG ", NULL};
    for (size_t i = 0; levels[i] != NULL; i++) {
        const char *at = strstr(line, levels[i]);
        at = at != NULL ? at + strlen(levels[i]) : NULL;
        char date[48];
        int64_t ns, month = 0, day = 0;
        if (at == NULL || strnlen(at, TIME_CHARS) < TIME_CHARS ||
            sscanf(at, "%2" SCNd64 "-%2" SCNd64, &month, &day) != 2) {
            continue;
        }
        /* A leap year, so that every day is one; January, so that what follows is the time. */
        size_t length = TIME_CHARS + strspn(at + TIME_CHARS, ".,0123456789");
        int n = snprintf(date, sizeof date, "2024-%.*s", (int)length, at);
        if (n > 0 && (size_t)n < sizeof date && field_date_ns(date, (size_t)n, &ns)) {
            *out = ((month - 1) * DAYS_OF_MONTH + day - 1) * day_ns + ns % day_ns;
            return true;
        }
    }
    return false;
}

/* How many numbers stand in the last list that begins with `head`; false: there is no list. */
static bool count_ids(const char *line, const char *head, uint32_t *out) {
    const char *list = NULL;
    for (const char *at = line; (at = strstr(at, head)) != NULL; at++) {
        list = at + strlen(head);
    }
    if (list == NULL) {
        return false;
    }
    const char *end = strchr(list, ']');
    *out = 0;
    for (const char *at = list; end != NULL && at < end; at++) {
        bool begins = *at >= '0' && *at <= '9' && (at[-1] < '0' || at[-1] > '9');
        *out += begins;
    }
    return end != NULL;
}

/* The text after `word` up to a blank or a colon, malloc'd; NULL: the line is another one. */
static char *id_behind(const char *line, const char *word) {
    const char *at = strstr(line, word);
    const char *id = at != NULL ? at + strlen(word) : NULL;
    size_t length = id != NULL ? strcspn(id, " :\n") : 0;
    return length > 0 ? mem_copied(id, length) : NULL;
}

bool vllm_log_is(const char *text) {
    for (const char *at = text; (at = strstr(at, "request ")) != NULL; at++) {
        const char *line = at;
        while (line > text && line[-1] != '\n') {
            line--;
        }
        char *begin = mem_copied(line, (size_t)(at - line));
        int64_t ignored;
        size_t length = strlen(begin);
        bool is_one = read_time(begin, &ignored) && length >= 9 &&
                      strcmp(begin + length - 9, "Received ") == 0;
        free(begin);
        if (is_one) {
            return true;
        }
    }
    return false;
}

/* ---- requests ---- */

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct logged *)a)->id, ((const struct logged *)b)->id);
}

static struct logged *find(const struct log *log, char *id) {
    const struct logged wanted = {.id = id};
    void *const *found = tfind(&wanted, &log->tree, by_id);
    return found != NULL ? *found : NULL;
}

/* The request of an answer: a completion's "cmpl-1" is received as "cmpl-1-0", its prompts one by
 * one, and answered in their order. */
static struct logged *find_answered(const struct log *log, char *id) {
    struct logged *found = find(log, id);
    size_t size = strlen(id) + 24;
    char *numbered = mem_unwritten(size, 1);
    for (uint64_t i = 0; found == NULL || (found->has_output && i > 0); i++) {
        snprintf(numbered, size, "%s-%" PRIu64, id, i);
        found = find(log, numbered);
        if (found == NULL) {
            break;
        }
    }
    free(numbered);
    return found;
}

static struct logged *find_or_add(struct log *log, struct server_rows *rows, char *id) {
    struct logged *found = find(log, id);
    if (found == NULL) {
        log->items = mem_grown(log->items, log->n, &log->room, sizeof *log->items);
        (void)server_rows_add(rows);
        found = log->items[log->n++] = mem_unwritten(1, sizeof *found);
        *found = (struct logged){.id = mem_text(id), .row = rows->n - 1};
        (void)mem_given(tsearch(found, &log->tree, by_id));
    }
    return found;
}

/* "Received request ID: ..." with the time; "Request ID details: ..." with the prompt, which older
 * versions have in the line before. */
static int take_input(struct log *log, struct server_rows *rows, const char *line, char *id,
                      bool comes, struct err *err) {
    struct logged *request = find_or_add(log, rows, id);
    uint32_t tokens = 0;
    int64_t ns = 0;
    if (comes && !read_time(line, &ns)) {
        return err_world(err,
                         "%s:%" PRIu64 ": found a request without its time, expected INFO "
                         "08-13 12:34:56 before it",
                         log->path, log->number);
    }
    if (comes) {
        rows->items[request->row].start_ns = with_year(&log->years, ns);
    }
    request->has_come = request->has_come || comes;
    if (count_ids(line, ids_of_prompt, &tokens)) {
        rows->items[request->row].input_tokens = tokens;
    }
    return 0;
}

/* Pieces of a streamed answer add up; the whole of it, which may have no ids then, does not. */
static void take_output(const struct log *log, struct server_rows *rows, const char *line,
                        char *id) {
    struct logged *request = find_answered(log, id);
    uint32_t tokens = 0;
    bool is_piece = strstr(line, " (streaming delta): output: ") != NULL;
    if (request == NULL || !count_ids(line, ids_of_output, &tokens)) {
        return;
    }
    uint32_t *output = &rows->items[request->row].output_tokens;
    *output = is_piece ? *output + tokens : tokens;
    request->has_output = request->has_output || !is_piece;
}

static int take_line(struct log *log, struct server_rows *rows, const char *line, struct err *err) {
    char *id = id_behind(line, generated);
    int status = 0;
    if (id != NULL) {
        take_output(log, rows, line, id);
    } else if ((id = id_behind(line, received)) != NULL) {
        status = take_input(log, rows, line, id, true, err);
    } else if (strstr(line, " details: prompt: ") != NULL &&
               (id = id_behind(line, details)) != NULL) {
        status = take_input(log, rows, line, id, false, err);
    }
    free(id);
    return status;
}

/* Requests that the log does not see the end of have failed; a prompt without its tokens is told.
 */
static int check(const struct log *log, struct server_rows *rows, struct err *err) {
    size_t n_come = 0, n_answered = 0;
    for (size_t i = 0; i < log->n; i++) {
        const struct server_row *row = &rows->items[log->items[i]->row];
        if (!log->items[i]->has_come) {
            rows->items[log->items[i]->row].output_tokens = 0;
            continue;
        }
        n_come++;
        n_answered += row->output_tokens > 0;
        if (row->output_tokens > 0 && row->input_tokens == 0) {
            return err_world(err,
                             "%s: found request %s without its prompt_token_ids, expected a log "
                             "with --enable-log-requests and VLLM_LOGGING_LEVEL=DEBUG",
                             log->path, log->items[i]->id);
        }
    }
    return n_come > 0 && n_answered > 0
               ? 0
               : err_world(err,
                           "%s: found %zu requests and %zu with output_token_ids, expected a log "
                           "with --enable-log-requests and --enable-log-outputs",
                           log->path, n_come, n_answered);
}

static void keep(void *item) {
    (void)item;
}

int vllm_log_read(FILE *file, const char *path, struct server_rows *rows, FILE *notes,
                  struct err *err) {
    struct log log = {.path = path, .years = {.last_ns = -1}};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int status = 0;
    rows->has_times = true;
    while (status == 0 && (length = getline(&line, &room, file)) >= 0) {
        log.number++;
        status =
            line[length - 1] == '\n'
                ? take_line(&log, rows, line, err)
                : err_world(err, "%s:%" PRIu64 ": found an unfinished last line", path, log.number);
    }
    free(line);
    if (status == 0 && !feof(file) && !ferror(file)) {
        mem_out(0); /* the one other reason for which getline ends */
    }
    status = status == 0 && !ferror(file) ? check(&log, rows, err) : status;
    for (size_t i = 0; i < rows->n; i++) {
        rows->items[i].start_ns = calendar_ns(&log.years, rows->items[i].start_ns);
    }
    say_years(&log.years, notes);
    system_tree_free(log.tree, keep);
    for (size_t i = 0; i < log.n; i++) {
        free(log.items[i]->id);
        free(log.items[i]);
    }
    free(log.items);
    return status;
}
