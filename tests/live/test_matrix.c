/* The invariants of live runs on the CPU over a matrix of configurations: what a request gets does
 * not depend on what runs beside it, on pages, scopes, mapped memory or preemption; a recorded
 * schedule is played to the token; a simulated one is carried out; memory is what was planned.
 *
 * A configuration is a line: a system, a model, its settings and the invariants that hold for it.
 */
#include <unistd.h>

#include "engine/device/mapping.h"
#include "tests/support/live.h"

/* ---- requests ---- */

/* Of unequal lengths, whose last blocks are shorter; together, and each alone in another order. */
static const struct arrival canvas_together[] = {
    {.id = 0, .prompt_tokens = 9, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 5, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 12, .output_tokens = 4},
};
/* Prompts that fill no block, some blocks and a bit, exactly two. */
static const struct arrival exact_together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 12},
    {.id = 3, .prompt_tokens = 34, .output_tokens = 5},
};
static const struct arrival focus_together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 13},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 16},
};
/* One of a single position. */
static const struct arrival small_together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 40},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 28},
    {.id = 2, .prompt_tokens = 32, .output_tokens = 33},
    {.id = 3, .prompt_tokens = 16, .output_tokens = 9},
};
static const struct arrival_set {
    const struct arrival *together;
    size_t n;
} sets[] = {{canvas_together, 3}, {exact_together, 4}, {focus_together, 3}, {small_together, 4}};
enum set { CANVAS, EXACT, FOCUS, SMALL };

/* The same, so far apart in virtual time that each is alone: the last ones first. */
static void set_apart(const struct arrival_set *set, struct arrival out[LIVE_REQUESTS]) {
    for (size_t i = 0; i < set->n; i++) {
        out[i] = set->together[(i + 2) % set->n];
        out[i].arrival_ns = (int64_t)i * INT64_C(1000000000000);
    }
}

/* ---- configurations ---- */

enum invariant {
    ALONE = 1 << 0,     /* co-batched requests and arrival change no token */
    MAPPED = 1 << 1,    /* nor does memory that is mapped as steps need it */
    WAYS = 1 << 2,      /* nor page size, scope or the chunks of a prefill */
    PREEMPTED = 1 << 3, /* requests that were preempted and computed anew get the same tokens */
    GOES_ON = 1 << 4,   /* or others, but all of them */
    PLAYED = 1 << 5,    /* the recorded schedule is played to the same tokens and memory */
    DECIDED = 1 << 6,   /* the same, with the decode trace that the run wrote */
    SIMULATED = 1 << 7, /* the simulation takes the live run's steps */
    CARRIED = 1 << 8,   /* a simulated schedule is carried out in its sizes */
    STOPPED = 1 << 9,   /* a run that is stopped gives every page back */
    IDLE = 1 << 10,     /* some members of steps are computed and discarded */
};

enum { MOST_SETTINGS = 14, SETTING_CHARS = 300 };

struct matrix_config {
    const char *system, *model;
    enum set set;
    unsigned invariants;
    int64_t narrow_pages; /* of the pool, where requests are to be preempted */
    char text[MOST_SETTINGS][SETTING_CHARS];
    size_t n_settings;
};

static char choosing[256], ruling[256]; /* plug-ins: decoders by choose and by rule */

static void add_setting(struct matrix_config *config, const char *key, const char *value) {
    ASSERT(config->n_settings < MOST_SETTINGS);
    snprintf(config->text[config->n_settings++], SETTING_CHARS, "%s=%s", key, value);
}

/* "key=value key=value"; NULL is fine. */
static void add_settings(struct matrix_config *config, const char *words) {
    while (words != NULL && *words != '\0') {
        size_t length = strcspn(words, " ");
        ASSERT(config->n_settings < MOST_SETTINGS);
        snprintf(config->text[config->n_settings++], SETTING_CHARS, "%.*s", (int)length, words);
        words += length + (words[length] == ' ');
    }
}

static struct system *open_config(const struct matrix_config *config, const char *more) {
    struct matrix_config all = *config; /* of two layers: as much is checked as with all */
    add_setting(&all, "layers", "2");
    const char *settings[MOST_SETTINGS + 1] = {NULL};
    add_settings(&all, more);
    for (size_t i = 0; i < all.n_settings; i++) {
        settings[i] = all.text[i];
    }
    return live_system_of(all.system, all.model, settings);
}

static const char *const scopes[] = {"queries", "generation", "block", "masked"};

/* Every cache under every scope and decoder, in pages and slabs. */
static const char *const canvas_caches[] = {
    "cache=none",
    "cache=prefix",
    "cache=dual",
    "cache=vicinity cache.prefix_look=3 cache.after_look=2 cache.warmup_steps=1",
    "cache=sparse-uniform",
    "cache=sparse-head",
};
static const struct {
    const char *model;
    size_t n_caches, n_scopes;
} canvas_models[] = {{"llada-tiny", 6, 4}, {"dream-tiny", 6, 1}, {"llada-moe-tiny", 5, 1}};

static bool canvas_config(size_t i, struct matrix_config *out) {
    size_t model = 0, cache, scope, decoder;
    for (;; model++) {
        size_t n = model < 3 ? canvas_models[model].n_caches * canvas_models[model].n_scopes *
                                   (model == 0 ? 3 : 2)
                             : 0;
        if (model == 3) {
            return false;
        }
        if (i < n) {
            break;
        }
        i -= n;
    }
    cache = i % canvas_models[model].n_caches;
    i /= canvas_models[model].n_caches;
    scope = (cache + i) % 4;
    decoder = i / canvas_models[model].n_scopes;
    *out = (struct matrix_config){
        "dllm-serve", canvas_models[model].model, CANVAS, ALONE, 0, {{0}}, 0};
    add_settings(out, "block_tokens=4 steps_per_block=4");
    add_settings(out, canvas_caches[cache]);
    add_setting(out, "logit_scope", scopes[scope]);
    add_setting(out, "kv", (i + scope) % 2 ? "slab" : "pages");
    add_setting(out, "decoder", decoder == 0 ? "fixed" : decoder == 1 ? "threshold" : choosing);
    if (decoder == 1) {
        add_setting(out, "decoder.threshold", "0.012");
    }
    out->invariants |= (model == 0 && decoder == 0 && scope >= 2 ? MAPPED : 0u) |
                       (model == 0 && scope == (cache + decoder) % 4 ? PLAYED : 0u);
    return true;
}

/* Every decoder, with numbers at which these random weights commit one position in some steps, more
 * in others. */
static const char *const decoders[] = {
    "decoder=fixed",
    "decoder=sequential",
    "decoder=threshold decoder.threshold=0.012",
    "decoder=threshold decoder.threshold=0.5 decoder.slack=0.0005",
    "decoder=factor decoder.factor=3",
    "decoder=hierarchical decoder.threshold=0.0125 decoder.low_threshold=0.0105",
    "decoder=credit decoder.threshold=0.018 decoder.alpha=0.7",
    "decoder=entropy-bounded decoder.bound=13.4",
    "decoder=maskgit-plus",
    "decoder=margin",
    "decoder=entropy",
    "decoder=maskgit-plus decoder.alg_temp=0.002 decoder.seed=3",
    "decoder=margin decoder.alg_temp=1000",
    "decoder=entropy decoder.alg_temp=0.05",
    "decoder=origin",
    "decoder=random decoder.seed=4",
    NULL, /* a plug-in's rule */
};

static bool decoder_config(size_t i, struct matrix_config *out) {
    if (i >= sizeof decoders / sizeof decoders[0]) {
        return false;
    }
    *out = (struct matrix_config){
        "dllm-serve", i % 3 == 0 ? "dream-tiny" : "llada-tiny", CANVAS, ALONE, 0, {{0}}, 0};
    add_settings(out, "block_tokens=6 steps_per_block=3 max_requests=4");
    add_setting(out, "cache", i % 2 ? "dual" : "prefix");
    add_setting(out, "logit_scope", scopes[(i + 2) % 4]);
    add_settings(out, decoders[i]);
    if (decoders[i] == NULL) {
        add_setting(out, "decoder", ruling);
        add_settings(out, "decoder.first=0.0135 decoder.last=0.0115 decoder.step=0.0005");
    }
    return true;
}

/* dKV-Cache at intervals at which a block has steps of every kind. Decoders that look at nothing
 * choose the simulation's positions. */
static bool dkv_config(size_t i, struct matrix_config *out) {
    static const char *const caches[] = {
        "cache=dkv-decode cache.interval_steps=4",
        "cache=dkv-prefill cache.prompt_interval_steps=4",
        "cache=dkv-pd cache.interval_steps=2 cache.prompt_interval_steps=6",
    };
    static const struct {
        const char *name, *more;
        unsigned invariants;
    } blind[] = {{"fixed", NULL, PLAYED},
                 {"threshold", "decoder.threshold=0.012", PLAYED},
                 {"random", NULL, SIMULATED},
                 {"sequential", NULL, 0},
                 {"origin", NULL, SIMULATED}};
    if (i >= 15) {
        return false;
    }
    size_t decoder = i / 3;
    *out = (struct matrix_config){"dllm-serve", "llada-tiny", CANVAS, ALONE | MAPPED, 0, {{0}}, 0};
    add_settings(out, "block_tokens=6 steps_per_block=6");
    add_settings(out, caches[i % 3]);
    add_setting(out, "decoder", blind[decoder].name);
    add_settings(out, blind[decoder].more);
    add_setting(out, "logit_scope", scopes[i % 4]);
    add_setting(out, "kv", i % 2 ? "slab" : "pages");
    out->invariants |= blind[decoder].invariants;
    return true;
}

/* Systems of block diffusion and autoregressive models. Logits of the fourth one's model are
 * shifted: passes before a block decide on its first token. */
static const char *const exact_systems[][3] = {
    {"sdar", "sdar-tiny", "block_tokens=4"},   {"lmdeploy", "sdar-tiny", "block_tokens=4"},
    {"sglang", "sdar-tiny", "block_tokens=4"}, {"sdar", "fast-dllm-v2-tiny", "block_tokens=4"},
    {"sdar", "llada2-tiny", "block_tokens=4"}, {"vllm-ar", "qwen2.5-tiny", "block_tokens=1"},
};

static bool exact_config(size_t i, struct matrix_config *out) {
    size_t system = i % 6, line = i / 6;
    static const struct {
        const char *settings;
        unsigned invariants;
    } lines[] = {
        {"decoder=fixed page_tokens=4", ALONE | MAPPED},
        {"decoder=threshold decoder.threshold=0.008 page_tokens=4", ALONE | WAYS},
        {"PLUGIN page_tokens=4", ALONE},
        {"decoder=fixed page_tokens=4 cache.ahead_blocks=0", ALONE | PREEMPTED},
        {"decoder=threshold decoder.threshold=0.008 page_tokens=4 cache.ahead_blocks=0",
         ALONE | PREEMPTED | STOPPED},
        {"decoder=fixed page_tokens=4 max_batched_tokens=32", SIMULATED | PLAYED},
        {"decoder=threshold decoder.threshold=0.008 page_tokens=4", PLAYED},
        {"decoder=threshold decoder.threshold=0.5 page_tokens=16", CARRIED},
    };
    if (line >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){exact_systems[system][0],
                                  exact_systems[system][1],
                                  EXACT,
                                  lines[line].invariants,
                                  20,
                                  {{0}},
                                  0};
    add_settings(out, "runtime=unmask prefix_caching=off");
    add_settings(out, exact_systems[system][2]);
    add_setting(out, "logit_scope", scopes[(system + line) % 4]);
    bool has_plugin = strncmp(lines[line].settings, "PLUGIN", 6) == 0;
    add_settings(out, lines[line].settings + (has_plugin ? 7 : 0));
    if (has_plugin) {
        add_setting(out, "decoder", choosing);
    }
    return true;
}

/* Caches that leave positions of a block out or evict some in the middle of a step. */
static bool focus_config(size_t i, struct matrix_config *out) {
    static const char *const systems[] = {"dc", "dc+", "focus"};
    static const struct {
        const char *settings;
        unsigned invariants;
    } lines[] = {
        {"decoder=fixed kv=pages", ALONE},
        {"decoder=threshold decoder.threshold=0.006", ALONE},
        {"PLUGIN kv=pages", ALONE},
        {"decoder=threshold decoder.threshold=0.006 steps_per_block=3 cache.ahead_blocks=0",
         ALONE | GOES_ON | DECIDED},
        {"decoder=fixed steps_per_block=3 cache.ahead_blocks=0", DECIDED},
        {"decoder=threshold decoder.threshold=0.7 cache.ahead_blocks=0", CARRIED},
    };
    size_t line = i / 3;
    if (line >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        systems[i % 3], "sdar-tiny", FOCUS, lines[line].invariants, 12, {{0}}, 0};
    add_settings(out, "block_tokens=8 page_tokens=4");
    bool has_plugin = strncmp(lines[line].settings, "PLUGIN", 6) == 0;
    add_settings(out, lines[line].settings + (has_plugin ? 7 : 0));
    if (has_plugin) {
        add_setting(out, "decoder", choosing);
    }
    if ((lines[line].invariants & (GOES_ON | DECIDED | CARRIED)) == 0) {
        add_setting(out, "logit_scope", scopes[(i + line) % 4]);
    }
    return true;
}

/* Fast-dLLM v2's small blocks. */
static bool small_config(size_t i, struct matrix_config *out) {
    static const struct {
        const char *settings;
        unsigned invariants;
    } lines[] = {
        {"decoder=fixed steps_per_block=3", ALONE},
        {"decoder=threshold decoder.threshold=0.0098", ALONE},
        {"decoder=small-blocks decoder.small_block=4 decoder.threshold=0.0098", ALONE | GOES_ON},
    };
    if (i >= 6) {
        return false;
    }
    *out = (struct matrix_config){
        "fast-dllm-v2", "fast-dllm-v2-tiny", SMALL, lines[i % 3].invariants, 26, {{0}}, 0};
    add_settings(out, "block_tokens=16 cache.small_block=4 page_tokens=4 scheduler=chunked");
    add_setting(out, "logit_scope", i < 3 ? "queries" : "masked");
    add_settings(out, lines[i % 3].settings);
    return true;
}

/* Blocks that are done wait for the slowest, computed and discarded. */
static bool idle_config(size_t i, struct matrix_config *out) {
    static const struct {
        const char *system, *model;
        unsigned invariants;
    } lines[] = {{"sglang", "sdar-tiny", IDLE | SIMULATED | PLAYED | PREEMPTED},
                 {"sglang", "fast-dllm-v2-tiny", IDLE | SIMULATED | PLAYED | PREEMPTED},
                 {"dc", "sdar-tiny", IDLE | SIMULATED | PREEMPTED},
                 {"focus", "sdar-tiny", IDLE | PREEMPTED}};
    if (i >= 4) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, EXACT, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, "scheduler=sglang scheduler.mode=lockstep block_tokens=4 decoder=fixed "
                      "page_tokens=4 cache.ahead_blocks=0 skip_ahead=off");
    return true;
}

/* dInfer's iteration smoothing. */
static bool smooth_config(size_t i, struct matrix_config *out) {
    static const struct {
        const char *system, *model;
        enum set set;
        unsigned invariants;
        const char *settings;
    } lines[] = {
        {"dllm-serve", "llada-tiny", CANVAS, ALONE, "cache=none decoder=fixed steps_per_block=3"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | PLAYED,
         "cache=dual decoder=threshold decoder.threshold=0.012"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE,
         "cache=prefix decoder=threshold decoder.threshold=0.009"},
        {"dllm-serve", "llada-moe-tiny", CANVAS, ALONE,
         "cache=vicinity decoder=hierarchical decoder.low_threshold=0.01"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | PLAYED,
         "cache=sparse-head decoder=credit decoder.threshold=0.018"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE,
         "cache=dual decoder=entropy-bounded logit_scope=masked"},
        {"dllm-serve", "llada-tiny", CANVAS, SIMULATED,
         "cache=vicinity decoder=fixed steps_per_block=3 unroll.maximum=2"},
        {"dllm-serve", "llada-tiny", CANVAS, CARRIED,
         "cache=vicinity decoder=hierarchical steps_per_block=3 unroll.maximum=2"},
        {"sdar", "sdar-tiny", EXACT, PLAYED,
         "runtime=unmask prefix_caching=off page_tokens=4 decoder=threshold "
         "decoder.threshold=0.008"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 0, {{0}}, 0};
    add_settings(out, "iteration=smooth iteration.threshold_decay=0.2");
    add_settings(out, lines[i].set == CANVAS ? "block_tokens=6 max_requests=4" : "block_tokens=4");
    if (i != 5 && lines[i].set == CANVAS) {
        add_setting(out, "logit_scope", "block");
    }
    add_settings(out, lines[i].settings);
    return true;
}

/* Drawn confidences are far above real ones, so that the threshold itself would decide less. */
static bool carried_config(size_t i, struct matrix_config *out) {
    *out = (struct matrix_config){"dllm-serve", "llada-tiny", CANVAS, CARRIED, 0, {{0}}, 0};
    add_settings(out, "cache=dual decoder=threshold decoder.threshold=0.5 block_tokens=4");
    return i == 0;
}

static bool (*const families[])(size_t i, struct matrix_config *out) = {
    canvas_config, decoder_config, dkv_config,    exact_config,   focus_config,
    small_config,  idle_config,    smooth_config, carried_config,
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* ---- invariants ---- */

/* A configuration under test: its run of all requests together, beside which others are held. */
struct subject {
    const struct matrix_config *config;
    const struct arrival_set *set;
    struct system *system;
    struct served *base;
};

/* Everybody has an output, memory was what was planned, and nobody holds any of it. */
static void check_served(const struct subject *s, const struct system *system,
                         const struct served *served) {
    check_outputs(served, system, s->set->together, s->set->n);
    check_used_as_planned(served, s->set->n);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
}

static struct served *serve_set(const struct subject *s, struct system *system) {
    struct served *served = serve_live(system, s->set->together, s->set->n);
    check_served(s, system, served);
    return served;
}

static void check_alone(const struct subject *s) {
    struct arrival apart[LIVE_REQUESTS];
    set_apart(s->set, apart);
    struct served *alone = serve_live(s->system, apart, s->set->n);
    check_served(s, s->system, alone);
    same_tokens(s->base, alone, s->set->n);
    if ((s->config->invariants & IDLE) != 0) {
        const struct loop_result *together = &s->base->result, *single = &alone->result;
        ck_assert_int_gt(together->sym[SYM_REQUESTS], (int64_t)together->request_steps);
        ck_assert_int_eq(single->sym[SYM_REQUESTS], (int64_t)single->request_steps);
    } else {
        ck_assert_uint_lt(s->base->n_steps, alone->n_steps);
    }
    free(alone);
}

static void check_mapped(const struct subject *s) {
    s->system->runtime.vmm = true;
    struct served *mapped = serve_set(s, s->system);
    s->system->runtime.vmm = false;
    ck_assert(!s->base->memory.is_mapped && mapped->memory.is_mapped);
    const struct engine_memory *memory = &mapped->memory;
    ck_assert_int_gt(memory->unmapped_bytes, 0);
    ck_assert_int_ge(memory->mapped_peak_bytes, mapped->activation_bytes + mapped->pool_bytes);
    ck_assert_int_le(memory->mapped_peak_bytes, 4 * MAPPING_HANDLE_BYTES);
    ck_assert_int_le(memory->mapping_calls, 1 + 3 * 4); /* which do not grow with the steps */
    same_tokens(s->base, mapped, s->set->n);
    ck_assert_uint_eq(s->base->n_steps, mapped->n_steps);
    ck_assert_mem_eq(s->base->commits, mapped->commits, sizeof mapped->commits);
    free(mapped);
}

static void check_ways(const struct subject *s) {
    static const char *const ways[] = {
        "page_tokens=64 logit_scope=queries",
        "page_tokens=16 logit_scope=masked max_batched_tokens=24",
        "page_tokens=256 logit_scope=generation max_batched_tokens=16",
        "page_tokens=4 logit_scope=block",
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct system *system = open_config(s->config, ways[i]);
        struct served *served = serve_set(s, system);
        same_tokens(s->base, served, s->set->n);
        free(served);
        system_close(system);
    }
}

/* Room for all at first, and for the longest alone; not for all to the end. */
static struct system *open_narrow(const struct subject *s) {
    struct system *system = open_config(s->config, NULL);
    system->budget.pool_bytes = s->config->narrow_pages * system->budget.unit_bytes;
    return system;
}

static void check_preempted(const struct subject *s) {
    struct system *narrow = open_narrow(s);
    struct served *pressed = serve_set(s, narrow);
    ck_assert_uint_eq(s->base->n_preempted, 0);
    ck_assert_uint_gt(pressed->n_preempted, 0);
    if ((s->config->invariants & PREEMPTED) != 0) {
        same_tokens(s->base, pressed, s->set->n);
    }
    free(pressed);
    system_close(narrow);
}

/* At any step: of running, waiting and preempted requests alike. */
static void check_stopped(const struct subject *s) {
    uint32_t n_preempted = 0;
    for (size_t stop = 1; stop < 40; stop += 4) {
        struct system *system = open_narrow(s);
        struct serving serving = {
            .system = system, .arrivals = s->set->together, .n = s->set->n, .stop_after = stop};
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        const struct loop_result *result = &served->result;
        ck_assert(result->interrupted || result->completed == s->set->n);
        ck_assert_uint_eq(result->completed + result->rejected, result->arrived);
        ck_assert_uint_eq(served->n_outputs, result->completed);
        ck_assert_int_gt(served->pool_bytes, 0);
        ck_assert_int_eq(served->pool_left_bytes, 0);
        n_preempted += served->n_preempted;
        free(served);
        system_close(system);
    }
    ck_assert_uint_gt(n_preempted, 0);
}

/* The operators of every second step are measured one by one, which changes nothing. */
static void check_accuracy(const struct system *system, const struct accuracy *accuracy,
                           size_t n_steps) {
    double by_operator_ns = 0, whole_ns = 0;
    ck_assert_uint_eq(accuracy->n_steps, n_steps);
    ck_assert_uint_eq(accuracy->n_by_operator, (n_steps + 1) / 2);
    for (uint32_t op = 0; op < system->graph.n_ops; op++) {
        by_operator_ns += accuracy->ops[op].measured_ns;
    }
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        ck_assert(accuracy->steps[i].measured_device_ns > 0);
        ck_assert(accuracy->steps[i].measured_wall_ns >= accuracy->steps[i].measured_device_ns);
        ck_assert(accuracy->steps[i].predicted_wall_ns > 0);
        whole_ns += i % 2 == 0 ? accuracy->steps[i].measured_device_ns : 0;
    }
    ck_assert_double_eq_tol(by_operator_ns / whole_ns, 1, 1e-9);
}

/* A live run's passes, written and read again. */
static struct decode_trace *trace_of(const struct decode_log *log) {
    char path[] = "/tmp/unmask-matrix-XXXXXX";
    struct decode_trace *trace = NULL;
    struct err err = {0};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    ck_assert(decode_log_write(log, "", file) && fclose(file) == 0);
    ck_assert_msg(decode_trace_read(path, &trace, &err) == 0, "%s", err.text);
    unlink(path);
    return trace;
}

static void check_played_on(const struct subject *s, struct system *system) {
    bool decides = (s->config->invariants & DECIDED) != 0;
    struct serving serving = {.system = system,
                              .arrivals = s->set->together,
                              .n = s->set->n,
                              .passes = decides ? decode_log_open(8) : NULL};
    struct served *live = serve(&serving);
    ck_assert_msg(live->err.kind == ERR_NONE, "%s", live->err.text);
    struct decode_trace *trace = decides ? trace_of(serving.passes) : NULL;
    struct decode_source source = decides ? decode_trace_source(trace) : (struct decode_source){0};
    struct accuracy accuracy;
    accuracy_init(&accuracy, system, live->n_steps, 2);
    if (decides) {
        decode_log_close(serving.passes);
    }
    serving = (struct serving){.system = system,
                               .arrivals = s->set->together,
                               .n = s->set->n,
                               .played = live,
                               .accuracy = &accuracy,
                               .decode = decides ? &source : NULL};
    struct served *played = serve(&serving);
    ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
    check_served(s, system, played);
    same_tokens(live, played, s->set->n);
    ck_assert_uint_eq(played->n_steps, live->n_steps);
    ck_assert_mem_eq(played->commits, live->commits, sizeof live->commits);
    ck_assert_mem_eq(played->result.sym, live->result.sym, sizeof live->result.sym);
    ck_assert_int_eq(played->result.end_ns, live->result.end_ns);
    ck_assert_int_eq(played->planned_activation_bytes, live->activation_bytes);
    ck_assert_int_eq(played->result.kv_peak_bytes, live->pool_bytes);
    check_accuracy(system, &accuracy, live->n_steps);
    accuracy_fini(&accuracy);
    decode_trace_close(trace);
    free(played);
    free(live);
}

static void check_played(const struct subject *s) {
    check_played_on(s, s->system);
    if (s->config->narrow_pages > 0) {
        struct system *narrow = open_narrow(s);
        check_played_on(s, narrow);
        system_close(narrow);
    }
}

static struct served *simulate(const struct subject *s, struct system *system) {
    struct serving serving = {
        .system = system, .arrivals = s->set->together, .n = s->set->n, .simulates = true};
    struct served *simulated = serve(&serving);
    ck_assert_msg(simulated->err.kind == ERR_NONE, "%s", simulated->err.text);
    return simulated;
}

/* The same submissions of the same requests, which run and commit as much, in the same memory. */
static void check_simulated_on(const struct subject *s, struct system *system) {
    struct served *simulated = simulate(s, system), *live = serve_set(s, system);
    ck_assert_uint_eq(simulated->n_steps, live->n_steps);
    for (size_t i = 0; i < live->n_steps; i++) {
        ck_assert_uint_eq(simulated->steps[i].steps, live->steps[i].steps);
        ck_assert_uint_eq(simulated->steps[i].n_requests, live->steps[i].n_requests);
    }
    ck_assert_mem_eq(simulated->ids, live->ids, sizeof live->ids);
    ck_assert_mem_eq(simulated->commits, live->commits, sizeof live->commits);
    ck_assert_mem_eq(simulated->result.sym, live->result.sym, sizeof live->result.sym);
    ck_assert_uint_eq(simulated->n_preempted, live->n_preempted);
    ck_assert_int_eq(simulated->result.kv_peak_bytes, live->pool_bytes);
    ck_assert_int_eq(simulated->planned_activation_bytes, live->activation_bytes);
    free(simulated);
    free(live);
}

static void check_simulated(const struct subject *s) {
    check_simulated_on(s, s->system);
    if (s->config->narrow_pages > 0) {
        struct system *narrow = open_narrow(s);
        check_simulated_on(s, narrow);
        system_close(narrow);
    }
}

/* Simulated decisions are not those of the model: as many positions run, stay and are committed as
 * they say, and no mask is left. */
static void check_carried_on(const struct subject *s, struct system *system) {
    struct served *simulated = simulate(s, system);
    struct accuracy accuracy;
    uint32_t most = 0;
    for (size_t i = 0; i < simulated->n_steps; i++) {
        most = simulated->commits[i][0] > most ? simulated->commits[i][0] : most;
    }
    ck_assert(most > 1 || system->settings.block_tokens == 1);
    accuracy_init(&accuracy, system, simulated->n_steps, 3);
    struct serving serving = {.system = system,
                              .arrivals = s->set->together,
                              .n = s->set->n,
                              .played = simulated,
                              .accuracy = &accuracy};
    struct served *played = serve(&serving);
    ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
    ck_assert_uint_eq(played->n_outputs, s->set->n);
    check_outputs(played, system, s->set->together, s->set->n);
    for (uint32_t id = 0; id < s->set->n; id++) {
        for (uint32_t t = 0; t < played->n_tokens[id]; t++) {
            ck_assert_int_ne(played->tokens[id][t], (int)system->model->mask_token);
        }
    }
    ck_assert_uint_eq(accuracy.n_steps, simulated->n_steps);
    ck_assert_uint_eq(accuracy.n_by_operator, (simulated->n_steps + 2) / 3);
    accuracy_fini(&accuracy);
    free(simulated);
    free(played);
}

static void check_carried(const struct subject *s) {
    check_carried_on(s, s->system);
    if (s->config->narrow_pages > 0) {
        struct system *narrow = open_narrow(s);
        check_carried_on(s, narrow);
        system_close(narrow);
    }
}

static const struct {
    unsigned invariants;
    void (*check)(const struct subject *subject);
} checks[] = {
    {ALONE | IDLE, check_alone},  {MAPPED, check_mapped},
    {WAYS, check_ways},           {PREEMPTED | GOES_ON, check_preempted},
    {STOPPED, check_stopped},     {PLAYED | DECIDED, check_played},
    {SIMULATED, check_simulated}, {CARRIED, check_carried},
};

/* Configuration `i` of all families; false past the last one. */
static bool find_config(size_t i, struct matrix_config *out) {
    for (int family = 0; family < N_FAMILIES; family++) {
        size_t n = 0;
        while (families[family](n, out)) {
            if (i == n) {
                return true;
            }
            n++;
        }
        i -= n;
    }
    return false;
}

START_TEST(a_configuration_keeps_its_invariants) {
    struct matrix_config config;
    ck_assert(find_config((size_t)_i, &config));
    struct subject s = {&config, &sets[config.set], open_config(&config, NULL), NULL};
    s.base = serve_set(&s, s.system);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if ((config.invariants & checks[i].invariants) != 0) {
            checks[i].check(&s);
        }
    }
    free(s.base);
    system_close(s.system);
}
END_TEST

/* The configurations by the numbers that a failure names. */
static void print_configs(void) {
    struct matrix_config config;
    for (size_t i = 0; find_config(i, &config); i++) {
        printf("%zu: %s %s", i, config.system, config.model);
        for (size_t k = 0; k < config.n_settings; k++) {
            printf(" %s", config.text[k]);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    const char *folder = getenv("UNMASK_PLUGINS");
    folder = folder != NULL ? folder : "build/plugins";
    snprintf(choosing, sizeof choosing, "%s/template_decoder.so", folder);
    snprintf(ruling, sizeof ruling, "%s/template_rule.so", folder);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        print_configs();
        return EXIT_SUCCESS;
    }
    struct matrix_config config;
    int n = 0;
    while (find_config((size_t)n, &config)) {
        n++;
    }
    Suite *suite = suite_create("matrix of live runs (--list)");
    TCase *tcase = tcase_create("matrix");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_configuration_keeps_its_invariants, 0, n);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
