/* How fast the planners are, and how low their plans end: steps of three models, small random
 * problems, and MiniMalloc's, for which a plan within their capacity is low enough. Then how fast
 * chunks are found.
 *
 * Medians of several runs, with the gap between the plan's peak and the lower bound; a '!' says
 * that the search ended at its budget of nodes. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/memory/instance.h"
#include "sim/memory/placement.h"
#include "sim/step/builder.h"
#include "sim/system/lmax.h"
#include "tests/support/make.h"

enum { RUNS = 5, MOST_PLANNERS = 8 };

/* A run repeats what is faster than this until it has passed. */
enum { RUN_NS = 1000000 };

struct answer {
    double ns; /* of one plan */
    int64_t peak_bytes, lower_bound_bytes;
    bool stopped;
};

static void stop_on(const struct err *err) {
    if (err->kind != ERR_NONE) {
        fprintf(stderr, "bench: %s\n", err->text);
        exit((int)err->kind);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `plan_once(state, planner, answer)` plans; its time is measured. */
static struct answer measure(void (*plan_once)(const void *state, const struct planner *planner,
                                               struct answer *out),
                             const void *state, const struct planner *planner) {
    struct answer answer = {0};
    double ns[RUNS];
    int n_runs = 0;
    int64_t total_ns = 0;
    /* A second is enough, of whatever takes so long. */
    while (n_runs < RUNS && (n_runs == 0 || total_ns < 1000 * (int64_t)RUN_NS)) {
        int64_t start_ns = monotonic_ns(), spent_ns;
        uint64_t n = 0;
        do {
            plan_once(state, planner, &answer);
            n++;
            spent_ns = monotonic_ns() - start_ns;
        } while (spent_ns < RUN_NS);
        ns[n_runs++] = (double)spent_ns / (double)n;
        total_ns += spent_ns;
    }
    qsort(ns, (size_t)n_runs, sizeof ns[0], ascending);
    answer.ns = ns[n_runs / 2];
    return answer;
}

struct step {
    struct graph graph;
    struct step_shape shape;
};

static void plan_step(const void *state, const struct planner *planner, struct answer *out) {
    const struct step *step = state;
    const struct chunk_rows chunks = {.of[CHUNK_LOGITS] = 512};
    struct placement p;
    placement_make(planner, &step->graph, &step->shape, chunks, &p);
    *out = (struct answer){
        .peak_bytes = p.peak_bytes, .lower_bound_bytes = p.lower_bound_bytes, .stopped = p.stopped};
}

static void plan_buffers(const void *state, const struct planner *planner, struct answer *out) {
    const struct plan_request *request = state;
    static int64_t offset_bytes[PACKING_MAX_BUFFERS];
    struct plan plan = {.offset_bytes = offset_bytes};
    struct err err = {0};
    planner_solve(planner, request, NULL, &plan, &err);
    stop_on(&err);
    *out = (struct answer){.peak_bytes = plan.peak_bytes,
                           .lower_bound_bytes = plan.lower_bound_bytes,
                           .stopped = plan.stopped};
}

static const struct planner *planners[MOST_PLANNERS];
static size_t n_planners;

static void print_head(void) {
    printf("%-22s %11s", "", "lower bound");
    for (size_t i = 0; i < n_planners; i++) {
        printf(" %17s", planners[i]->name);
    }
    printf("\n");
}

static void print_row(const char *title,
                      void (*plan_once)(const void *state, const struct planner *planner,
                                        struct answer *out),
                      const void *state) {
    for (size_t i = 0; i < n_planners; i++) {
        char text[32];
        struct answer a = measure(plan_once, state, planners[i]);
        if (i == 0) {
            printf("%-22s %11s", title,
                   num_format_bytes(text, sizeof text, (double)a.lower_bound_bytes));
        }
        printf(" %8s %6.1f%%%s", num_format_ns(text, sizeof text, a.ns),
               100 * ((double)a.peak_bytes / (double)a.lower_bound_bytes - 1),
               a.stopped ? "!" : " ");
        fflush(stdout);
    }
    printf("\n");
}

/* A refresh step of four requests beside a reuse step of as many, logits in chunks. */
static void plan_model(const char *model_name) {
    struct err err = {0};
    const struct model *model = model_find(model_name, &err);
    stop_on(&err);
    struct step step;
    struct graph_options options = {
        .fused = true, .selects = true, .logits_bytes = 2, .gathers_cache = true};
    struct span refresh =
        MAKE(struct span, .phase = PHASE_REFRESH, .queries = 768, .first_queries = 768,
             .logit_rows = 256, .select_rows = 768, .pack_rows = 384);
    struct span reuse = {
        .phase = PHASE_REUSE, .queries = 32, .first_queries = 32, .context = 768, .logit_rows = 32};
    graph_build(&step.graph, model, &options);
    shape_clear(&step.shape);
    for (int i = 0; i < 4; i++) {
        shape_add(step.shape.sym, &refresh, 1);
        shape_add(step.shape.sym, &reuse, 1);
    }
    char title[64];
    snprintf(title, sizeof title, "%s, a step", model_name);
    print_row(title, plan_step, &step);
}

/* A file of buffers into the capacity that its name ends with, as MiniMalloc's do. */
static void plan_file(const char *path) {
    struct err err = {0};
    struct instance instance;
    instance_read(path, &instance, &err);
    stop_on(&err);
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    const char *dot = strchr(name, '.');
    struct plan_request request = {.packing = &instance.packing,
                                   .capacity_bytes = dot == NULL ? 0 : atoll(dot + 1)};
    char title[64];
    snprintf(title, sizeof title, "%.*s, %u buffers", dot == NULL ? 32 : (int)(dot - name), name,
             instance.packing.n_buffers);
    print_row(title, plan_buffers, &request);
    instance_fini(&instance);
}

/* tests/golden/instances/minimalloc.tar.gz, unpacked by `make bench`. */
static void plan_files(void) {
    const char *asked = getenv("UNMASK_INSTANCES"), *folder = asked ? asked : "build/minimalloc";
    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.csv", folder);
    if (glob(pattern, 0, NULL, &found) != 0) {
        fprintf(stderr, "bench: no instances in %s\n", folder);
        exit(1);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        plan_file(found.gl_pathv[i]);
    }
    globfree(&found);
}

static void make_random(uint64_t seed, uint32_t n_buffers, struct packing_buffer *out) {
    struct rng rng = rng_stream(seed, "bench");
    for (uint32_t i = 0; i < n_buffers; i++) {
        int64_t first = (int64_t)(rng_next(&rng) % n_buffers);
        out[i] = MAKE(struct packing_buffer, .first_time = first,
                      .last_time = first + (int64_t)(rng_next(&rng) % 8),
                      .bytes = 1 + (int64_t)(rng_next(&rng) % 64), .align_bytes = 1);
    }
}

/* The first random problem of this size whose lower bound the portfolio does not reach, so that the
 * optimum has to be searched for. */
static void plan_random(uint32_t n_buffers) {
    enum { MOST_BUFFERS = 32 };
    struct packing_buffer buffers[MOST_BUFFERS];
    ASSERT(n_buffers <= MOST_BUFFERS);
    const struct packing packing = {buffers, n_buffers};
    const struct plan_request request = {.packing = &packing};
    struct err err = {0};
    const struct planner *portfolio = planner_find("portfolio", &err);
    stop_on(&err);
    struct answer greedy;
    uint64_t seed = 0;
    do {
        make_random(++seed, n_buffers, buffers);
        plan_buffers(&request, portfolio, &greedy);
    } while (greedy.peak_bytes == greedy.lower_bound_bytes);
    char title[64];
    snprintf(title, sizeof title, "random, %u buffers", n_buffers);
    print_row(title, plan_buffers, &request);
}

struct search {
    struct system *system;
    uint32_t canvas_tokens;
    int64_t available_bytes;
};

static void search_chunks(const void *state, const struct planner *planner, struct answer *out) {
    const struct search *search = state;
    struct lmax_request request = {.system = search->system, .prompt_share = 0.5};
    struct step_memory step;
    (void)planner; /* the system's own */
    lmax_step(&request, search->canvas_tokens, search->available_bytes, &step);
    *out = (struct answer){.peak_bytes = step.held_bytes};
}

/* One step of `tokens`, or of the longest canvas when 0; `tokens` is what was taken. */
static double time_of_search(const char *name, const char *model, uint32_t *tokens) {
    struct err err = {0};
    struct lmax lmax;
    struct search search;
    struct system_request wanted = {
        .system = name, .model = model, .gpu = "rtx3090", .roofline = true};
    system_open(&wanted, &search.system, &err);
    stop_on(&err);
    struct lmax_request request = {.system = search.system, .prompt_share = 0.5};
    lmax_find(&request, &lmax, &err);
    stop_on(&err);
    *tokens = *tokens == 0 ? lmax.longest.canvas_tokens : *tokens;
    search.canvas_tokens = *tokens;
    search.available_bytes = lmax.available_bytes;
    double ns = measure(search_chunks, &search, NULL).ns;
    system_close(search.system);
    return ns;
}

/* Chunks and plan of one step: Mosaic's Figures 17 and 18 on this machine. The canvas is the
 * longest with all combinations tried, which both searches can do. */
static void search_model(const char *model) {
    char texts[3][32];
    uint32_t tokens = 0;
    double all_ns = time_of_search("mosaic-bf", model, &tokens);
    double ns = time_of_search("mosaic", model, &tokens);
    double optimal_ns = time_of_search("mosaic-ilp", model, &tokens);
    printf("%-22s %15u %11s %11s %6.1f %% %11s %6.1f %%\n", model, tokens,
           num_format_ns(texts[0], sizeof texts[0], ns),
           num_format_ns(texts[1], sizeof texts[1], all_ns), 100 * ns / all_ns,
           num_format_ns(texts[2], sizeof texts[2], optimal_ns), 100 * ns / optimal_ns);
}

static void search_models(void) {
    printf(
        "\nchunks and plan of one step, half masked, on an RTX 3090: bottleneck search and first "
        "fit\n%-22s %15s %11s %11s %8s %11s %8s\n",
        "", "tokens", "ours", "all chunks", "ours/it", "exact plan", "ours/it");
    search_model("llada-8b");
    search_model("dream-7b");
    search_model("llada-moe");
}

/* With arguments: the planners on these files. */
int main(int argc, char **argv) {
    for (size_t i = 0; i < planner_table_size; i++) {
        planners[n_planners++] = &planner_table[i];
    }
    printf("planning, one thread: median of %d runs, gap of the peak to the lower bound\n", RUNS);
    print_head();
    for (int i = 1; i < argc; i++) {
        plan_file(argv[i]);
    }
    if (argc > 1) {
        return 0;
    }
    plan_model("llada-8b");
    plan_model("dream-7b");
    plan_model("llada-moe");
    plan_random(8);
    plan_random(12);
    plan_random(16);
    plan_files();
    search_models();
    return 0;
}
