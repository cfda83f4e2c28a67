/* The configurations of the matrix of live runs: a system, a model, its settings, and which
 * invariants hold for it. */
#ifndef UNMASK_TESTS_SUPPORT_MATRIX_H
#define UNMASK_TESTS_SUPPORT_MATRIX_H

#include "tests/support/live.h"

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
static inline void set_apart(const struct arrival_set *set, struct arrival out[LIVE_REQUESTS]) {
    for (size_t i = 0; i < set->n; i++) {
        out[i] = set->together[(i + 2) % set->n];
        out[i].arrival_ns = (int64_t)i * INT64_C(1000000000000);
    }
}

enum invariant {
    ALONE = 1 << 0,     /* co-batched requests and arrival change no token */
    MAPPED = 1 << 1,    /* nor does memory that is mapped as steps need it */
    WAYS = 1 << 2,      /* nor page size, scope or the chunks of a prefill */
    PREEMPTED = 1 << 3, /* requests that were preempted and computed anew get the same tokens */
    GOES_ON = 1 << 4,   /* or others, but all of them: delayed caches keep what a token's pass gave
                           while others of its block were masked, a prefill sees all of them */
    PLAYED = 1 << 5,    /* the recorded schedule is played to the same tokens and memory */
    SIMULATED = 1 << 7, /* the simulation takes the live run's steps */
    CARRIED = 1 << 8,   /* a simulated schedule is carried out in its sizes */
    STOPPED = 1 << 9,   /* a run that is stopped gives every page back */
    IDLE = 1 << 10,     /* some members of steps are computed and discarded */
};

enum { MOST_SETTINGS = 15, SETTING_CHARS = 300 };

struct matrix_config {
    const char *system, *model;
    enum set set;
    unsigned invariants;
    int64_t narrow_pages; /* of the pool, where requests are to be preempted */
    char text[MOST_SETTINGS][SETTING_CHARS];
    size_t n_settings;
};

static inline void add_setting(struct matrix_config *config, const char *key, const char *value) {
    ASSERT(config->n_settings < MOST_SETTINGS);
    snprintf(config->text[config->n_settings++], SETTING_CHARS, "%s=%s", key, value);
}

/* "key=value key=value"; NULL is fine. */
static inline void add_settings(struct matrix_config *config, const char *words) {
    while (words != NULL && *words != '\0') {
        size_t length = strcspn(words, " ");
        ASSERT(config->n_settings < MOST_SETTINGS);
        snprintf(config->text[config->n_settings++], SETTING_CHARS, "%.*s", (int)length, words);
        words += length + (words[length] == ' ');
    }
}

static inline struct system *open_config(const struct matrix_config *config, const char *more) {
    struct matrix_config all = *config; /* of two layers: as much is checked as with all */
    bool has_layers = false;
    for (size_t i = 0; i < all.n_settings; i++) {
        has_layers |= strncmp(all.text[i], "layers=", 7) == 0;
    }
    if (!has_layers) {
        add_setting(&all, "layers", "2");
    }
    add_setting(&all, "context_tokens", "128"); /* rotations are worked out for each run anew */
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

static inline bool canvas_config(size_t i, struct matrix_config *out) {
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
    add_setting(out, "decoder",
                decoder == 0   ? "fixed"
                : decoder == 1 ? "threshold"
                               : suite_plugin("template_decoder"));
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

static inline bool decoder_config(size_t i, struct matrix_config *out) {
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
        add_setting(out, "decoder", suite_plugin("template_rule"));
        add_settings(out, "decoder.first=0.0135 decoder.last=0.0115 decoder.step=0.0005");
    }
    return true;
}

/* dKV-Cache, renewal paced by tokens, and other caches renewed within a block, at intervals at
 * which a block has steps of every kind. Decoders that look at nothing choose the simulation's
 * positions. */
static inline bool dkv_config(size_t i, struct matrix_config *out) {
    static const char *const caches[] = {
        "cache=dkv-decode cache.interval_steps=4",
        "cache=dkv-prefill cache.prompt_interval_steps=4",
        "cache=dkv-pd cache.interval_steps=2 cache.prompt_interval_steps=6",
        "cache=paced cache.renew_tokens=4",
        "cache=entropy cache.bound_nats=6.465 cache.recent_tokens=3",
        "cache=dual cache.interval_steps=2",
        "cache=sparse-head cache.interval_steps=4",
    };
    enum { ENTROPY = 4, N_CACHES = 7 };
    static const struct {
        const char *name, *more;
        unsigned invariants;
    } blind[] = {{"fixed", NULL, PLAYED},
                 {"threshold", "decoder.threshold=0.012", PLAYED},
                 {"random", NULL, SIMULATED},
                 {"sequential", NULL, 0},
                 {"origin", NULL, SIMULATED}};
    static const char *const schedulers[] = {"phase-multiplexed", "look-ahead", "shortest-left",
                                             "least-slack"};
    if (i >= 5 * (size_t)N_CACHES) {
        return false;
    }
    size_t decoder = i / N_CACHES, cache = i % N_CACHES, turn = 4 * decoder + cache + decoder;
    *out = (struct matrix_config){"dllm-serve", "llada-tiny", CANVAS, ALONE | MAPPED, 0, {{0}}, 0};
    add_settings(out, "block_tokens=6 steps_per_block=6");
    add_settings(out, caches[cache]);
    add_setting(out, "scheduler", schedulers[turn % 4]);
    add_setting(out, "decoder", blind[decoder].name);
    add_settings(out, blind[decoder].more);
    add_setting(out, "logit_scope", scopes[turn % 4]);
    add_setting(out, "kv", turn / 2 % 2 ? "slab" : "pages");
    /* Entropies that are drawn are not those of a model's logits. */
    out->invariants |= blind[decoder].invariants & (cache == ENTROPY ? ~(unsigned)SIMULATED : ~0U);
    return true;
}

/* Systems of block diffusion and autoregressive models. Logits of the fourth one's model are
 * shifted: passes before a block decide on its first token. */
static const char *const exact_systems[][3] = {
    {"sdar", "sdar-tiny", "block_tokens=4"},   {"lmdeploy", "sdar-tiny", "block_tokens=4"},
    {"sglang", "sdar-tiny", "block_tokens=4"}, {"sdar", "fast-dllm-v2-tiny", "block_tokens=4"},
    {"sdar", "llada2-tiny", "block_tokens=4"}, {"vllm-ar", "qwen2.5-tiny", "block_tokens=1"},
};

static inline bool exact_config(size_t i, struct matrix_config *out) {
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
        add_setting(out, "decoder", suite_plugin("template_decoder"));
    }
    return true;
}

/* Caches that leave positions of a block out or evict some in the middle of a step. */
static inline bool focus_config(size_t i, struct matrix_config *out) {
    static const char *const systems[] = {"dc", "dc+", "focus"};
    static const struct {
        const char *settings;
        unsigned invariants;
    } lines[] = {
        {"decoder=fixed kv=pages", ALONE},
        {"decoder=threshold decoder.threshold=0.006", ALONE},
        {"PLUGIN kv=pages", ALONE},
        {"decoder=threshold decoder.threshold=0.006 steps_per_block=3 cache.ahead_blocks=0",
         ALONE | GOES_ON | PLAYED},
        {"decoder=fixed steps_per_block=3 cache.ahead_blocks=0", PLAYED},
        {"decoder=threshold decoder.threshold=0.7 cache.ahead_blocks=0", CARRIED},
    };
    static const char *const predictors[] = {
        "layers=4 cache.layer=3 decoder=threshold decoder.threshold=0.006",
        "layers=4 cache.layer=2 cache.choice=left cache.k=0 decoder=fixed steps_per_block=3",
        "cache.choice=left cache.k=2 decoder=threshold decoder.threshold=0.006",
    };
    size_t line = i / 3, n_lines = sizeof lines / sizeof lines[0];
    if (line == n_lines) {
        *out = (struct matrix_config){"focus", "sdar-tiny", FOCUS, ALONE | PLAYED, 12, {{0}}, 0};
        add_settings(out, "block_tokens=8 page_tokens=4 cache.ahead_blocks=0");
        add_settings(out, predictors[i % 3]);
        return true;
    }
    if (line > n_lines) {
        return false;
    }
    *out = (struct matrix_config){
        systems[i % 3], "sdar-tiny", FOCUS, lines[line].invariants, 12, {{0}}, 0};
    add_settings(out, "block_tokens=8 page_tokens=4");
    bool has_plugin = strncmp(lines[line].settings, "PLUGIN", 6) == 0;
    add_settings(out, lines[line].settings + (has_plugin ? 7 : 0));
    if (has_plugin) {
        add_setting(out, "decoder", suite_plugin("template_decoder"));
    }
    if ((lines[line].invariants & (GOES_ON | PLAYED | CARRIED)) == 0) {
        add_setting(out, "logit_scope", scopes[(i + line) % 4]);
    }
    return true;
}

/* Fast-dLLM v2's small blocks. */
static inline bool small_config(size_t i, struct matrix_config *out) {
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

/* Schedulers that say which masked positions run. */
static inline bool load_config(size_t i, struct matrix_config *out) {
    static const struct {
        const char *system, *settings;
        unsigned invariants;
    } lines[] = {
        {"load-budget", "scheduler.rows=3", ALONE | PLAYED | CARRIED},
        {"load-budget", "cache=exact", PLAYED | CARRIED},
        {"load-width", "scheduler.least=2 scheduler.most=2 cache=delayed", ALONE | PLAYED},
        {"load-width", "scheduler.least=1 scheduler.most=8", PLAYED | CARRIED},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, "sdar-tiny", FOCUS, lines[i].invariants, 12, {{0}}, 0};
    add_settings(out, "block_tokens=8 page_tokens=4 cache.ahead_blocks=0 decoder.threshold=0.03");
    add_settings(out, lines[i].settings);
    return true;
}

/* Blocks that are done wait for the slowest, computed and discarded. */
static inline bool idle_config(size_t i, struct matrix_config *out) {
    static const struct {
        const char *system, *model;
        unsigned invariants;
    } lines[] = {{"sglang", "sdar-tiny", IDLE | SIMULATED | PLAYED | PREEMPTED},
                 {"sglang", "fast-dllm-v2-tiny", IDLE | SIMULATED | PLAYED | PREEMPTED},
                 {"dc", "sdar-tiny", IDLE | SIMULATED | GOES_ON},
                 {"focus", "sdar-tiny", IDLE | GOES_ON}};
    if (i >= 4) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, EXACT, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, "scheduler=sglang scheduler.mode=lockstep block_tokens=4 decoder=fixed "
                      "page_tokens=4 cache.ahead_blocks=0 skip_ahead=off");
    return true;
}

/* A configuration by its system, model and settings. */
struct matrix_line {
    const char *system, *model;
    enum set set;
    unsigned invariants;
    const char *settings;
};

/* dInfer's iteration smoothing. */
static inline bool smooth_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
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
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | PLAYED,
         "cache=dual decoder=threshold decoder.threshold=0.004 sampling=on temperature=1.2"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE,
         "cache=prefix decoder=threshold decoder.threshold=0.02 temperature=0.8"},
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

/* Weights, inputs, heads and cached rows in fp8, alone and together. */
static inline bool fp8_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | MAPPED | PLAYED,
         "storage.weights=fp8 storage.cache=fp8 storage.head=fp8 cache=sparse-head"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | SIMULATED,
         "storage.weights=fp8-channel storage.cache=fp8 cache=dual decoder=fixed "
         "runtime.fused_gate_up=off runtime.fused_head=off"},
        {"dllm-serve", "llada-moe-tiny", CANVAS, ALONE,
         "storage.weights=fp8 storage.activations=f32 cache=prefix"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE, "storage.cache=fp8 cache=dkv-decode"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE, "storage.cache=fp8 cache=dual"},
        {"sdar", "llada2-tiny", EXACT, ALONE | PLAYED,
         "storage.weights=fp8 storage.cache=fp8 decoder=threshold decoder.threshold=0.008"},
        {"sdar", "sdar-tiny", EXACT, ALONE | MAPPED | SIMULATED | PREEMPTED,
         "storage.weights=fp8-channel storage.cache=fp8 decoder=fixed cache.ahead_blocks=0"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, lines[i].set == CANVAS
                          ? "block_tokens=6 max_requests=4"
                          : "block_tokens=4 page_tokens=4 runtime=unmask prefix_caching=off");
    add_settings(out, lines[i].settings);
    return true;
}

/* Tokens that move. Of a record what moved is not known, and other tokens are written. */
static inline bool moving_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"sdar", "sdar-tiny", EXACT, ALONE | MAPPED | PREEMPTED | STOPPED,
         "decoder.threshold=0.008 decoder.delete_token=97 decoder.insert_token=132 "
         "cache.ahead_blocks=0"},
        {"sglang", "llada2-tiny", EXACT, ALONE | CARRIED,
         "decoder.threshold=0.008 decoder.max_post_edit_steps=3 decoder.delete_token=5 "
         "decoder.insert_token=9"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, "runtime=unmask prefix_caching=off block_tokens=4 page_tokens=4 "
                      "runtime.fused_head=off decoder=joint-indel");
    add_settings(out, lines[i].settings);
    return true;
}

/* Drafts that the model checks itself. The tokens of a check by ratio are not recorded. */
static inline bool checked_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"sdar", "sdar-tiny", EXACT, ALONE | MAPPED | WAYS,
         "decoder.accept=same decoder.cost=0 page_tokens=4"},
        {"sglang", "llada2-tiny", EXACT, ALONE | PREEMPTED | STOPPED,
         "decoder.cost=0 runtime.fused_head=off page_tokens=4 cache.ahead_blocks=0"},
        {"lmdeploy", "sdar-tiny", EXACT, ALONE | PREEMPTED,
         "decoder.accept=same decoder.when=span decoder.span=2 decoder.threshold=0.008 "
         "page_tokens=4 cache.ahead_blocks=0 cache.cross_block=on"},
        {"sdar", "sdar-tiny", EXACT, ALONE | PLAYED,
         "decoder.accept=same decoder.when=span decoder.span=3 page_tokens=4"},
        {"sdar", "sdar-tiny", EXACT, ALONE | PLAYED,
         "decoder.accept=same decoder.cost=0 page_tokens=16 storage.cache=fp8"},
        {"sdar", "sdar-tiny", EXACT, CARRIED,
         "decoder.cost=0 runtime.fused_head=off page_tokens=4"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 24, {{0}}, 0};
    add_settings(out, "runtime=unmask prefix_caching=off block_tokens=4");
    add_setting(out, "decoder", "self-speculation");
    add_settings(out, lines[i].settings);
    return true;
}

/* Positions that lie scattered where logits are shifted: the row before each decides on it. */
static inline bool shifted_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | MAPPED | PLAYED,
         "cache=dkv-decode cache.interval_steps=4 decoder=fixed logit_scope=queries"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | CARRIED,
         "cache=dkv-pd cache.interval_steps=2 cache.prompt_interval_steps=6 decoder=threshold "
         "decoder.threshold=0.012 logit_scope=masked"},
        {"dllm-serve", "dream-tiny", CANVAS, SIMULATED,
         "cache=dkv-decode cache.interval_steps=4 decoder=random logit_scope=generation"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | PLAYED,
         "cache=entropy cache.bound_nats=6.465 cache.recent_tokens=3 decoder=fixed kv=slab"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | SIMULATED,
         "cache=paced cache.renew_tokens=4 decoder=random logit_scope=block kv=pages"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | SIMULATED,
         "cache=dkv-prefill cache.prompt_interval_steps=4 decoder=random"},
        {"dc+", "fast-dllm-v2-tiny", FOCUS, ALONE | SIMULATED | PLAYED | STOPPED,
         "decoder=random steps_per_block=3"},
        {"dc+", "fast-dllm-v2-tiny", FOCUS, ALONE | GOES_ON | PLAYED,
         "decoder=threshold decoder.threshold=0.008 logit_scope=masked"},
        {"focus", "fast-dllm-v2-tiny", FOCUS, ALONE | GOES_ON | PLAYED,
         "decoder=threshold decoder.threshold=0.008 steps_per_block=3"},
        {"focus", "fast-dllm-v2-tiny", FOCUS, ALONE | PLAYED,
         "decoder=fixed steps_per_block=3 logit_scope=masked"},
        {"focus", "fast-dllm-v2-tiny", FOCUS, ALONE | CARRIED,
         "cache.commit_logits=off decoder=threshold decoder.threshold=0.7"},
        {"load-budget", "fast-dllm-v2-tiny", FOCUS, ALONE | PLAYED | CARRIED,
         "scheduler.rows=3 decoder.threshold=0.03"},
        {"load-width", "fast-dllm-v2-tiny", FOCUS, ALONE | PLAYED | CARRIED,
         "scheduler.least=1 scheduler.most=8 decoder.threshold=0.03"},
        {"dc+", "fast-dllm-v2-tiny", EXACT, IDLE | GOES_ON,
         "scheduler=sglang scheduler.mode=lockstep decoder=fixed skip_ahead=off"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 0, {{0}}, 0};
    out->narrow_pages = lines[i].set == CANVAS ? 0 : lines[i].set == FOCUS ? 12 : 20;
    add_settings(out, lines[i].set == CANVAS ? "block_tokens=6 steps_per_block=6"
                                             : "block_tokens=8 page_tokens=4 cache.ahead_blocks=0");
    add_settings(out, lines[i].settings);
    return true;
}

/* dLLM-Cache's features: at intervals at which requests have steps of every kind, ratios by which
 * all, some or none of the output moves. */
static inline bool features_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"dllm-cache", "llada-tiny", CANVAS, ALONE | PLAYED | SIMULATED,
         "layers=3 cache.transfer_ratio=0.5 decoder=fixed logit_scope=queries"},
        {"dllm-cache", "dream-tiny", CANVAS, ALONE | MAPPED,
         "layers=3 cache.transfer_ratio=0.3 context_tokens=64"},
        {"dllm-cache", "llada-moe-tiny", CANVAS, ALONE | PLAYED,
         "layers=3 cache.transfer_ratio=0.25 logit_scope=generation"},
        {"dllm-cache", "llada-tiny", CANVAS, ALONE | MAPPED | SIMULATED,
         "layers=3 cache.transfer_ratio=0 decoder=fixed logit_scope=masked"},
        {"dllm-cache", "llada-tiny", CANVAS, ALONE | PLAYED,
         "layers=3 cache.transfer_ratio=0.12 decoder=credit decoder.threshold=0.018"},
        {"dllm-cache", "llada-tiny", CANVAS, ALONE,
         "cache.transfer_ratio=1 sampling=on decoder=threshold decoder.threshold=0.004"},
        {"dllm-cache", "llada-tiny", CANVAS, ALONE | PLAYED,
         "layers=3 cache.transfer_ratio=0.4 iteration=smooth logit_scope=block"},
        {"dllm-cache", "llada-tiny", CANVAS, CARRIED | SIMULATED,
         "layers=3 cache.transfer_ratio=0.4 decoder=fixed unroll.maximum=3 steps_per_block=2"},
        /* Steps in between that pick rows once more as the replay times their operators. */
        {"dllm-cache", "llada-tiny", CANVAS, PLAYED,
         "layers=3 cache.transfer_ratio=0.5 cache.output_interval_steps=8 decoder=fixed"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 0, {{0}}, 0};
    add_settings(out, "block_tokens=4 cache.prompt_interval_steps=5 cache.output_interval_steps=3");
    add_settings(out, "scheduler=phase-multiplexed");
    add_settings(out, lines[i].settings);
    return true;
}

/* SparseD's patterns, of requests that have steps before, at and after their choice together. */
static inline bool pattern_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"sparsed", "llada-tiny", CANVAS, ALONE | PLAYED | SIMULATED,
         "cache.skip=0.2 decoder=fixed logit_scope=queries"},
        {"sparsed", "dream-tiny", CANVAS, ALONE | MAPPED, "cache.skip=0 context_tokens=64"},
        {"sparsed", "llada-moe-tiny", CANVAS, ALONE | PLAYED,
         "cache.select=0 cache.scores=head-size logit_scope=generation"},
        {"sparsed", "llada-tiny", CANVAS, ALONE | MAPPED | SIMULATED,
         "cache.pattern_tokens=1 cache.select=0.1 decoder=fixed logit_scope=masked"},
        {"sparsed", "llada-tiny", CANVAS, ALONE | PLAYED,
         "cache.skip=0.1 decoder=threshold decoder.threshold=0.004 sampling=on"},
        {"sparsed", "llada-tiny", CANVAS, ALONE | PLAYED,
         "cache.skip=0.1 iteration=smooth logit_scope=block"},
        {"sparsed", "llada-tiny", CANVAS, CARRIED | SIMULATED,
         "cache.skip=0.1 decoder=fixed unroll.maximum=3 steps_per_block=2"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 0, {{0}}, 0};
    add_settings(out, "block_tokens=4 cache.pattern_tokens=3 cache.select=0.3");
    add_settings(out, "scheduler=phase-multiplexed");
    add_settings(out, lines[i].settings);
    return true;
}

/* Tokens that are drawn: with every reading of confidences, cuts and statistics. */
static inline bool sampling_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | PLAYED,
         "block_tokens=6 cache=dual decoder=threshold decoder.threshold=0.004 sampling=on"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE | PLAYED,
         "block_tokens=6 cache=sparse-head decoder=fixed steps_per_block=3 sampling=on top_k=9"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE | PLAYED,
         "block_tokens=6 cache=prefix decoder=entropy sampling=on temperature=0.5 top_p=0.6"},
        {"dllm-serve", "dream-tiny", CANVAS, ALONE,
         "block_tokens=6 cache=prefix decoder=margin probabilities=kept top_p=0.1"},
        {"dllm-serve", "llada-tiny", CANVAS, ALONE,
         "block_tokens=6 cache=dual decoder=threshold decoder.threshold=0.02 temperature=0.8"},
        {"sdar", "sdar-tiny", EXACT, ALONE | WAYS | PREEMPTED | PLAYED,
         "block_tokens=4 runtime=unmask prefix_caching=off page_tokens=4 decoder=threshold "
         "decoder.threshold=0.03 cache.ahead_blocks=0 sampling=on top_k=40 top_p=0.9"},
        {"focus", "sdar-tiny", FOCUS, ALONE | PLAYED,
         "block_tokens=8 page_tokens=4 sampling=on probabilities=tempered top_k=50"},
        {"vllm-ar", "qwen2.5-tiny", EXACT, ALONE | PREEMPTED,
         "block_tokens=1 runtime=unmask prefix_caching=off page_tokens=4 cache.ahead_blocks=0 "
         "sampling=on temperature=0.7"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, lines[i].settings);
    return true;
}

/* Tokens that are replaced: these random weights change their minds in most passes, until the bound
 * on passes ends a block. */
static inline bool revising_config(size_t i, struct matrix_config *out) {
    static const struct matrix_line lines[] = {
        {"sdar", "sdar-tiny", EXACT, ALONE | PREEMPTED | STOPPED | PLAYED,
         "decoder.threshold=0.008 decoder.max_post_edit_steps=3"},
        {"lmdeploy", "llada2-tiny", EXACT, ALONE | PREEMPTED | PLAYED,
         "decoder.threshold=0.5 decoder.edit_threshold=0.009 logit_scope=block"},
        {"sglang", "sdar-tiny", EXACT, ALONE | CARRIED,
         "decoder.threshold=0.5 cache.cross_block=on cache.commit_last=off"},
        {"sglang", "sdar-tiny", EXACT, ALONE | IDLE,
         "scheduler.mode=lockstep skip_ahead=off decoder.max_post_edit_steps=5"},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    *out = (struct matrix_config){
        lines[i].system, lines[i].model, lines[i].set, lines[i].invariants, 20, {{0}}, 0};
    add_settings(out, "block_tokens=4 runtime=unmask prefix_caching=off page_tokens=4 "
                      "cache.ahead_blocks=0 decoder=joint-threshold");
    add_settings(out, lines[i].settings);
    return true;
}

/* Several blocks at once, of block-causal models. Where logits are shifted the row
 * before a window is run by a prefill, by the pass that stores a block or by one that stores the
 * last of a full ring, and decides in those after. */
static inline bool several_config(size_t i, struct matrix_config *out) {
    static const struct {
        struct matrix_line line;
        int64_t pages;
    } lines[] = {
        {{"d2f", "sdar-tiny", EXACT, ALONE | MAPPED | PREEMPTED | PLAYED,
          "blocks_in_flight=3 decoder.threshold=0.008"},
         14},
        {{"multibd", "llada2-tiny", EXACT, ALONE | PREEMPTED | PLAYED, "decoder.threshold=0.05"},
         14},
        {{"d2f", "fast-dllm-v2-tiny", EXACT, ALONE | MAPPED | WAYS | PREEMPTED | PLAYED | STOPPED,
          "blocks_in_flight=3 decoder.threshold=0.008 logit_scope=masked"},
         14},
        {{"d2f", "fast-dllm-v2-tiny", SMALL, ALONE | PREEMPTED | PLAYED,
          "block_tokens=8 blocks_in_flight=3 decoder.threshold=0.9 decoder.complete=0.5 "
          "block_add_threshold=0.5"},
         28},
        {{"multibd", "fast-dllm-v2-tiny", EXACT, ALONE | PREEMPTED | PLAYED,
          "blocks_in_flight=2 decoder.threshold=0.05 logit_scope=queries"},
         14},
        {{"multibd", "fast-dllm-v2-tiny", FOCUS, ALONE | PREEMPTED | PLAYED,
          "blocks_in_flight=3 decoder.threshold=0.01 block_add_threshold=0 logit_scope=masked"},
         11},
        {{"multibd", "fast-dllm-v2-tiny", EXACT, ALONE | PREEMPTED | PLAYED,
          "cache.commit_last=off cache.commit_logits=off decoder.threshold=0.05"},
         14},
        {{"d2f", "fast-dllm-v2-tiny", EXACT, ALONE | PREEMPTED | PLAYED,
          "sampling=on top_k=3 blocks_in_flight=3 decoder.threshold=0.008"},
         12},
        {{"d2f", "fast-dllm-v2-tiny", EXACT, CARRIED, "blocks_in_flight=3 decoder.threshold=0.5"},
         14},
        {{"multibd", "fast-dllm-v2-tiny", SMALL, ALONE | PLAYED, "decoder.threshold=0.02"}, 24},
    };
    if (i >= sizeof lines / sizeof lines[0]) {
        return false;
    }
    const struct matrix_line *line = &lines[i].line;
    *out = (struct matrix_config){line->system,   line->model, line->set, line->invariants,
                                  lines[i].pages, {{0}},       0};
    add_settings(out, "block_tokens=4 runtime=unmask prefix_caching=off page_tokens=4 "
                      "cache.ahead_blocks=0");
    add_settings(out, line->settings);
    return true;
}

/* Drawn confidences are far above real ones, so that the threshold itself would decide less. */
static inline bool carried_config(size_t i, struct matrix_config *out) {
    *out = (struct matrix_config){"dllm-serve", "llada-tiny", CANVAS, CARRIED, 0, {{0}}, 0};
    add_settings(out, "cache=dual decoder=threshold decoder.threshold=0.5 block_tokens=4");
    return i == 0;
}

static bool (*const families[])(size_t i, struct matrix_config *out) = {
    checked_config, moving_config,   canvas_config,  decoder_config,  dkv_config,
    exact_config,   focus_config,    small_config,   idle_config,     load_config,
    smooth_config,  sampling_config, carried_config, features_config, fp8_config,
    pattern_config, revising_config, shifted_config, several_config,
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

#endif
