/* unmask plan lmax: the longest canvas that fits one request, and what stops a longer one. */
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
#include "experiments/study/released.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/memory/stream.h"
#include "sim/system/lmax.h"
#include "sim/system/system_reads.h"

static const struct option own_options[] = {
    {"system", "NAME", "a configuration of policies (list systems; default: mosaic)", false},
    {"systems", "A,B,...", "several of them in a table; ratios are over the first", false},
    {"systems-file", "FILE", "systems of your own, in addition to the shipped ones", false},
    {"model", "NAME",
     "the model (list models), an INI file or a Hugging Face folder (default: the systems' own)",
     false},
    {"gpu", "NAME", "the GPU (list gpus) or an INI file (default: rtx3090)", false},
    {"memory", "BYTES", "the device has this much, such as 24GiB (default: the GPU's own)", false},
    {"prompt-share", "R", "what the prompt is of the canvas (default: 0.5)", false},
    {"share-of", "WORD", "what R is a share of: canvas or output (default: canvas)", false},
    {"before", "R,R,...", "canvases that ran before, as shares of this one [allocator != planned]",
     false},
    {"steps", "N",
     "denoising steps that are played (default: 10, the benchmarks of Mosaic) "
     "[allocator != planned]",
     false},
    {"batch", "N", "canvases of that length in a step (default: 1)", false},
    {"masked", "R",
     "outputs that are still masked in the step in question, as a share (default: 1, the first "
     "step) [allocator = planned]",
     false},
    {"multiple-of", "N", "canvases are multiples of N tokens (default: 64) [--canvas = none]",
     false},
    {"canvas", "N", "show a canvas of N tokens instead of the longest", false},
    {"breakdown", NULL, "what each part of the step holds, at that canvas and one beyond", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_lmax[] = {own_options,   policy_options, json_options,
                                                       format_option, verbose_option, NULL};

/* One line of the table. */
struct line {
    char name[ASKED_NAME_CHARS];
    bool is_known;      /* its system could be opened: what follows is there */
    struct model model; /* a copy: a system may own its model, and is closed by then */
    const struct gpu *gpu;
    const char *allocator;
    struct warnings warnings;
    struct lmax lmax;
    struct err err; /* of a system for which no canvas fits */
};

struct question {
    struct asked asked;
    char names[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS];
    struct line lines[ASKED_MOST_SYSTEMS];
    size_t n;
    struct lmax_request request; /* of all systems */
    bool shows_parts;
};

/* ---- asking ---- */

static int read_share(const struct options *options, struct lmax_request *out, struct err *err) {
    const char *share = options_text(options, "prompt-share");
    const char *of = options_text(options, "share-of");
    out->prompt_share = 0.5;
    int share_of = of != NULL ? share_of_index(of) : SHARE_OF_CANVAS;
    if (share_of < 0) {
        return err_usage(err, "--share-of: '%s' is neither canvas nor output", of);
    }
    out->share_of = (enum share_of)share_of;
    bool is_number = share == NULL || num_f64(share, &out->prompt_share);
    double most = out->share_of == SHARE_OF_CANVAS ? 1 : 1e6;
    if (!is_number || out->prompt_share < 0 || out->prompt_share >= most) {
        return err_usage(err, "--prompt-share: '%s' is not a number from 0 to below %g", share,
                         most);
    }
    return 0;
}

static int read_before(const struct options *options, struct lmax_request *out, struct err *err) {
    struct words words = {.n = 0};
    const char *text = options_text(options, "before");
    int status = text != NULL ? words_split(text, &words, "--before", err) : 0;
    for (size_t i = 0; status == 0 && i < words.n; i++) {
        double share = 0;
        if (i == LMAX_MOST_BEFORE || !num_f64(words.word[i], &share) || share <= 0 || share > 16) {
            status = err_usage(err, "--before: '%s' is not one of at most %d shares up to 16",
                               words.word[i], LMAX_MOST_BEFORE);
        } else {
            out->before[out->n_before++] = share;
        }
    }
    return status;
}

static int read_memory(const struct options *options, struct lmax_request *out, struct err *err) {
    const char *text = options_text(options, "memory");
    double bytes = 0;
    if (text != NULL &&
        (!num_with_unit(text, "bytes", &bytes) || bytes < 1 || bytes > (double)STREAM_MAX_BYTES)) {
        return err_usage(err, "--memory: '%s' is not a size such as 24GiB, up to 1024GiB", text);
    }
    out->memory_bytes = (int64_t)bytes;
    return 0;
}

static int read_counts(const struct options *options, struct lmax_request *out, struct err *err) {
    uint64_t canvas = 0, steps = 0, multiple = 0, batch = 1;
    const char *masked = options_text(options, "masked");
    double share = 1;
    int status = options_whole(options, "canvas", 1, LMAX_MOST_TOKENS, &canvas, err);
    if (status == 0) {
        status = options_whole(options, "steps", 1, LMAX_MOST_STEPS, &steps, err);
    }
    if (status == 0) {
        status = options_whole(options, "multiple-of", 1, LMAX_MOST_TOKENS, &multiple, err);
    }
    if (status == 0) {
        status = options_whole(options, "batch", 1, LMAX_MOST_BATCH, &batch, err);
    }
    if (status == 0 && masked != NULL && (!num_f64(masked, &share) || share <= 0 || share > 1)) {
        status = err_usage(err, "--masked: '%s' is not a share above 0, up to 1", masked);
    }
    out->batch = (uint32_t)batch;
    out->decoded_share = 1 - share;
    out->canvas_tokens = (uint32_t)canvas;
    out->n_steps = (uint32_t)steps;
    out->granule_tokens = (uint32_t)multiple;
    return status;
}

static int read_question(const struct options *options, struct question *q, struct err *err) {
    const char *system = options_text(options, "system"),
               *systems = options_text(options, "systems");
    if (system != NULL && systems != NULL) {
        return err_usage(err, "--system is one of --systems: give one of the two options");
    }
    const char *asked = system != NULL ? system : systems != NULL ? systems : "mosaic";
    int status = asked_read(options, &q->asked, err);
    status = status == 0 ? asked_systems_file(options, &q->asked, err) : status;
    status = status == 0 ? asked_system_names(asked, q->names, &q->n, err) : status;
    status = status == 0 ? read_share(options, &q->request, err) : status;
    status = status == 0 ? read_memory(options, &q->request, err) : status;
    status = status == 0 ? read_before(options, &q->request, err) : status;
    status = status == 0 ? read_counts(options, &q->request, err) : status;
    q->shows_parts = options_has(options, "breakdown");
    if (!options_has(options, "gpu")) {
        q->asked.request.gpu = "rtx3090";
    }
    return status;
}

static void warn_of_unread(const struct question *q, const struct system *system,
                           struct line *line) {
    const struct system_in in = {system, "lmax"};
    const struct facts facts = {system_in_fact, &in};
    system_warn_of_unread(system, &facts, &line->warnings);
    stated_warn(q->asked.stated, q->asked.request.n_stated, &facts, &line->warnings);
}

static int find(const struct question *q, const char *name, struct line *line, struct err *err) {
    struct system_request wanted = compose_system_request(&q->asked.request);
    wanted.system = name;
    wanted.roofline = true;
    struct system *system = NULL;
    int status = system_open(&wanted, &system, err);
    if (status == 0) {
        struct lmax_request request = q->request;
        request.system = system;
        line->is_known = true;
        line->model = *system->model;
        line->gpu = system->gpu;
        line->allocator = step_allocator_words[system->settings.allocator];
        warn_of_unread(q, system, line);
        status = lmax_find(&request, &line->lmax, err);
    }
    system_close(system);
    return status;
}

/* A system for which nothing fits does not keep the others of a table from theirs. */
static int find_all(struct question *q, struct err *err) {
    for (size_t i = 0; i < q->n; i++) {
        struct line *line = &q->lines[i];
        snprintf(line->name, sizeof line->name, "%s", q->names[i]);
        int status = find(q, q->names[i], line, err);
        if (status != 0 && (q->n == 1 || err->kind != ERR_WORLD)) {
            return status;
        }
        if (status != 0) {
            line->err = *err;
            *err = (struct err){0};
        }
    }
    return 0;
}

/* ---- telling ---- */

static double ratio(const struct question *q, size_t i) {
    double first = q->lines[0].lmax.longest.canvas_tokens;
    double ours = q->lines[i].lmax.longest.canvas_tokens;
    return first > 0 && ours > 0 ? ours / first : (double)NAN;
}

static const char *bytes(char text[32], int64_t value) {
    return num_format_bytes(text, 32, (double)value);
}

/* "FFN 3, logits 40"; NULL where the step's tensors are not planned. */
static const char *chunks_of(char text[64], const struct step_memory *step) {
    if (step->chunks[CHUNK_FFN] == 0) {
        return NULL;
    }
    int used = step->chunks[CHUNK_ATTENTION] > 1
                   ? snprintf(text, 64, "attention %" PRIu32 ", ", step->chunks[CHUNK_ATTENTION])
                   : 0;
    snprintf(text + used, 64 - (size_t)used, "FFN %" PRIu32 ", logits %" PRIu32,
             step->chunks[CHUNK_FFN], step->chunks[CHUNK_LOGITS]);
    return text;
}

static struct table *table_of(const struct question *q) {
    struct table *table = table_open("system|allocator|canvas|ratio|output|bound|workspace|logits|"
                                     "PAR|in use|inflation_%|chunks");
    for (size_t i = 0; i < q->n; i++) {
        const struct step_memory *step = &q->lines[i].lmax.longest;
        char text[64];
        table_add(table, "s s", q->lines[i].name, q->lines[i].allocator);
        if (!step->fits) {
            table_add(table, "- - - - - - - - - -");
            continue;
        }
        table_add(table, "u %.2fx u s b b %.2f b %.1f s", step->canvas_tokens, ratio(q, i),
                  step->output_tokens, lmax_bound_names[q->lines[i].lmax.bound], step->held_bytes,
                  step->live.logits_bytes, step->par, step->live.peak_bytes,
                  100 * lmax_inflation(step), chunks_of(text, step));
    }
    return table;
}

static struct table *parts_of(const struct lmax *lmax) {
    const struct step_memory *longest = &lmax->longest, *beyond = &lmax->beyond;
    char fits[48], beyond_it[64];
    snprintf(fits, sizeof fits, "%" PRIu32 " tokens", longest->canvas_tokens);
    snprintf(beyond_it, sizeof beyond_it, "%" PRIu32 ": does not fit", beyond->canvas_tokens);
    struct table *table = table_open("memory of");
    table_column(table, fits);
    table_column(table, beyond_it);
    table_add(table, "s b b", "weights", lmax->weights_bytes, lmax->weights_bytes);
    table_add(table, "s b b", "reserve", lmax->reserve_bytes, lmax->reserve_bytes);
    table_add(table, "s b b", "cached rows", longest->cached_bytes, beyond->cached_bytes);
    for (int part = 0; part < N_LIVE_PARTS; part++) {
        char name[64];
        snprintf(name, sizeof name, "peak in %s", live_part_names[part]);
        table_add(table, "s b b", name, longest->live.part_bytes[part],
                  beyond->live.part_bytes[part]);
    }
    table_add(table, "s b b", "logits and their copies", longest->live.logits_bytes,
              beyond->live.logits_bytes);
    table_add(table, "s b b", "workspace, with gaps", longest->held_bytes, beyond->held_bytes);
    table_add(table, "s b b", "workspace, were there room", longest->unlimited_bytes,
              beyond->unlimited_bytes);
    return table;
}

static const char *batch_text(const struct question *q, char text[64]) {
    if (q->request.batch <= 1) {
        return "one request";
    }
    snprintf(text, 64, "each of %" PRIu32 " requests", q->request.batch);
    return text;
}

static void print_head(const struct question *q) {
    const struct line *line = &q->lines[0];
    char memory[32], batch[64];
    for (size_t i = 0; i < q->n && !line->is_known; i++) {
        line = &q->lines[i];
    }
    if (line->is_known) {
        int64_t of_gpu =
            q->request.memory_bytes > 0 ? q->request.memory_bytes : line->gpu->memory_bytes;
        printf("%s on %s (%s), %s, prompt %g of the %s\n\n", line->model.title, line->gpu->title,
               bytes(memory, of_gpu), batch_text(q, batch), q->request.prompt_share,
               q->request.share_of == SHARE_OF_CANVAS ? "canvas" : "output");
    }
}

static void print_one(const struct question *q) {
    const struct line *line = &q->lines[0];
    const struct lmax *l = &line->lmax;
    const struct step_memory *step = &l->longest;
    char a[32], b[32], c[32], chunks[64];
    printf("%-12s%" PRIu32 " tokens: %" PRIu32 " of prompt, %" PRIu32 " of output",
           q->request.canvas_tokens > 0 ? "canvas" : "L_max", step->canvas_tokens,
           step->canvas_tokens - step->output_tokens, step->output_tokens);
    if (step->canvas_tokens > line->model.max_positions) {
        printf(" (the model has %" PRIu32 " positions)", line->model.max_positions);
    }
    const int64_t taken = l->beyond.live.peak_bytes + l->beyond.cached_bytes;
    printf("\n%-12s%s; %" PRIu32 " tokens take %s of the %s available", "bound",
           lmax_bound_names[l->bound], l->beyond.canvas_tokens, bytes(a, taken),
           bytes(b, l->available_bytes));
    if (taken > l->available_bytes) {
        printf(": %s too much", bytes(a, taken - l->available_bytes));
    }
    printf("\n");
    printf("%-12sweights %s, reserve %s, workspace %s", "memory", bytes(a, l->weights_bytes),
           bytes(b, l->reserve_bytes), bytes(c, step->held_bytes));
    printf(" (logits and their copies %s)\n", bytes(a, step->live.logits_bytes));
    printf("%-12s%s; %.1f %% more held than in use%s\n", "allocator", line->allocator,
           100 * lmax_inflation(step), chunks_of(chunks, step) == NULL ? ", without a limit" : "");
    if (chunks_of(chunks, step) != NULL) {
        printf("%-12s%s\n", "chunks", chunks);
    }
    printf(
        "%-12s%.2f peak over average of the memory that the first step's operators have in use\n",
        "PAR", step->par);
}

static void print_people(const struct question *q) {
    print_head(q);
    if (q->n == 1) {
        print_one(q);
    }
    if (q->n > 1 || !table_is_text()) {
        struct table *table = table_of(q);
        table_print(table, stdout);
        table_close(table);
    }
    for (size_t i = 0; i < q->n; i++) {
        const struct line *line = &q->lines[i];
        if (line->err.text[0] != '\0') {
            printf("\n%s: %s\n", line->name, line->err.text);
        } else if (q->shows_parts) {
            struct table *table = parts_of(&line->lmax);
            printf("\n%s, the longest canvas and the next one that was tried\n", line->name);
            table_print(table, stdout);
            table_close(table);
            printf("a peak is the most that tensors take at once while operators of that kind run; "
                   "weights,\nreserve, cached rows and the workspace, which holds the highest "
                   "peak, add up\n");
        }
    }
    struct cautions cautions = {0};
    const char *systems[ASKED_MOST_SYSTEMS];
    for (size_t i = 0; i < q->n; i++) {
        systems[i] = q->lines[i].name;
    }
    released_print(systems, q->n, stdout);
    for (size_t i = 0; i < q->n; i++) {
        cautions_add(&cautions, q->lines[i].name, &q->lines[i].warnings);
    }
    cautions_print(&cautions, stdout);
}

static json_t *step_json(const struct step_memory *step) {
    json_t *parts = json_object();
    for (int part = 0; part < N_LIVE_PARTS; part++) {
        json_object_set_new(parts, live_part_names[part],
                            json_integer((json_int_t)step->live.part_bytes[part]));
    }
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "canvas_tokens",
        (json_int_t)step->canvas_tokens, "output_tokens", (json_int_t)step->output_tokens,
        "cached_bytes", (json_int_t)step->cached_bytes, "workspace_bytes",
        (json_int_t)step->held_bytes, "unlimited_bytes", (json_int_t)step->unlimited_bytes,
        "live_peak_bytes", (json_int_t)step->live.peak_bytes, "logits_bytes",
        (json_int_t)step->live.logits_bytes, "attention_chunks",
        (json_int_t)step->chunks[CHUNK_ATTENTION], "ffn_chunks",
        (json_int_t)step->chunks[CHUNK_FFN], "logit_chunks", (json_int_t)step->chunks[CHUNK_LOGITS],
        "par", step->par, "inflation", lmax_inflation(step), "part_peak_bytes", parts);
}

static json_t *line_json(const struct question *q, size_t i) {
    const struct line *line = &q->lines[i];
    const struct lmax *l = &line->lmax;
    if (line->err.text[0] != '\0') {
        return json_pack("{s:s, s:s}", "system", line->name, "no_canvas", line->err.text);
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "system",
        line->name, "model", line->model.name, "gpu", line->gpu->name, "allocator", line->allocator,
        "prompt_share", q->request.prompt_share, "share_of",
        q->request.share_of == SHARE_OF_CANVAS ? "canvas" : "output", "memory_bytes",
        (json_int_t)l->memory_bytes, "weights_bytes", (json_int_t)l->weights_bytes, "reserve_bytes",
        (json_int_t)l->reserve_bytes, "available_bytes", (json_int_t)l->available_bytes, "l_max",
        (json_int_t)l->longest.canvas_tokens, "bound", lmax_bound_names[l->bound], "longest",
        step_json(&l->longest), "beyond", step_json(&l->beyond));
    json_object_set_new(object, "warnings", caution_json(&line->warnings));
    double over_first = ratio(q, i);
    json_object_set_new(object, "ratio",
                        isfinite(over_first) ? json_real(over_first) : json_null());
    return object;
}

static int print_json(const struct question *q, struct err *err) {
    if (q->n == 1) {
        return cmd_print_json(line_json(q, 0), err);
    }
    json_t *array = json_array();
    for (size_t i = 0; i < q->n; i++) {
        json_array_append_new(array, line_json(q, i));
    }
    return cmd_print_json(array, err);
}

static int run(const struct options *options, struct err *err) {
    struct question *q = mem_zeroed(1, sizeof *q);
    int status = read_question(options, q, err);
    status = status == 0 ? find_all(q, err) : status;
    if (status == 0 && options_has(options, "json")) {
        status = print_json(q, err);
    } else if (status == 0) {
        print_people(q);
    }
    free(q);
    return status;
}

const struct command command_lmax = {
    .name = "plan lmax",
    .words = "",
    .doc = "the longest canvas that fits one request, and what stops a longer one",
    .more =
        "The first step counts, with every output position masked; canvases go beyond the\n"
        "model's positions too. allocator = torch, torch-expandable and torch-compile replay\n"
        "what eager or compiled PyTorch asks for in a whole run, the first step twice and then\n"
        "with fewer and fewer masked positions, through the models of `unmask plan allocator`.\n"
        "`bound` is what stops a longer canvas: the peak while attention, FFN or logits run,\n"
        "fragmentation (the tensors would fit, but not between the others), or nothing.",
    .options = options_of_lmax,
    .run = run,
};
