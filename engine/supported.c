#include "engine/supported.h"

#include "engine/op/op.h"
#include "engine/op/packed.h"
#include "engine/session/session.h"
#include "sim/decode/block.h"
#include "sim/policy/decoder/moving.h"
#include "sim/policy/decoder/renoise.h"
#include "sim/policy/decoder/speculation.h"

/* ---- what a system has ---- */

static bool pads(const struct system *s) {
    return !s->runtime.varlen;
}

static bool gathers(const struct system *s) {
    return s->runtime.gathers_cache;
}

static bool is_not_ours(const struct system *s) {
    return !s->runtime.engine;
}

static bool has_many_blocks(const struct system *s) {
    return s->rows.kind == ROW_PATTERN &&
           pattern_blocks(&s->rows.pattern, s->settings.context_tokens) > PATTERN_MAX_BLOCKS;
}

static bool ranks_wide_blocks(const struct system *s) {
    const uint32_t kind = decoder_rule_always(s->decoder, s->decoder_state).kind;
    return kind != DECODE_COUNT && kind != DECODE_THRESHOLD && kind != DECODE_JOINT &&
           settings_window_tokens(&s->settings) > DECODE_MAX_RANKED;
}

static bool divides_whole_logits(const struct system *s) {
    const bool expects =
        s->settings.iteration == ITERATION_SMOOTH || s->model->conditioning_ffn > 0;
    return system_divides_first(s) && (expects || s->model->logit_softcap > 0);
}

static bool has_odd_pages(const struct system *s) {
    return s->rows.kind == ROW_EXACT && !packed_takes_pages(system_page_rows(s));
}

static bool samples_a_part(const struct system *s) {
    return s->settings.sample_scope != SAMPLES_LOGITS;
}

static bool has_odd_rows(const struct system *s) {
    return s->rows.kind != ROW_PATTERN &&
           s->row_bytes % (STORE_ALIGN_ELEMENTS * graph_cache_element_bytes(&s->graph)) != 0;
}

static bool has_whole_heads(const struct system *s) {
    return s->runtime.whole_head;
}

static bool has_other_heads(const struct system *s) {
    const struct model *m = s->model;
    return !is_head_size(m->head_dim) ||
           (m->global_every > 0 && !is_wide_head_size(m->global_head_dim));
}

static bool is_not_f32(const struct system *s) {
    return s->graph.storage.wide != NUMBER_F32;
}

static bool is_not_bf16(const struct system *s) {
    return s->graph.storage.wide != NUMBER_BF16;
}

static bool evicts_fp8(const struct system *s) {
    return s->rows.chooser == CHOSEN_BY_POLICY && s->graph.storage.cache == NUMBER_FP8;
}

static bool gathers_fp8(const struct system *s) {
    const struct storage *types = &s->graph.storage;
    return s->rows.kind == ROW_FEATURES &&
           (number_is_fp8((enum number_type)types->activations) || types->cache == NUMBER_FP8);
}

static bool overlaps_swaps(const struct system *s) {
    return s->settings.swap_host_bytes > 0 && s->settings.swap_overlaps;
}

static bool moves_by_nothing(const struct system *s) {
    const struct joint_indel *numbers = s->decoder_state;
    return s->moves && (numbers->delete_token == 0 || numbers->insert_token == 0);
}

static bool has_parts_of_logits(const struct system *s) {
    return s->runtime.fused_head || s->settings.logit_chunk_rows != 0 ||
           s->chunks.search != CHUNK_SEARCH_NONE;
}

static bool moves_by_parts(const struct system *s) {
    return s->moves && has_parts_of_logits(s);
}

/* Chances of drafts are read off logits. */
static bool draws_drafts(const struct system *s) {
    return s->speculates && ((const struct speculation *)s->decoder_state)->accept == ACCEPT_RATIO;
}

static bool reads_drafts_in_parts(const struct system *s) {
    return draws_drafts(s) && has_parts_of_logits(s);
}

static bool checks_fp8(const struct system *s) {
    return s->speculates && s->graph.storage.cache == NUMBER_FP8;
}

/* Each copy of a key-value head has a part of the queries that score its rows. */
static bool chooses_by_copies(const struct system *s) {
    return s->rows.chooser == CHOSEN_BY_HEAD && s->model->kv_copies > 1;
}

/* A chunk would hold a part of a block, and rows that are picked have positions of their own. */
static bool divides_blocks(const struct system *s) {
    return s->model->block_routing != BLOCK_ROUTING_NONE &&
           (s->settings.chunk_search != CHUNK_SEARCH_NONE || s->rows.kind == ROW_FEATURES);
}

/* A request holds whole pages, of all layers. */
static bool gives_rows_back(const struct system *s) {
    return s->model->local_window > 0 && !s->settings.prefix_caching &&
           s->settings.context_tokens > s->model->local_window + s->settings.block_tokens;
}

static bool has_local_layers(const struct system *s) {
    return s->model->local_window > 0;
}

/* Attention by other kernels than that of pages has no window; rows of fp8 and what picks rows take
 * layers to be alike, and rows of fp8 their values to be as projected. */
static bool has_odd_local_layers(const struct system *s) {
    const bool is_wide = storage_is(&s->graph.storage, (enum number_type)s->graph.storage.wide);
    const bool is_odd = s->rows.kind != ROW_EXACT || s->rows.chooser == CHOSEN_BY_POLICY;
    return (has_local_layers(s) && (is_odd || !is_wide)) || (s->model->output_norms && !is_wide);
}

static bool gates_fp8(const struct system *s) {
    return s->model->gelu && !storage_is(&s->graph.storage, s->graph.storage.wide);
}

static bool reads_other_logits(const struct system *s) {
    const bool whole = s->settings.logit_chunk_rows == 0 && s->chunks.search == CHUNK_SEARCH_NONE;
    return s->model->uniform_noise &&
           (!s->renoises || s->runtime.fused_head || !whole || s->runtime.sampler_bytes > 0);
}

/* ---- the table ---- */

enum { LIVE = WHERE_CPU | WHERE_CUDA };

const struct feature feature_table[] = {
    {OF_SYSTEM, LIVE, "rows of local layers that are given back", gives_rows_back,
     "a request's pages hold rows of all layers",
     "prefix_caching = on, or context_tokens to no more than the window and a block"},
    {OF_SYSTEM, LIVE, "layers with a window and another cache than exact, eviction or fp8",
     has_odd_local_layers,
     "but for attention over pages in the wide type layers are taken to be alike",
     "cache = exact, storage.weights and storage.cache as storage.wide"},
    {OF_SYSTEM, WHERE_CUDA, "gelu with products in fp8", gates_fp8, "those gate by silu",
     "storage.weights = bf16"},
    {OF_DECODER, LIVE, "canvases of random tokens without all logits of a step at once",
     reads_other_logits,
     "a kernel draws tokens from them, and the next step reads what this one expects",
     "decoder = renoise, runtime.fused_head = off, runtime.sampler_bytes = 0, logit_chunk_rows = 0 "
     "and chunk_search = none"},
    {OF_RUNTIME, LIVE, "padded batches", pads, "the engine runs packed batches",
     "runtime = unmask"},
    {OF_RUNTIME, LIVE, "cached rows copied together before attention", gathers,
     "the engine's attention reads them where they lie", "runtime = unmask"},
    {OF_SYSTEM, LIVE, "steps of another code than ours (runtime.engine = off)", is_not_ours,
     "they lack what the engine's kernels hold", "runtime.engine = on"},
    {OF_CACHE, LIVE, "patterns of more than 4,096 blocks in context_tokens", has_many_blocks,
     "a kernel chooses among no more of a request", "cache.pattern_tokens = 128"},
    {OF_DECODER, LIVE, "rules that rank positions, in windows over 4,096 tokens", ranks_wide_blocks,
     "the engine ranks no more at once", "block_tokens = 4096"},
    {OF_SYSTEM, LIVE, "a temperature, with a fused head or credit, and smoothing or a logit cap",
     divides_whole_logits,
     "logits are divided before they are computed, and both are of logits as they are",
     "runtime.fused_head = off and another decoder than credit, or temperature = 1"},
    {OF_SYSTEM, LIVE, "pages of no power of two from 4 to 256 rows", has_odd_pages,
     "the engine's kernels find the page of a row by a shift", "page_tokens = 16"},
    {OF_SYSTEM, LIVE, "logits of which a part is sampled (sample_scope = output)", samples_a_part,
     "the engine computes no logits but those that it looks at", "sample_scope = logits"},
    {OF_SYSTEM, LIVE, "cached rows of no multiple of 8 values", has_odd_rows,
     "the engine's kernels read 8 at once", NULL},
    {OF_SYSTEM, WHERE_CPU, "numbers in another type than f32", is_not_f32,
     "the cpu back end computes in float32",
     "storage.weights = f32 and leave the others at auto, or with fp8 storage.wide = f32"},
    {OF_SYSTEM, WHERE_CUDA, "numbers in another type than bf16", is_not_bf16,
     "the cuda back end computes in bfloat16",
     "storage.weights = bf16 and leave the others at auto, or with fp8 storage.wide = bf16"},
    {OF_SYSTEM, WHERE_CUDA, "heads of other than 64, 96, 128 or 256 values", has_other_heads,
     "attention on a GPU takes no others: the cpu back end runs them", NULL},
    {OF_CACHE, WHERE_RANKS, "rows chosen by key-value heads that are fewer than the GPUs",
     chooses_by_copies, "a head's copies would each choose by a part of its queries",
     "tensor_parallel to no more than the key-value heads, or cache = sparse-uniform"},
    {OF_RUNTIME, WHERE_RANKS, "runtime.whole_head = on", has_whole_heads,
     "each rank is given its share of the output head", "runtime.whole_head = off"},
    {OF_SYSTEM, LIVE, "swap.overlaps = on", overlaps_swaps,
     "the engine copies whole requests before a step, not layer by layer while it runs",
     "swap.overlaps = off"},
    {OF_CACHE, LIVE, "eviction with cached rows in fp8", evicts_fp8,
     "the importance of tokens is read off keys in the wide type", "storage.cache = auto"},
    {OF_CACHE, LIVE, "features with inputs or rows of fp8", gathers_fp8,
     "it picks rows of a layer's input, and adds what is kept of its outputs",
     "storage.cache = auto and storage.activations as storage.wide"},
    {OF_SYSTEM, LIVE, "experts chosen by block in chunks of a step or with cached features",
     divides_blocks, "a block's tokens choose together, and the choice would see a part of them",
     "chunk_search = none and another cache, or model.block_routing = none"},
    {OF_DECODER, LIVE, "drafts accepted by ratio without all logits of a step at once",
     reads_drafts_in_parts, "the host reads chances from them",
     "decoder.accept = same, or runtime.fused_head = off, logit_chunk_rows = 0 and chunk_search = "
     "none"},
    {OF_CACHE, WHERE_CUDA, "checks of drafts with cached rows in fp8", checks_fp8,
     "attention that leaves rows out reads them in the wide type", "storage.cache = auto"},
    {OF_DECODER, LIVE, "a canvas that moves without tokens that insert and delete",
     moves_by_nothing, "the model says by them where positions are inserted and dropped",
     "decoder.delete_token and decoder.insert_token"},
    {OF_DECODER, LIVE, "a canvas that moves without all logits of a step at once", moves_by_parts,
     "the host takes other tokens than the most likely from them",
     "runtime.fused_head = off, logit_chunk_rows = 0 and chunk_search = none"},
    {.name = NULL},
};
_Static_assert(STORE_ALIGN_ELEMENTS == 8 && DECODE_MAX_RANKED == 4096 && PATTERN_MAX_BLOCKS == 4096,
               "the table says so");

const struct feature *feature_lacked(const struct system *system, unsigned where) {
    for (const struct feature *f = feature_table; f->name != NULL; f++) {
        if (!feature_runs(f, where) && f->has(system)) {
            return f;
        }
    }
    return NULL;
}

static int refuse(const struct system *system, const struct feature *f, struct err *err) {
    const char *const kinds[] = {"system", "runtime", "cache", "decoder"};
    const char *const names[] = {system->name, system->runtime_name, system->cache->policy.name,
                                 system->decoder->policy.name};
    const char *place = f->lacked == WHERE_RANKS  ? " on several GPUs"
                        : f->lacked == WHERE_CUDA ? " on a GPU"
                        : f->lacked == WHERE_CPU  ? " on the CPU"
                                                  : "";
    return err_usage(err, "%s %s does not run live%s, for it has %s: %s%s%s", kinds[f->of],
                     names[f->of], place, f->name, f->why, f->instead != NULL ? "; set " : "",
                     f->instead != NULL ? f->instead : "");
}

int supports_system(const struct system *system, unsigned where, struct err *err) {
    const struct feature *lacked = feature_lacked(system, where);
    if (lacked != NULL) {
        return refuse(system, lacked, err);
    }
    for (uint32_t op = 0; op < system->graph.n_ops; op++) {
        if (op_check(&system->graph, &system->graph.ops[op], err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}
