/* unmask trace info and convert: what a trace is like, and the same rows in another format. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/offered.h"
#include "analysis/trace_facts.h"
#include "engine/weights/tokenizer.h"
#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "sim/base/err.h"
#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/output.h"
#include "traces/reader.h"

/* The formats that `unmask trace convert` writes. */

/* Which columns of the plain format the rows have besides times and lengths. */
struct beside {
    bool tenant, prefix, answer, session, think, group, deadline, priority, predicted;
};

struct target {
    const char *name;
    void (*head)(FILE *out, const struct beside *has);
    void (*row)(FILE *out, const struct arrival *row, const struct beside *has);
    bool has_times, has_beside, has_sessions; /* what it can hold */
};

static void head_plain(FILE *out, const struct beside *has) {
    fprintf(out, "arrival_us,input_tokens,output_tokens%s%s%s%s%s%s%s%s%s\n",
            has->tenant ? ",tenant" : "", has->prefix ? ",prefix_tokens" : "",
            has->answer ? ",answer_tokens" : "", has->session ? ",session" : "",
            has->think ? ",think_us" : "", has->group ? ",prefix_group" : "",
            has->deadline ? ",deadline_us" : "", has->priority ? ",priority" : "",
            has->predicted ? ",predicted_tokens" : "");
}

/* A time in units of `unit_ns`, with as many decimals as it needs. */
static void write_time(FILE *out, int64_t ns, int64_t unit_ns) {
    fprintf(out, "%" PRId64, ns / unit_ns);
    int64_t rest = ns % unit_ns;
    for (int64_t digit = unit_ns / 10; rest > 0; digit /= 10) {
        fprintf(out, "%s%" PRId64, digit == unit_ns / 10 ? "." : "", rest / digit);
        rest %= digit;
    }
}

static void write_beside(FILE *out, const struct arrival *row, const struct beside *has) {
    if (has->tenant) {
        fprintf(out, ",%" PRIu32, row->tenant);
    }
    if (has->prefix) {
        fprintf(out, ",%" PRIu32, row->prefix_tokens);
    }
    if (has->answer) {
        fprintf(out, ",%" PRIu32, row->answer_tokens > 0 ? row->answer_tokens : row->output_tokens);
    }
    if (has->session) {
        fputc(',', out);
        if (row->session != 0) {
            fprintf(out, "%" PRIu64, row->session);
        }
    }
    if (has->think) {
        fputc(',', out);
        if (row->think_ns >= 0) {
            write_time(out, row->think_ns, 1000);
        }
    }
    if (has->group) {
        fputc(',', out);
        if (row->prefix_group != 0) {
            fprintf(out, "%" PRIu64, row->prefix_group);
        }
    }
    if (has->deadline) {
        fputc(',', out);
        if (row->due_ns > 0) {
            write_time(out, row->arrival_ns + row->due_ns, 1000);
        }
    }
    if (has->priority) {
        fprintf(out, ",%" PRIu32, row->priority);
    }
    if (has->predicted) {
        fprintf(out, ",%" PRIu32, row->predicted_tokens);
    }
    fputc('\n', out);
}

static void write_plain(FILE *out, const struct arrival *row, const struct beside *has) {
    write_time(out, row->arrival_ns, 1000);
    fprintf(out, ",%" PRIu32 ",%" PRIu32, row->prompt_tokens, row->output_tokens);
    write_beside(out, row, has);
}

static void head_lengths(FILE *out, const struct beside *has) {
    fprintf(out, "input_tokens,output_tokens%s%s\n", has->answer ? ",answer_tokens" : "",
            has->session ? ",session" : "");
}

static void write_lengths(FILE *out, const struct arrival *row, const struct beside *has) {
    fprintf(out, "%" PRIu32 ",%" PRIu32, row->prompt_tokens, row->output_tokens);
    write_beside(out, row, &(const struct beside){.answer = has->answer, .session = has->session});
}

static void head_vidur(FILE *out, const struct beside *has) {
    (void)has;
    fputs("arrived_at,num_prefill_tokens,num_decode_tokens\n", out);
}

static void write_vidur(FILE *out, const struct arrival *row, const struct beside *has) {
    (void)has;
    write_time(out, row->arrival_ns, 1000000000);
    fprintf(out, ",%" PRIu32 ",%" PRIu32 "\n", row->prompt_tokens, row->output_tokens);
}

static void head_mooncake(FILE *out, const struct beside *has) {
    (void)out, (void)has;
}

/* The format has whole milliseconds: with fractions readers cannot know that they are none of
 * seconds. */
static void write_mooncake(FILE *out, const struct arrival *row, const struct beside *has) {
    (void)has;
    fprintf(out, "{\"timestamp\": %" PRId64, (row->arrival_ns + 500000) / 1000000);
    fprintf(out, ", \"input_length\": %" PRIu32 ", \"output_length\": %" PRIu32 "}\n",
            row->prompt_tokens, row->output_tokens);
}

static const struct target targets[] = {
    {"plain", head_plain, write_plain, true, true, true},
    {"plain-lengths", head_lengths, write_lengths, false, false, true},
    {"vidur", head_vidur, write_vidur, true, false, false},
    {"mooncake", head_mooncake, write_mooncake, true, false, false}};
enum { N_TARGETS = sizeof targets / sizeof targets[0] };

/* NULL, with ERR_USAGE and the nearest name, where none is called so. */
static const struct target *target_find(const char *name, struct err *err) {
    const char *names[N_TARGETS + 1] = {NULL};
    char hint[NAME_HINT_CHARS];
    for (size_t i = 0; i < N_TARGETS; i++) {
        names[i] = targets[i].name;
    }
    int at = name_find(names, name);
    if (at < 0) {
        err_usage(err,
                  "--to: no format '%s' is written%s; plain, plain-lengths, vidur and "
                  "mooncake are",
                  name, name_hint(name, names, hint));
    }
    return at >= 0 ? &targets[at] : NULL;
}

static struct beside beside_of(const struct arrivals *arrivals) {
    struct beside has = {0};
    for (size_t i = 0; i < arrivals->n; i++) {
        const struct arrival *row = &arrivals->items[i];
        has.tenant = has.tenant || row->tenant != 0;
        has.prefix = has.prefix || row->prefix_tokens != 0;
        has.answer = has.answer || row->answer_tokens != 0;
        has.session = has.session || row->session != 0;
        has.group = has.group || row->prefix_group != 0;
        has.deadline = has.deadline || row->due_ns > 0;
        has.priority = has.priority || row->priority != 0;
        has.predicted = has.predicted || row->predicted_tokens != 0;
        has.think = has.think || (row->session != 0 && row->think_ns >= 0);
    }
    return has;
}

static const struct option info_options[] = {
    {"context", "TOKENS",
     "count what does not fit into this context, in addition to the usual ones", false},
    {NULL, NULL, NULL, false},
};

static const struct option convert_options[] = {
    {"to", "FORMAT", "plain, plain-lengths, vidur or mooncake (default: plain)", false},
    {"out", "FILE", "where the rows go (default: standard output)", false},
    {"context", "TOKENS", "leave out rows that do not fit into this context", false},
    {NULL, NULL, NULL, false},
};

static const struct option reading_options[] = {
    {"columns", "time=NAME:UNIT,...", "what the columns of the file are called (below)", false},
    {"time-unit", "UNIT", "unit of the file's times: s, ms, us, ns or date; default: as it says",
     false},
    {"hash-tokens", "N", "tokens that each of its hash ids stands for; default: as its rows say",
     false},
    {"where", "NAME=VALUE,...", "which of its rows count; != for those that do not", false},
    {"skip-failed", NULL, "leave out rows that failed or have no tokens", false},
    {"skip-bad", NULL, "leave out rows that cannot be read, and say how many and why", false},
    {"sort", NULL, "the file's rows need not be in order of arrival", false},
    {"tokenizer", "FOLDER", "count the tokens of texts (prompts, ShareGPT) by its tokenizer.json",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option generating_options[] = {
    {"requests", "N", "how many requests (default: all, or as the workload has it)", false},
    {"rate", "R", "of a workload: mean requests a second", false},
    {"seed", "N", "of a workload: of all random streams (default: 1)", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const groups_of_info[] = {
    info_options, reading_options, generating_options, json_options, format_option, NULL};
static const struct option *const groups_of_convert[] = {convert_options, reading_options,
                                                         generating_options, NULL};

/* Rows and where they come from. */
struct reading {
    struct arrivals arrivals;
    char format[32];
    uint64_t n_failed, n_left_out;
    bool has_times;
    double asked_req_s; /* of a workload; 0: none was */
    char hint[320];     /* how a column might be read as the time, where it has none */
    char *notes;        /* what was found out of the file, in sentences; "" */
    char **unread;      /* columns or keys that are not read */
    size_t n_unread;
};

static void reading_free(struct reading *reading) {
    arrivals_free(&reading->arrivals);
    free(reading->notes);
    for (size_t i = 0; i < reading->n_unread; i++) {
        free(reading->unread[i]);
    }
    free(reading->unread);
}

/* ---- texts ---- */

static int count_tokens(void *state, const struct prompt *prompt, uint32_t *tokens,
                        struct err *err) {
    struct tokenizer *tokenizer = state;
    struct token_ids ids = {0};
    int status = prompt->text != NULL
                     ? tokenizer_encode(tokenizer, prompt->text, prompt->text_bytes, &ids, err)
                     : 0;
    *tokens = prompt->text != NULL ? (uint32_t)ids.n : prompt->n_ids;
    free(ids.ids);
    return status;
}

/* ---- files ---- */

static int read_how(const struct options *options, struct trace_reading *how, struct err *err) {
    uint64_t hash_tokens = 0;
    *how = (struct trace_reading){.columns = options_text(options, "columns"),
                                  .time_unit = options_text(options, "time-unit"),
                                  .where = options_text(options, "where"),
                                  .skip_failed = options_has(options, "skip-failed"),
                                  .skip_bad = options_has(options, "skip-bad"),
                                  .names_skip_bad = true,
                                  .sorts = options_has(options, "sort")};
    int status = options_whole(options, "hash-tokens", 1, UINT32_MAX, &hash_tokens, err);
    how->hash_tokens = (uint32_t)hash_tokens;
    return status;
}

static void keep_words(const struct trace *trace, struct reading *out) {
    const char *const *unread = trace_unread(trace, &out->n_unread);
    out->notes = mem_text(trace_notes(trace));
    size_t length = strlen(out->notes);
    if (length >= 2) {
        out->notes[length - 2] = '\0'; /* the last one's "; " */
    }
    out->unread = mem_zeroed(out->n_unread + 1, sizeof *out->unread);
    for (size_t i = 0; i < out->n_unread; i++) {
        out->unread[i] = mem_text(unread[i]);
    }
}

static int read_opened(struct trace *trace, const struct trace_reading *how, const char *path,
                       uint64_t most, struct reading *out, struct err *err) {
    int status = 0;
    if (trace_has_prompts(trace) && how->counter.take == NULL) {
        status = err_usage(err,
                           "%s has prompts, which have no lengths before a tokenizer counts "
                           "them (--tokenizer FOLDER)",
                           path);
    }
    trace_set_taker(trace, &how->counter);
    status = status != 0 ? status : arrivals_read(trace_source(trace), most, &out->arrivals, err);
    const char *first;
    const uint64_t n_bad = trace_bad(trace, &first);
    if (status == 0 && n_bad > 0) {
        fprintf(stderr, "unmask: left out %" PRIu64 " row%s that cannot be read; the first: %s\n",
                n_bad, n_bad == 1 ? "" : "s", first);
    }
    snprintf(out->format, sizeof out->format, "%s", trace_format(trace));
    out->n_failed = trace_skipped(trace);
    out->n_left_out = trace_left_out(trace);
    out->has_times = trace_has_times(trace);
    keep_words(trace, out);
    trace_hint_of_time(trace, out->hint, sizeof out->hint);
    return status;
}

static int read_trace(const struct options *options, const char *path, uint64_t most,
                      struct reading *out, struct err *err) {
    struct trace *trace = NULL;
    struct trace_reading how;
    struct tokenizer *tokenizer = NULL;
    const char *folder = options_text(options, "tokenizer");
    if (options_has(options, "rate") || options_has(options, "seed")) {
        return err_usage(err, "--rate and --seed are a workload's; `run --rate` rescales a trace");
    }
    int status = read_how(options, &how, err);
    status = status == 0 && folder != NULL ? tokenizer_open(folder, &tokenizer, err) : status;
    if (tokenizer != NULL) {
        how.counter = (struct prompt_taker){.state = tokenizer, .take = count_tokens};
    }
    status = status == 0 ? trace_open_as(path, &how, &trace, err) : status;
    status = status == 0 ? read_opened(trace, &how, path, most, out, err) : status;
    trace_close(trace);
    tokenizer_close(tokenizer);
    return status;
}

static int read_workload(const struct options *options, const char *name, uint64_t most,
                         struct reading *out, struct err *err) {
    struct workload_options how = {.seed = 1, .requests = most};
    struct workload *workload;
    for (size_t i = 0; reading_options[i].name != NULL; i++) {
        if (options_has(options, reading_options[i].name)) {
            return err_usage(err,
                             "--%s, as --columns and --sort, are for files, '%s' is a workload, "
                             "whose file says it",
                             reading_options[i].name, name);
        }
    }
    int status = options_whole(options, "seed", 0, INT64_MAX, &how.seed, err);
    status = status != 0 ? status
                         : rate_read("--rate", options_text(options, "rate"), &how.rate_per_s, err);
    status = status != 0 ? status : workload_open(name, &how, &workload, err);
    if (status != 0) {
        return status;
    }
    char notes[1024];
    snprintf(out->format, sizeof out->format, "workload");
    status = arrivals_read(workload_source(workload), 0, &out->arrivals, err);
    out->n_failed = workload_counts(workload).n_failed;
    out->has_times = true;
    out->asked_req_s = workload_rate_per_s(workload);
    out->notes = mem_text(workload_notes(workload, notes, sizeof notes));
    workload_close(workload);
    return status;
}

static int read_rows(const struct options *options, struct reading *out, struct err *err) {
    uint64_t most = 0;
    if (options->n_words != 1) {
        return err_usage(err, "expected one trace file, workload or INI file of one");
    }
    const char *name = options->words[0];
    int status = options_whole(options, "requests", 1, 1000000000, &most, err);
    if (status == 0) {
        status = workload_is_trace(name) ? read_trace(options, name, most, out, err)
                                         : read_workload(options, name, most, out, err);
    }
    arrivals_sort(&out->arrivals);
    return status;
}

static int read_context(const struct options *options, uint32_t *context, struct err *err) {
    uint64_t tokens = 0;
    int status = options_whole(options, "context", 2, UINT32_MAX, &tokens, err);
    *context = (uint32_t)tokens;
    return status;
}

/* ---- info ---- */

static void add_distribution(struct table *table, const char *name, const struct distribution *d) {
    table_add(table, "s %.4g %.4g %.4g %.4g %.4g %.4g %.4g %.3g", name, d->mean, d->min, d->p50,
              d->p90, d->p95, d->p99, d->max, distribution_cv(d));
}

static struct table *distributions(const struct trace_facts *facts, bool has_times) {
    struct table *table = table_open("of a request|mean|min|p50|p90|p95|p99|max|cv");
    if (has_times && facts->n > 1) {
        add_distribution(table, "gap_s", &facts->gap_s);
    }
    add_distribution(table, "input_tokens", &facts->input);
    add_distribution(table, "output_tokens", &facts->output);
    if (facts->has_answers) {
        add_distribution(table, "answer_tokens", &facts->answer);
    }
    add_distribution(table, "total_tokens", &facts->total);
    if (facts->think_s.n > 0) {
        add_distribution(table, "think_s", &facts->think_s);
    }
    return table;
}

static struct table *windows(const struct trace_facts *facts) {
    struct table *table = table_open("window_s|windows|mean|most|dispersion");
    for (size_t w = 0; w < TRACE_WINDOWS && facts->windows[w].mean > 0; w++) {
        const struct window_facts *window = &facts->windows[w];
        table_add(table, "%.0f i %.4g %.0f %.3g", window->seconds, (int64_t)window->n, window->mean,
                  window->most, window->dispersion);
    }
    return table;
}

static struct table *contexts(const struct trace_facts *facts) {
    struct table *table = table_open("context|dropped|dropped_%|dropped if truncated");
    for (size_t c = 0; c < TRACE_CONTEXTS && facts->contexts[c].tokens > 0; c++) {
        const struct context_facts *context = &facts->contexts[c];
        table_add(table, "u i %.2f i", context->tokens, (int64_t)context->n_over,
                  100 * (double)context->n_over / (double)facts->n,
                  (int64_t)context->n_outputs_over);
    }
    return table;
}

static json_t *table_taken(struct table *table) {
    json_t *json = table_json(table);
    table_close(table);
    return json;
}

static json_t *info_json(const char *name, const struct reading *reading,
                         const struct trace_facts *facts) {
    json_t *unread = json_array();
    for (size_t i = 0; i < reading->n_unread; i++) {
        json_array_append_new(unread, json_string(reading->unread[i]));
    }
    return json_pack(
        "{s:o, s:s, s:I, s:s, s:s, s:I, s:I, s:b, s:f, s:f, s:o, s:I, s:I, s:I, s:i, s:I, s:I, "
        "s:o, s:o, s:o}",
        "unread", unread, "notes", reading->notes, "left_out", (json_int_t)reading->n_left_out,
        "trace", name, "format", reading->format, "requests", (json_int_t)facts->n, "failed",
        (json_int_t)reading->n_failed, "has_times", reading->has_times, "span_s", facts->span_s,
        "rate_req_s", facts->rate_req_s, "asked_req_s",
        reading->asked_req_s > 0 ? json_real(reading->asked_req_s) : json_null(), "prompt_tokens",
        (json_int_t)facts->prompt_tokens, "output_tokens", (json_int_t)facts->output_tokens,
        "shared_prompt_tokens", (json_int_t)facts->shared_tokens, "tenants", (int)facts->n_tenants,
        "sessions", (json_int_t)facts->n_sessions, "turns", (json_int_t)facts->n_turns,
        "distributions", table_taken(distributions(facts, reading->has_times)), "windows",
        table_taken(windows(facts)), "contexts", table_taken(contexts(facts)));
}

static void print_table(struct table *table, bool has_rows) {
    if (has_rows) {
        printf("\n");
        table_print(table, stdout);
    }
    table_close(table);
}

/* What was inferred from a file, and which of its columns or keys are not read. */
static void print_words(const struct reading *reading, const char *before, FILE *out) {
    if (reading->notes[0] != '\0') {
        fprintf(out, "%s%s\n", before, reading->notes);
    }
    for (size_t i = 0; i < reading->n_unread; i++) {
        fprintf(out, "%s%s", i == 0 ? before : ", ", i == 0 ? "columns not read: " : "");
        fprintf(out, "%s%s", reading->unread[i], i + 1 == reading->n_unread ? "\n" : "");
    }
}

/* "left out: 2 failed rows, 1 row by --where"; nothing where none is. */
static void print_left_out(const struct reading *reading, const char *before, FILE *out) {
    const uint64_t n[] = {reading->n_failed, reading->n_left_out};
    if (n[0] + n[1] == 0) {
        return;
    }
    fprintf(out, "%sleft out: ", before);
    for (int i = 0; i < 2; i++) {
        if (n[i] > 0) {
            fprintf(out, "%s%" PRIu64 "%s row%s%s", i > 0 && n[0] > 0 ? ", " : "", n[i],
                    i == 0 ? " failed" : "", n[i] == 1 ? "" : "s", i == 1 ? " by --where" : "");
        }
    }
    fprintf(out, "\n");
}

static void info_print(const char *name, const struct reading *reading,
                       const struct trace_facts *facts) {
    printf("%s: %s, %zu request%s", name, reading->format, facts->n, facts->n == 1 ? "" : "s");
    if (!reading->has_times) {
        printf(", lengths alone");
    } else {
        printf(" in %.6g s, %.4g a second", facts->span_s, facts->rate_req_s);
        if (!rate_is_met(reading->asked_req_s, facts->rate_req_s)) {
            printf(" (%.6g asked for)", reading->asked_req_s);
        }
    }
    printf("\n");
    print_left_out(reading, "", stdout);
    printf("%" PRIu64 " prompt tokens, %" PRIu64 " output tokens, %u tenant%s",
           facts->prompt_tokens, facts->output_tokens, facts->n_tenants,
           facts->n_tenants == 1 ? "" : "s");
    if (facts->shared_tokens > 0) {
        printf("; %.1f %% of the prompts are prefixes of earlier ones",
               100 * (double)facts->shared_tokens / (double)facts->prompt_tokens);
    }
    printf("\n");
    if (facts->n_sessions > 0) {
        printf("%" PRIu64 " conversations of %.3g turns in the mean; later turns wait for the one "
               "before to end\n",
               facts->n_sessions, (double)facts->n_turns / (double)facts->n_sessions);
    }
    print_words(reading, "", stdout);
    print_table(distributions(facts, reading->has_times), true);
    bool has_windows = facts->windows[0].mean > 0;
    print_table(windows(facts), has_windows);
    if (has_windows) {
        printf("dispersion: variance over mean of the arrivals in a window; 1 of a Poisson "
               "process, more where they come in bursts\n");
    }
    print_table(contexts(facts), true);
}

static int info(const struct options *options, struct err *err) {
    struct reading reading = {0};
    uint32_t context;
    int status = read_context(options, &context, err);
    status = status != 0 ? status : read_rows(options, &reading, err);
    if (status == 0) {
        struct trace_facts facts = trace_facts_of(&reading.arrivals, context);
        if (options_has(options, "json")) {
            status = cmd_print_json(info_json(options->words[0], &reading, &facts), err);
        } else {
            info_print(options->words[0], &reading, &facts);
        }
    }
    reading_free(&reading);
    return status;
}

/* ---- convert ---- */

static bool fits(const struct arrival *row, uint32_t context) {
    return context == 0 || (uint64_t)row->prompt_tokens + row->output_tokens <= context;
}

/* Rows that fit; the number of the others is said on standard error. */
static uint64_t write_rows(const struct target *target, const struct arrivals *arrivals,
                           uint32_t context, FILE *out) {
    struct beside has = beside_of(arrivals);
    uint64_t n_over = 0;
    target->head(out, &has);
    for (size_t i = 0; i < arrivals->n; i++) {
        if (fits(&arrivals->items[i], context)) {
            target->row(out, &arrivals->items[i], &has);
        } else {
            n_over++;
        }
    }
    bool loses =
        !target->has_beside && (has.tenant || has.prefix || (has.session && !target->has_sessions));
    fprintf(stderr, "unmask: %" PRIu64 " rows as %s%s", (uint64_t)arrivals->n - n_over,
            target->name, loses ? ", which has no tenants, prefixes and sessions" : "");
    if (n_over > 0) {
        fprintf(stderr, "; %" PRIu64 " longer than the context are left out", n_over);
    }
    fprintf(stderr, "\n");
    return arrivals->n - n_over;
}

static int write_all(const struct target *target, const struct reading *reading, uint32_t context,
                     const char *path, struct err *err) {
    struct output output = {.file = stdout};
    uint64_t n_fit = 0;
    for (size_t i = 0; i < reading->arrivals.n; i++) {
        n_fit += fits(&reading->arrivals.items[i], context);
    }
    if (n_fit == 0) {
        return err_world(err, "no request fits into a context of %" PRIu32 " tokens", context);
    }
    if (path != NULL && output_open(path, &output, err) != 0) {
        return err_status(err);
    }
    write_rows(target, &reading->arrivals, context, output.file);
    return path != NULL ? output_close(&output, true, err) : 0;
}

static int convert(const struct options *options, struct err *err) {
    struct reading reading = {0};
    uint32_t context = 0;
    const char *to = options_text(options, "to");
    const struct target *target = target_find(to != NULL ? to : "plain", err);
    if (target == NULL) {
        return err_status(err);
    }
    int status = read_context(options, &context, err);
    status = status != 0 ? status : read_rows(options, &reading, err);
    if (status == 0 && target->has_times && !reading.has_times) {
        status = err_usage(err, "%s has lengths alone, and %s wants times; --to plain-lengths%s",
                           options->words[0], target->name, reading.hint);
    }
    if (status == 0) {
        print_words(&reading, "unmask: ", stderr);
        print_left_out(&reading, "unmask: ", stderr);
        status = write_all(target, &reading, context, options_text(options, "out"), err);
    }
    reading_free(&reading);
    return status;
}

#define COLUMNS_TEXT                                                                               \
    "Formats are recognised by their first lines (docs/reference/formats.md), gzip and\n"          \
    "Zstandard by their first bytes; results and logs of vLLM, SGLang and AIPerf are read,\n"      \
    "too. CSV files and JSON lines of other tools are read by the names of their columns,\n"       \
    "else by --columns:\n"                                                                         \
    "  --columns time=ts:s,input=usage.prompt_tokens,output=usage.completion_tokens\n"             \
    "with the units ns, us, ms, s and date, a.b for b within a, and where the file has them\n"     \
    "tenant, prefix (tokens that an earlier prompt began with, too), answer, session (of\n"        \
    "which conversation it is a turn), parent (the turn before), think=NAME:UNIT (from the\n"      \
    "end of the turn before), hashes (ids of the prompt's blocks) and group (whose prompts\n"      \
    "begin alike; default: those of a tenant). Without time it has lengths alone. What is not\n"   \
    "read is named."

const struct command command_trace_info = {
    .name = "trace info",
    .words = "FILE|WORKLOAD",
    .doc = "rates, lengths and burstiness of a trace, and what a context would leave out",
    .more = COLUMNS_TEXT "\nA workload is generated first, with its own rate or --rate.",
    .options = groups_of_info,
    .max_words = 1,
    .run = info,
};

const struct command command_trace_convert = {
    .name = "trace convert",
    .words = "FILE|WORKLOAD",
    .doc = "the requests of a trace, log or workload in a format that is read everywhere",
    .more =
        COLUMNS_TEXT "\nTimes begin at 0. Only the plain format holds tenants, shared prefixes,\n"
                     "answers, sessions and times to think.",
    .options = groups_of_convert,
    .max_words = 1,
    .run = convert,
};
