#include "sim/system/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/decode/process_file.h"
#include "sim/model/ranks.h"
#include "sim/policy/decoder/moving.h"
#include "sim/policy/decoder/speculation.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/profile_share.h"
#include "sim/system/lmax.h"
#include "sim/system/system_parts.h"
#include "sim/system/system_step.h"

/* ---- resolving ---- */

/* The first word of storage_words is "auto", those after it are number_words. */
static uint8_t said_or(uint32_t word, enum number_type otherwise) {
    return (uint8_t)(word == 0 ? (uint32_t)otherwise : word - 1);
}

struct storage system_storage(const struct system *s) {
    const struct storage_settings *said = &s->settings.storage;
    const enum number_type weights = (enum number_type)said->weights;
    const enum number_type next =
        s->gpu->compute_capability == 0 ? NUMBER_F32 : number_wide(weights);
    const enum number_type wide =
        number_is_fp8(weights) ? (enum number_type)said_or(said->wide, next) : weights;
    const bool caches = s->rows.kind != ROW_NONE && s->rows.kind != ROW_PATTERN;
    return (struct storage){.weights = (uint8_t)weights,
                            .activations = said_or(said->activations, weights),
                            .cache = said_or(caches ? said->cache : 0, wide),
                            .head = said_or(said->head, wide),
                            .wide = (uint8_t)wide};
}

static int64_t cache_row_bytes(const struct system *s) {
    const enum number_type type = (enum number_type)s->graph.storage.cache;
    switch ((enum row_kind)s->rows.kind) {
    case ROW_NONE:
        break;
    case ROW_KV: /* after leading layers a hidden state besides */
    case ROW_EXACT:
        return model_kv_bytes_per_token(s->model, type) +
               (s->rows.lead_layers > 0 ? number_bytes((enum number_type)s->graph.storage.wide) *
                                              (int64_t)s->model->hidden
                                        : 0);
    case ROW_PATTERN: /* a word for every head */
        return (int64_t)s->model->layers * s->model->heads * (int64_t)sizeof(uint32_t);
    case ROW_FEATURES:
        return model_feature_cache_bytes_per_token(s->model, type);
    }
    return 0;
}

/* Steps whose tokens are drawn differ from one another, so that none are submitted together. */
static void resolve_drawing(struct system *s) {
    struct settings *settings = &s->settings;
    bool is_llada = s->model->mask == MASK_BIDIRECTIONAL && !s->model->shifted_logits;
    if (settings->probabilities == PROBABILITIES_RELEASED) {
        settings->probabilities = !settings->sampling ? PROBABILITIES_TEMPERED
                                  : is_llada          ? PROBABILITIES_MODEL
                                                      : PROBABILITIES_KEPT;
    }
    static const uint32_t of[] = {[PROBABILITIES_TEMPERED] = DRAW_OF_TEMPERED,
                                  [PROBABILITIES_MODEL] = DRAW_OF_MODEL,
                                  [PROBABILITIES_KEPT] = DRAW_OF_KEPT};
    settings->skip_ahead = settings->skip_ahead && !settings->sampling;
    s->process.drawing = (struct draw_rule){.top_p = settings->top_p,
                                            .temperature = (float)settings->temperature,
                                            .top_k = settings->top_k,
                                            .of = of[settings->probabilities],
                                            .draws = settings->sampling};
}

/* By which tokens a canvas moves the model says, where the decoder does not. */
static void resolve_moving(struct system *s) {
    if (s->decoder->way == DECODER_MOVES) {
        struct joint_indel *numbers = s->decoder_state;
        numbers->delete_token =
            numbers->delete_token > 0 ? numbers->delete_token : s->model->delete_token;
        numbers->insert_token =
            numbers->insert_token > 0 ? numbers->insert_token : s->model->insert_token;
    }
}

static void resolve_settings(struct system *s, uint32_t longest) {
    struct settings *settings = &s->settings;
    enum { LONGEST_CONTEXT = 32768 };
    if (settings->block_tokens == 0) {
        bool has_blocks = s->process.at.block_tokens != 0 && s->model->mask != MASK_CAUSAL;
        settings->block_tokens = has_blocks ? s->process.at.block_tokens : s->model->block_tokens;
    }
    if (settings->context_tokens == 0) {
        settings->context_tokens =
            s->model->max_positions < LONGEST_CONTEXT ? s->model->max_positions : LONGEST_CONTEXT;
    }
    if (settings->profile_canvas_tokens == 0) {
        bool is_known = settings->profile_canvas == PROFILE_WORKLOAD && longest > 0 &&
                        longest < settings->context_tokens;
        s->asks_longest_canvas = settings->profile_canvas == PROFILE_WORKLOAD && longest == 0;
        settings->profile_canvas_tokens = is_known ? longest : settings->context_tokens;
    }
    if (settings->steps_per_block == 0) {
        settings->steps_per_block = settings->block_tokens;
    }
    s->process.location -= settings->confidence_drop;
    s->process.temperature = settings->temperature;
    resolve_drawing(s);
    resolve_moving(s);
}

/* Cached rows of a request that fills the profiled canvas. */
static uint32_t profiled_rows(const struct system *s) {
    const struct settings *settings = &s->settings;
    uint32_t canvas = settings->profile_canvas_tokens;
    uint32_t output = canvas < settings->block_tokens ? canvas : settings->block_tokens;
    struct request request = {.prompt_tokens = canvas - output,
                              .output_tokens = output,
                              .canvas_tokens = canvas,
                              .prefix_tokens = canvas - output,
                              .block_tokens = settings->block_tokens,
                              .causal = system_causality(s->model),
                              .steps_per_block = settings->steps_per_block,
                              .window = window_of(0, canvas - output, output, output)};
    struct row_sets rows;
    (void)cache_rows(s->cache, s->cache_state, NULL, &request, &rows);
    return rows.held + system_check_rows(s);
}

int system_serves(const struct system *s, struct err *err) {
    if (s->settings.allocator == ALLOCATOR_PLANNED) {
        return 0;
    }
    return err_usage(err,
                     "%s has allocator = %s, which `unmask plan lmax` models and serving does not",
                     s->name, step_allocator_words[s->settings.allocator]);
}

/* Each of the GPUs that hold a replica together has its share of the model. */
static int divide_model(struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    uint32_t ranks = settings->tensor_parallel;
    s->whole = s->model;
    if (ranks == 1) {
        return !settings->expert_parallel
                   ? 0
                   : err_usage(err, "expert_parallel = on divides experts among the GPUs of "
                                    "tensor_parallel, which is 1");
    }
    if (settings->allocator != ALLOCATOR_PLANNED) {
        return err_usage(err, "allocator = %s is modelled on one GPU, not on tensor_parallel = %u",
                         step_allocator_words[settings->allocator], ranks);
    }
    int status = model_divide(s->whole, ranks, settings->expert_parallel, &s->rank, err);
    s->model = status == 0 ? &s->rank : s->model;
    if (status == 0 && s->runtime.whole_head) {
        model_take_whole_head(&s->rank);
    }
    return status;
}

static void cut_layers(struct model *model, uint32_t layers) {
    model->layers = layers;
    model->dense_layers = model->dense_layers < layers ? model->dense_layers : layers;
}

/* What is left out keeps its place in the device's memory: steps have the workspace that the whole
 * model leaves them. */
static void leave_out_layers(struct system *s) {
    uint32_t layers = s->settings.layers;
    if (layers == 0 || layers == s->model->layers) {
        return;
    }
    const struct storage storage = system_storage(s);
    int64_t all_bytes = model_weights_bytes(s->model, &storage);
    bool is_divided = s->model != s->whole;
    s->cut = *s->whole;
    cut_layers(&s->cut, layers);
    cut_layers(&s->rank, layers);
    s->whole = &s->cut;
    s->model = is_divided ? &s->rank : &s->cut;
    s->left_out_bytes = all_bytes - model_weights_bytes(s->model, &storage);
}

/* Query tokens of the profiling run that sizes a pool of pages. */
static uint32_t profiled_tokens(const struct settings *k) {
    uint32_t whole = k->max_batched_tokens / k->profile_canvas_tokens * k->profile_canvas_tokens;
    return k->profile_whole_canvases ? whole : k->max_batched_tokens;
}

/* Rows that local layers hold of a request, whose others are given back as the window moves on;
 * shared ones stay. 0: all. */
static uint32_t local_rows(const struct system *s) {
    const bool gives_back = s->model->local_window > 0 && !s->settings.prefix_caching;
    return gives_back ? s->model->local_window + s->settings.block_tokens : 0;
}

static int64_t local_row_bytes(const struct system *s) {
    return model_local_kv_bytes_per_token(s->model, (enum number_type)s->graph.storage.cache);
}

int64_t system_rows_bytes(const struct system *s, uint32_t rows) {
    const uint32_t held = local_rows(s), passed = held > 0 && rows > held ? rows - held : 0;
    return s->row_bytes * rows - local_row_bytes(s) * passed;
}

/* Canvases of random tokens alone have logits, no prompt has. */
static uint32_t most_logit_rows(const struct system *s) {
    const uint64_t of_request = s->settings.block_tokens,
                   rows = of_request * s->settings.max_requests;
    return s->model->uniform_noise && rows < UINT32_MAX ? (uint32_t)rows : 0;
}

static int take_budget(struct system *s, struct err *err) {
    const struct settings *k = &s->settings;
    struct budget_request request = {
        .gpu = s->gpu,
        .graph = &s->graph,
        .planner = s->planner,
        .chunks = &s->chunks,
        .memory_utilization = k->memory_utilization,
        .pool_share = k->pool_share,
        .pool_pages = k->pool_pages,
        .reserve_bytes = system_reserve_bytes(s),
        .kv_layout = k->kv_layout,
        .page_tokens = k->page_tokens,
        .row_bytes = s->row_bytes,
        .most_logit_rows = most_logit_rows(s),
        .local_row_bytes = local_row_bytes(s),
        .local_rows = local_rows(s),
        .max_batched_tokens = k->max_batched_tokens,
        .profiled_tokens = profiled_tokens(k),
        .canvas_tokens = k->profile_canvas_tokens,
        .slab_rows = profiled_rows(s),
        .output_rows = system_scope_rows(k, k->profile_canvas_tokens, k->profile_canvas_tokens,
                                         k->block_tokens, k->block_tokens, true),
        .selects = rows_are_chosen(&s->rows),
        .max_requests = k->max_requests,
    };
    return budget_make(&request, &s->budget, err);
}

static void resize(struct system *s, int64_t memory_bytes) {
    s->resized = *s->gpu;
    s->resized.memory_bytes = memory_bytes;
    s->gpu = &s->resized;
}

/* Chunks that the longest canvas needs are found under the budget of a system that searches. */
static int settle_chunks(struct system *s, const struct system_request *asked, struct err *err) {
    s->chunks = system_chunk_rule(s);
    int status = take_budget(s, err);
    if (status != 0 && err->code == ERR_NO_ROOM && asked->memory_bytes == 0 &&
        gpu_is_host(s->gpu) && gpu_machine_bytes() > s->gpu->memory_bytes) {
        resize(s, gpu_machine_bytes());
        *err = (struct err){0};
        status = take_budget(s, err);
    }
    if (status == 0 && s->settings.chunk_search == CHUNK_SEARCH_LONGEST) {
        status = system_chunk_as_longest(s, err);
        status = status == 0 ? take_budget(s, err) : status;
    }
    return status;
}

/* A wait for FOCUS's choice that is not the calibrated one was set by hand. */
static enum provenance_kind wait_kind(const struct system *s) {
    for (uint32_t i = 0; i < s->n_calibrated; i++) {
        if (strcmp(s->calibrated[i].name, "evict_ns") == 0) {
            return PROVENANCE_CALIBRATED;
        }
    }
    return PROVENANCE_ASSUMED;
}

static void take_way(struct system *s) {
    s->moves = s->decoder->way == DECODER_MOVES;
    s->renoises = s->decoder->way == DECODER_RENOISES;
    s->speculates = s->decoder->way == DECODER_SPECULATES;
}

/* Drafts are accepted by chances that the host reads off logits. */
static bool draws_drafts(const struct system *s) {
    return s->speculates && ((const struct speculation *)s->decoder_state)->accept == ACCEPT_RATIO;
}

static int resolve(struct system *s, const struct system_request *asked, struct err *err) {
    resolve_settings(s, asked->longest_canvas_tokens);
    int status = system_refuse(s, err);
    status = status == 0 ? divide_model(s, err) : status;
    if (status != 0) {
        return status;
    }
    leave_out_layers(s);
    const struct decode_rule rule = decoder_rule_always(s->decoder, s->decoder_state);
    take_way(s);
    s->revises = rule.kind == DECODE_JOINT && rule.edit < 1;
    s->process.edits = rule.kind == DECODE_JOINT;
    struct graph_options options = {
#define GRAPH_FLAG(field, doc)                        .field = s->runtime.field,
#define GRAPH_BYTES(field, initial, least, most, doc) .field = s->runtime.field,
#include "sim/step/runtime_part.def"
        .samples_output = s->settings.sample_scope == SAMPLES_OUTPUT,
        .splits_first_layer = s->rows.kind == ROW_FEATURES,
        .selects = rows_are_chosen(&s->rows),
        .selects_together = s->rows.chooser == CHOSEN_FOR_HEADS,
        .has_patterns = s->rows.kind == ROW_PATTERN,
        .compares_values = s->rows.chooser == CHOSEN_BY_CHANGE,
        .exact = s->rows.kind == ROW_EXACT,
        .evict_layer = s->rows.evict_layer,
        .lead_layers = s->rows.lead_layers,
        .storage = system_storage(s),
        .draws = system_reads_logits(s),
        .host_reads_logits = !s->runtime.fused_head && (s->moves || draws_drafts(s)),
        .draws_kept = s->settings.top_k > 0 || s->settings.top_p < 1,
        .statistics = s->decoder->reads_statistics != 0 || s->cache->reads_entropy != 0 ||
                      asked->statistics ||
                      (s->model->uniform_noise && s->runtime.sampler_bytes == 0),
        .stored_rows = system_stored_rows(s),
        .evict_wait_ns = s->settings.evict_wait_ns,
        .evict_wait_kind = wait_kind(s),
    };
    system_keep_places(s, &options);
    status = graph_try(&s->graph, s->model, &options, err);
    if (status != 0) {
        return status;
    }
    s->row_bytes = cache_row_bytes(s);
    if (asked->random_weights && system_applied(s, "expert_router") == NULL) {
        s->settings.expert_router = ROUTER_RANDOM;
    }
    status = routing_make(s->whole, s->settings.experts_hit,
                          s->settings.expert_router == ROUTER_RANDOM, &s->routing, err);
    snprintf(s->profile_name, sizeof s->profile_name, "%.190s",
             asked->profile_path != NULL ? asked->profile_path : s->gpu->name);
    status = status == 0 && !asked->roofline ? system_take_prices(s, asked, err) : status;
    if (status == 0) {
        system_take_host_terms(s);
        status = (asked->fills_gaps ? cost_open_with_gaps : cost_open)(
            s->gpu, s->profile, s->behind, &s->runtime, &s->graph, &s->cost, err);
    }
    if (status == 0) {
        cost_routes(s->cost, &s->routing);
    }
    return status == 0 ? settle_chunks(s, asked, err) : status;
}

/* What our own runtime waits where something is evicted is a calibrated constant, which a recorded
 * configuration says again. */
static int take_evict_wait(struct system *s, const struct config *constants, struct err *err) {
    struct setting setting = {
        .key = "evict_wait_ns", .value = "$evict_ns", .place = "calibrated.ini"};
    const struct config_entry *stored = config_find(constants, "evict_ns", "value");
    double value = 0;
    bool is_set =
        system_applied(s, setting.key) != NULL &&
        !(stored != NULL && num_f64(stored->value, &value) && value == s->settings.evict_wait_ns);
    if (!system_runs_on_ours(s) || s->rows.chooser != CHOSEN_BY_POLICY || is_set) {
        return 0;
    }
    int status = system_expand(s, constants, &setting, err);
    return status != 0 ? status : system_set_plain(s, &setting, err);
}

/* Unless one was chosen, confidences are drawn from the process of model and workload, where
 * decode.ini has it. */
static int default_process(struct system *s, const char *workload, struct err *err) {
    struct setting *setting = system_applied(s, system_part_names[SYSTEM_CONFIDENCE]);
    char name[sizeof s->confidence];
    if (setting == NULL || setting->layer != 0 || workload == NULL) {
        return 0;
    }
    int status = decode_process_of(s->model->name, workload, name, sizeof name, err);
    if (status == 0 && name[0] != '\0') {
        snprintf(setting->value, sizeof setting->value, "%s", name);
    }
    return status;
}

static int open_parts(const struct system_request *request, const struct system_files *files,
                      struct system *s, struct err *err) {
    static const char *const defaults[][2] = {
        {"scheduler", "continuous"},   {"cache", "none"},     {"decoder", "fixed"},
        {"router", "least-loaded"},    {"runtime", "unmask"}, {"planner", "first-fit"},
        {"confidence", "kumaraswamy"}, {"host", "default"},
    };
    snprintf(s->name, sizeof s->name, "%s", request->system);
    s->gpu = gpu_find(request->gpu, err);
    if (s->gpu == NULL) {
        return (int)err->kind;
    }
    if (request->memory_bytes > 0) {
        resize(s, request->memory_bytes);
    }
    int status = 0;
    for (size_t i = 0; status == 0 && i < sizeof defaults / sizeof defaults[0]; i++) {
        struct setting setting = {.place = "default", .said = SAID_BY_SHIPPED};
        snprintf(setting.key, sizeof setting.key, "%s", defaults[i][0]);
        snprintf(setting.value, sizeof setting.value, "%s", defaults[i][1]);
        status = system_remember(s, &setting, err);
    }
    if (status == 0) {
        status = system_take_section(s, files, request->system, request->compared, err);
    }
    const char *model = request->model != NULL ? request->model : system_file_model(files, s->name);
    if (status == 0) {
        s->model = model_find(model != NULL ? model : "llada-8b", err);
        status = s->model == NULL ? (int)err->kind : 0;
    }
    s->layer++;
    for (uint32_t i = 0; status == 0 && i < request->n_overrides; i++) {
        struct setting setting = request->overrides[i];
        status = system_expand(s, &files->constants, &setting, err);
        if (status == 0) {
            status = system_remember(s, &setting, err);
        }
    }
    if (status == 0) {
        status = default_process(s, request->workload, err);
    }
    if (status == 0) {
        status = system_apply(s, err);
    }
    if (status == 0 && s->model == &s->changed) {
        status = model_check(s->model, "--set model.KEY", err);
    }
    status = status == 0 ? system_take_host(s, &files->constants, err) : status;
    if (status != 0) {
        return status;
    }
    system_ask_rows(s);
    status = take_evict_wait(s, &files->constants, err);
    return status != 0 ? status : resolve(s, request, err);
}

bool system_asks_longest_canvas(const struct system *s) {
    return s->asks_longest_canvas;
}

int system_open(const struct system_request *request, struct system **out, struct err *err) {
    struct system_files files;
    int status = system_files_read(request->systems_path, &files, err);
    if (status != 0) {
        return status;
    }
    struct system *s = mem_zeroed(1, sizeof *s);
    param_defaults(system_params, system_n_params, &s->settings);
    status = open_parts(request, &files, s, err);
    system_files_close(&files);
    if (status != 0) {
        system_close(s);
        return status;
    }
    *out = s;
    return 0;
}

void system_close(struct system *s) {
    if (s == NULL) {
        return;
    }
    cost_close(s->cost);
    profile_give_back(s->profile);
    profile_give_back(s->behind);
    for (enum system_part part = 0; part < SYSTEM_POLICIES; part++) {
        void *state;
        const struct policy *policy = system_policy(s, part, &state);
        policy_state_free(policy, state);
    }
    free(s);
}
