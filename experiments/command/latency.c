/* unmask plan latency: one request's first step over canvases and numbers of chunks: how long
 * chunks and plan are searched for, what the step is priced at and, with a back end, what it takes.
 */
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/compose.h"
#include "experiments/study/measured_step.h"
#include "experiments/study/released.h"
#include "experiments/study/step.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/system/system_reads.h"
#include "sim/system/system_step.h"

static const struct option own_options[] = {
    {"systems", "A,B,...", "the systems (default: mosaic)", false},
    {"canvases", "N,N,...", "tokens of the canvas (default: 1024,2048,... up to 32768)", false},
    {"prompt-shares", "R,R,...", "what the prompt is of the canvas (default: 0.5)", false},
    {"counts", "K,K,...",
     "in K chunks of each kind of loop, whatever the system searches for; 1 is unchunked", false},
    {"rounds", "N", "with a back end: how often a step is measured (default: 3)", false},
    {"csv", "FILE", "also write the rows there, with times in milliseconds", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_latency[] = {
    own_options,  device_options, policy_options, backend_options,
    json_options, format_option,  verbose_option, NULL,
};

enum {
    MOST_PLANS = 101, /* of one search that are timed, while these take less than a second */
    MOST_PLANNING_NS = 1000000000,
};

struct question {
    struct asked asked;
    struct backend_request backend;
    char names[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS];
    size_t n_systems;
    struct words canvases, shares, counts; /* counts.n 0: as the system searches */
    uint32_t canvas[WORDS_MOST], count[WORDS_MOST];
    double share[WORDS_MOST];
    uint64_t rounds;
    struct cautions cautions;
};

/* What is known of one step. Times are in ns; NaN: not measured. */
struct line {
    const struct system *system;
    bool fits; /* the memory of the GPU; else nothing but its place is known */
    uint32_t canvas_tokens, prompt_tokens;
    double share;
    struct chunk_rows chunks;
    uint32_t n_chunks[CHUNK_KINDS];
    int64_t workspace_bytes;
    double plan_ns, price_ns;
    double step_ns, spread, ffn_ns, logits_ns, attention_ns;
    double roofline; /* share of the priced time that no profile has rows for */
};

static const char columns[] =
    "system|model|gpu|prompt_share|canvas|attention_chunks|ffn_chunks|logit_chunks|workspace|"
    "plan_ms|priced_ms";
static const char measured_columns[] = "step_ms|spread_%|attention_ms|ffn_ms|logits_ms";
static const char roofline_column[] = "roofline_%";

/* ---- asking ---- */

static int read_list(const struct options *options, const char *name, const char *absent,
                     struct words *out, struct err *err) {
    const char *text = options_text(options, name);
    char place[32];
    snprintf(place, sizeof place, "--%s", name);
    out->n = 0;
    text = text != NULL ? text : absent;
    return text != NULL ? words_split(text, out, place, err) : 0;
}

static int read_numbers(const struct words *words, const char *name, uint64_t most, uint32_t *out,
                        struct err *err) {
    for (size_t i = 0; i < words->n; i++) {
        uint64_t value = 0;
        if (!num_u64(words->word[i], most, &value) || value == 0) {
            return err_usage(err, "--%s: '%s' is not a number from 1 to %" PRIu64, name,
                             words->word[i], most);
        }
        out[i] = (uint32_t)value;
    }
    return 0;
}

static int read_question(const struct options *options, struct question *q, struct err *err) {
    enum { MOST_CANVAS = 1 << 24 };
    const char *systems = options_text(options, "systems");
    q->rounds = 3;
    int status = asked_read(options, &q->asked, err);
    status = status == 0 ? asked_systems_file(options, &q->asked, err) : status;
    status = status == 0 ? asked_backend(options, &q->backend, err) : status;
    status = status == 0 ? asked_system_names(systems != NULL ? systems : "mosaic", q->names,
                                              &q->n_systems, err)
                         : status;
    status = status == 0 ? read_list(options, "canvases", "1024,2048,4096,8192,16384,32768",
                                     &q->canvases, err)
                         : status;
    status = status == 0 ? read_list(options, "prompt-shares", "0.5", &q->shares, err) : status;
    status = status == 0 ? read_list(options, "counts", NULL, &q->counts, err) : status;
    status =
        status == 0 ? read_numbers(&q->canvases, "canvases", MOST_CANVAS, q->canvas, err) : status;
    status = status == 0 ? read_numbers(&q->counts, "counts", CHUNK_MOST, q->count, err) : status;
    for (size_t i = 0; status == 0 && i < q->shares.n; i++) {
        if (!num_f64(q->shares.word[i], &q->share[i]) || q->share[i] < 0 || q->share[i] >= 1) {
            status = err_usage(err, "--prompt-shares: '%s' is not a share from 0 to below 1",
                               q->shares.word[i]);
        }
    }
    status = status == 0 ? options_whole(options, "rounds", 1, 1000, &q->rounds, err) : status;
    if (status == 0 && options_has(options, "rounds") && q->backend.kind == BACKEND_SIM) {
        return err_usage(err, "--rounds: nothing is measured without --backend cpu or cuda");
    }
    return status;
}

static int open_system(const struct question *q, const char *name, struct system **out,
                       struct err *err) {
    struct system_request wanted = compose_system_request(&q->asked.request);
    wanted.system = name;
    wanted.fills_gaps = true;
    uint32_t longest = 0;
    for (size_t i = 0; i < q->canvases.n; i++) {
        longest = q->canvas[i] > longest ? q->canvas[i] : longest;
    }
    int status = first_step_open(&wanted, longest, q->backend.kind != BACKEND_SIM, out, err);
    return status == 0 && q->backend.kind != BACKEND_SIM ? system_serves(*out, err) : status;
}

/* ---- finding out ---- */

/* The median time of finding the step's chunks and its plan, of as many as a second has room for.
 */
static int time_plans(const struct asked_step *step, struct line *line, struct err *err) {
    double ns[MOST_PLANS];
    struct placement placement;
    int64_t start_ns = monotonic_ns();
    size_t n = 0;
    do {
        int64_t before_ns = monotonic_ns();
        int status =
            system_place(line->system, &step->shape, step->workspace_bytes, &placement, err);
        if (status != 0) {
            return status;
        }
        ns[n++] = (double)(monotonic_ns() - before_ns);
    } while (n < MOST_PLANS && monotonic_ns() - start_ns < MOST_PLANNING_NS);
    gsl_sort(ns, 1, n);
    line->plan_ns = gsl_stats_median_from_sorted_data(ns, 1, n);
    line->chunks = placement.chunks;
    line->workspace_bytes = placement.peak_bytes;
    for (uint32_t i = 0; i < line->system->graph.n_loops; i++) {
        uint32_t *most = &line->n_chunks[line->system->graph.loops[i].kind];
        *most = placement.n_chunks[i] > *most ? placement.n_chunks[i] : *most;
    }
    return 0;
}

/* Parts of the whole step as the device ran it. */
static void split(const struct system *system, const struct measured_step *measured,
                  struct line *line) {
    struct step_parts parts = step_parts_of(&system->graph, measured->op_ns);
    double scale = parts.sum_ns > 0 ? measured->device_ns / parts.sum_ns : (double)NAN;
    line->attention_ns = scale * parts.attention_ns;
    line->ffn_ns = scale * parts.ffn_ns;
    line->logits_ns = scale * parts.logits_ns;
}

static int measure(const struct question *q, struct engine *engine, const struct asked_step *step,
                   struct line *line, struct err *err) {
    const struct measuring measuring = {
        .warm_rounds = 1, .rounds = (uint32_t)q->rounds, .operator_rounds = 1};
    struct measured_step measured;
    int status = step_measure_on(engine, step, &measuring, &measured, err);
    if (status == 0) {
        line->step_ns = measured.wall_ns;
        line->spread = measured.spread;
        split(line->system, &measured, line);
    }
    return status;
}

static void add_ms(struct table *table, double ns) {
    table_number(table, ns * 1e-6, ns < 1e6 ? "%.4f" : "%.3f");
}

static void add_line(struct table *table, const struct line *line, bool is_measured) {
    const uint32_t *n = line->n_chunks;
    table_add(table, "s s s %g u", line->system->name, line->system->model->name,
              line->system->gpu->name, line->share, line->canvas_tokens);
    table_add(table, line->fits ? "u u u" : "- - -", n[0], n[1], n[2]);
    table_add(table, line->workspace_bytes > 0 ? "b" : "-", line->workspace_bytes);
    add_ms(table, line->plan_ns);
    add_ms(table, line->price_ns);
    if (is_measured) {
        add_ms(table, line->step_ns);
        table_number(table, 100 * line->spread, "%.1f");
        add_ms(table, line->attention_ns);
        add_ms(table, line->ffn_ns);
        add_ms(table, line->logits_ns);
    }
    table_number(table, 100 * line->roofline, "%.1f");
}

static void write_number(FILE *csv, double value, const char *format) {
    fputc(',', csv);
    if (!isnan(value)) {
        fprintf(csv, format, value);
    }
}

static void write_line(FILE *csv, const struct line *line) {
    fprintf(csv, "%s,%s,%s,%g,%" PRIu32, line->system->name, line->system->model->name,
            line->system->gpu->name, line->share, line->canvas_tokens);
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        fprintf(csv, ",%" PRIu32, line->n_chunks[kind]);
    }
    fprintf(csv, ",%" PRId64, line->workspace_bytes);
    const double ns[] = {line->plan_ns, line->price_ns, line->step_ns};
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) {
        write_number(csv, ns[i] * 1e-6, "%.6f");
    }
    write_number(csv, 100 * line->spread, "%.2f");
    write_number(csv, line->attention_ns * 1e-6, "%.6f");
    write_number(csv, line->ffn_ns * 1e-6, "%.6f");
    write_number(csv, line->logits_ns * 1e-6, "%.6f");
    write_number(csv, 100 * line->roofline, "%.2f");
    fputc('\n', csv);
    fflush(csv);
}

/* One step of the system as it is set now. */
static int show_step(const struct question *q, struct system *system, struct engine *engine,
                     uint32_t canvas, double share, struct table *table, FILE *csv,
                     struct err *err) {
    struct asked_step step;
    struct step_price price;
    uint32_t output = first_step_outputs(canvas, share);
    struct line line = {.system = system,
                        .fits = true,
                        .canvas_tokens = canvas,
                        .share = share,
                        .price_ns = (double)NAN,
                        .plan_ns = (double)NAN,
                        .step_ns = (double)NAN,
                        .spread = (double)NAN,
                        .ffn_ns = (double)NAN,
                        .logits_ns = (double)NAN,
                        .attention_ns = (double)NAN,
                        .roofline = (double)NAN};
    int status = step_first(system, canvas - output, output, &step, err);
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        line.n_chunks[kind] = 1;
    }
    bool is_planned = system->settings.allocator == ALLOCATOR_PLANNED;
    if (status == 0 && is_planned) {
        status = time_plans(&step, &line, err);
    }
    if (status != 0 && err->kind == ERR_WORLD && engine == NULL) {
        fprintf(stderr, "unmask: no step of %" PRIu32 " tokens: %s\n", canvas, err->text);
        *err = (struct err){0};
        line.fits = false;
        line.workspace_bytes = 0;
        status = 0;
    }
    if (status == 0 && line.fits) {
        system_price(system, &step.shape, step.workspace_bytes, &price);
        (void)cost_settle(system->cost, &step.shape, &price);
        line.price_ns = price.wall_ns;
        line.roofline = cost_shares(system->cost, &price.time).by_kind[PROVENANCE_ROOFLINE];
    }
    if (status == 0 && engine != NULL) {
        status = measure(q, engine, &step, &line, err);
    }
    if (status == 0) {
        add_line(table, &line, engine != NULL);
    }
    if (status == 0 && line.fits && csv != NULL) {
        write_line(csv, &line);
    }
    step_fini(&step);
    return status;
}

static int show_canvases(const struct question *q, struct system *system, struct engine *engine,
                         struct table *table, FILE *csv, struct err *err) {
    int status = 0;
    for (size_t s = 0; status == 0 && s < q->shares.n; s++) {
        for (size_t c = 0; status == 0 && c < q->canvases.n; c++) {
            for (size_t k = 0; status == 0 && k < (q->counts.n > 0 ? q->counts.n : 1); k++) {
                for (int kind = 0; q->counts.n > 0 && kind < CHUNK_KINDS; kind++) {
                    system->chunks.search = CHUNK_SEARCH_ALWAYS;
                    system->chunks.counts[kind] = q->count[k];
                }
                status = show_step(q, system, engine, q->canvas[c], q->share[s], table, csv, err);
            }
        }
    }
    return status;
}

static void warn_of_unread(struct question *q, const char *name, const struct system *system) {
    const struct system_in in = {system, "step"};
    const struct facts facts = {system_in_fact, &in};
    struct warnings warnings = {0};
    system_warn_of_unread(system, &facts, &warnings);
    stated_warn(q->asked.stated, q->asked.request.n_stated, &facts, &warnings);
    cautions_add(&q->cautions, name, &warnings);
}

static int show_system(struct question *q, const char *name, struct table *table, FILE *csv,
                       struct err *err) {
    struct system *system = NULL;
    struct engine *engine = NULL;
    int status = open_system(q, name, &system, err);
    if (status == 0) {
        warn_of_unread(q, name, system);
    }
    if (status == 0 && q->backend.kind != BACKEND_SIM) {
        const struct engine_request request = {.backend = q->backend.kind,
                                               .library = q->backend.library,
                                               .device = q->backend.device,
                                               .weights = q->backend.weights,
                                               .system = system};
        status = engine_open(&request, &engine, err);
    }
    status = status == 0 ? show_canvases(q, system, engine, table, csv, err) : status;
    engine_close(engine);
    system_close(system);
    return status;
}

/* A file has all columns, measured or not. */
static void write_columns(const char *names, char end, FILE *csv) {
    for (const char *c = names; csv != NULL && c <= names + strlen(names); c++) {
        fputc(*c == '|' ? ',' : *c == '\0' ? end : *c, csv);
    }
}

static int show_all(const struct options *options, struct question *q, FILE *csv, struct err *err) {
    struct table *table = table_open(columns);
    int status = 0;
    if (q->backend.kind != BACKEND_SIM) {
        table_columns(table, measured_columns);
    }
    table_columns(table, roofline_column);
    write_columns(columns, ',', csv);
    write_columns(measured_columns, ',', csv);
    write_columns(roofline_column, '\n', csv);
    for (size_t i = 0; status == 0 && i < q->n_systems; i++) {
        status = show_system(q, q->names[i], table, csv, err);
    }
    status = status == 0 ? cmd_print_table(options, table, err) : status;
    const char *systems[ASKED_MOST_SYSTEMS];
    for (size_t i = 0; i < q->n_systems; i++) {
        systems[i] = q->names[i];
    }
    released_print(systems, status != 0 || options_has(options, "json") ? 0 : q->n_systems, stdout);
    cautions_print(&q->cautions, options_has(options, "json") ? stderr : stdout);
    table_close(table);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct question *q = mem_zeroed(1, sizeof *q);
    const char *path = options_text(options, "csv");
    struct output csv = {.file = NULL};
    int status = read_question(options, q, err);
    status = status == 0 && path != NULL ? output_open(path, &csv, err) : status;
    status = status == 0 ? show_all(options, q, csv.file, err) : status;
    if (csv.file != NULL) {
        int lost = output_close(&csv, status == 0, err);
        status = status != 0 ? status : lost;
    }
    free(q);
    return status;
}

const struct command command_latency = {
    .name = "plan latency",
    .words = "",
    .doc = "one request's first step by canvas, system and chunks: search, plan and step",
    .more = "Finding chunks and plan is timed on this host, the step is priced and, with a back\n"
            "end, measured, whole and by what its operators are for (step_ms to logits_ms). A "
            "canvas that does not fit has\n"
            "an empty row and a sentence on standard error. roofline_% is the share of the\n"
            "operators' time that no profile has rows for.",
    .options = options_of_latency,
    .run = run,
};
