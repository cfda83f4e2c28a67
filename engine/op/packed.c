#include "engine/op/packed.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/op/op.h"
#include "kernels/fp8.h"
#include "kernels/rules/keyed.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

enum group { GROUP_PLAIN, GROUP_SELECT, GROUP_BLOCK, GROUP_SILENT, GROUP_COUNT };

/* Spans whose keys were chosen attend to no more than their queries; where more are scored they are
 * being chosen. */
static enum group group_of(const struct span *span) {
    if (span->attended_keys > 0) {
        return span->attended_keys <= span->queries ? GROUP_BLOCK : GROUP_SELECT;
    }
    if (span->exact) {
        return span->phase == PHASE_PREFILL ? GROUP_PLAIN : GROUP_BLOCK;
    }
    return span->queries == 0      ? GROUP_SILENT
           : span->context > 0     ? GROUP_BLOCK
           : span->select_rows > 0 ? GROUP_SELECT
                                   : GROUP_PLAIN;
}

/* ---- layout ---- */

enum { DRAW_RULE_WORDS = sizeof(struct draw_rule) / sizeof(int64_t) };
_Static_assert(sizeof(struct draw_rule) % sizeof(int64_t) == 0, "an array of it is one of words");

static void lay_out(struct packed *packed) {
    const struct packed_counts *n = &packed->n;
    const int64_t spans = n->n_plain + n->n_select + n->n_block + n->n_silent;
    const int64_t streams = packed->features ? spans : 0;
    const int64_t stores = packed->exact ? 0 : spans;
    const int64_t decisions = n->n_take + n->n_rule;
    const int64_t elements[PACKED_ARRAY_COUNT] = {
        [PACKED_AT] = n->n_stream_tokens,
        [PACKED_CACHE_START] = packed->model->layers * stores,
        [PACKED_SCORE_START] = n->n_select,
        [PACKED_KEY] = decisions,
        [PACKED_DRAWS] = packed->draws ? n->n_logit_rows : 0,
        [PACKED_DRAW_RULES] = packed->draws ? DRAW_RULE_WORDS * n->n_logit_rows : 0,
        [PACKED_CANVAS] = decisions,
        [PACKED_TARGETS] = n->n_logit_rows,
        [PACKED_POSITIONS] = n->n_stream_tokens,
        [PACKED_KV_ROWS] = n->n_keeping_tokens,
        [PACKED_EXTENT] = packed->exact ? n->n_tokens : 0,
        [PACKED_BEFORE] = packed->exact && n->checks ? n->n_tokens : 0,
        [PACKED_PAGES] = spans * n->max_pages,
        [PACKED_OWNER] = packed->exact ? 0 : n->n_keeping_tokens,
        [PACKED_START] = spans + 1,
        [PACKED_KEPT] = stores,
        [PACKED_ROWS] = n->n_logit_rows,
        [PACKED_BLOCK_START] = n->n_select,
        [PACKED_BLOCK_END] = n->n_select,
        [PACKED_FIRST_ROW] = decisions + 1,
        [PACKED_N_ROWS] = decisions,
        [PACKED_TAKE] = decisions,
        [PACKED_THRESHOLD] = decisions,
        [PACKED_ROW_PLACES] = packed->credits || packed->smooths ? n->n_logit_rows : 0,
        [PACKED_TOKEN_PLACES] = packed->smooths ? n->n_stream_tokens : 0,
        [PACKED_STEP] = packed->smooths ? n->n_logit_rows : 0,
        [PACKED_STREAM_OWNER] = packed->features ? n->n_stream_tokens : 0,
        [PACKED_STREAM_START] = streams + packed->features,
        [PACKED_VALUE_START] = streams + packed->features,
        [PACKED_COMPARED_START] = streams + packed->features,
        [PACKED_RUN_FIRST] = streams,
        [PACKED_GIVEN] = streams,
        [PACKED_VALUE_ROWS] = packed->features ? n->n_values : 0,
        [PACKED_PATTERN_REST] = packed->patterns ? n->n_select : 0,
        [PACKED_PATTERN_KEEP] = packed->patterns ? n->n_select : 0,
        [PACKED_PATTERN_KEEP_REST] = packed->patterns ? n->n_select : 0,
        [PACKED_KEPT_TOKENS] = packed->evicts ? n->n_tokens : 0,
        [PACKED_MASKED] = packed->evicts ? n->n_tokens : 0,
    };
    packed->bytes = 0;
    for (int array = 0; array < PACKED_ARRAY_COUNT; array++) {
        size_t width = array <= PACKED_TARGETS  ? sizeof(int64_t)
                       : array == PACKED_MASKED ? sizeof(uint8_t)
                                                : sizeof(int32_t);
        packed->offset_bytes[array] = packed->bytes;
        packed->bytes += align_up(elements[array] * (int64_t)width, PACKED_ALIGN_BYTES);
    }
}

static int32_t table_width(int32_t n_pages) {
    int32_t width = 1;
    while (width < n_pages) {
        width *= 2;
    }
    return width;
}

static int open_pages(struct packed *packed, const struct graph *graph, struct err *err) {
    const struct step_limits *limits = &packed->limits;
    const int64_t page_rows = limits->page_rows;
    if (!packed_takes_pages(page_rows)) {
        return err_usage(err,
                         "pages of %" PRId64 " rows, but the kernels take a power of two from 4 to "
                         "256",
                         page_rows);
    }
    const struct model *model = graph->model;
    const int64_t n_global = model_global_layers(model);
    const int64_t row_bytes =
        2 * packed->element_bytes *
        ((model->layers - n_global) * model->kv_heads * packed->head_elements +
         n_global * packed->global_row_elements);
    packed->pool_pages = limits->pool_bytes / (row_bytes * page_rows);
    if (packed->pool_pages > INT32_MAX / page_rows) {
        return err_usage(err, "a pool of %" PRId64 " rows, but rows are numbered up to %d",
                         packed->pool_pages * page_rows, INT32_MAX);
    }
    packed->n.max_pages = table_width((int32_t)ceil_div(limits->max_positions, page_rows));
    return 0;
}

int packed_open(struct packed *packed, const struct graph *graph, const struct step_limits *limits,
                struct err *err) {
    const unsigned facts = op_facts(graph);
    int32_t n_requests = (int32_t)limits->max_requests, n_tokens = (int32_t)limits->max_tokens;
    int32_t n_stream = facts & OP_PICKS ? (int32_t)limits->max_stream_tokens : n_tokens;
    *packed = (struct packed){
        .model = graph->model,
        .limits = *limits,
        .pool_elements = limits->pool_bytes / graph_cache_element_bytes(graph),
        .element_bytes = graph_cache_element_bytes(graph),
        .state_elements =
            graph->model->hidden * graph_element_bytes(graph) / graph_cache_element_bytes(graph),
        .head_elements =
            fp8_head_elements(graph->model->head_dim, graph->storage.cache == NUMBER_FP8),
        .global_row_elements =
            (int64_t)graph->model->global_kv_heads * graph->model->global_head_dim,
        .selects = facts & OP_SELECTS,
        .exact = facts & OP_IS_PAGED,
        .evicts = facts & OP_EVICTS,
        .credits = facts & OP_GIVES_CREDIT,
        .smooths = facts & OP_SMOOTHS,
        .draws = facts & OP_DRAWS,
        .features = facts & OP_PICKS,
        .patterns = facts & OP_PATTERNS,
        .joins = facts & OP_JOINS,
        /* The most of everything, for the size. */
        .n = {.n_plain = n_requests,
              .n_select = n_requests,
              .n_tokens = n_tokens,
              .n_stream_tokens = n_stream,
              .n_values = n_stream,
              .n_logit_rows = (int32_t)limits->max_logit_rows,
              .n_keeping_tokens = n_tokens,
              .n_take = n_requests,
              .checks = 1},
    };
    if (packed->exact && open_pages(packed, graph, err) != 0) {
        return err_status(err);
    }
    lay_out(packed);
    packed->max_bytes = packed->bytes;
    packed->decision_of = mem_zeroed(limits->max_requests, sizeof *packed->decision_of);
    packed->first_token = mem_zeroed(limits->max_requests, sizeof *packed->first_token);
    packed->first_stream = mem_zeroed(limits->max_requests, sizeof *packed->first_stream);
    return 0;
}

void packed_close(struct packed *packed) {
    free(packed->decision_of);
    free(packed->first_token);
    free(packed->first_stream);
    *packed = (struct packed){0};
}

/* ---- counting ---- */

int32_t packed_count_masked(const struct step_part *part, uint32_t queries) {
    int32_t n = 0;
    for (uint32_t t = 0; part->masked != NULL && t < queries; t++) {
        n += part->masked[t] != 0;
    }
    return n;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Tokens of the residual stream. */
static int32_t n_stream_of(const struct packed *packed, const struct span *span) {
    return (int32_t)(packed->features ? span->first_queries : span->queries);
}

/* Rows whose values are projected. */
static int32_t n_values(const struct span *span) {
    return (int32_t)(span->value_rows > 0 ? span->value_rows : span->queries);
}

void packed_lay_out(struct packed *packed, const struct step *step) {
    struct packed_counts *n = &packed->n;
    bool keeps = packed->exact || packed->features;
    int32_t n_pages = 0;
    *n = (struct packed_counts){.rank = step->rule.rank,
                                .temperature = step->rule.temperature,
                                .penalty = step->rule.penalty};
    for (uint32_t i = 0; i < step->shape->n_spans; i++) {
        const struct span *span = step->shape->spans[i];
        const struct step_part *part = &step->parts[i];
        const struct decision *decision = &part->decision;
        int32_t queries = (int32_t)span->queries;
        enum group group = group_of(span);
        n->n_plain += group == GROUP_PLAIN;
        n->n_select += group == GROUP_SELECT;
        n->n_block += group == GROUP_BLOCK;
        n->n_silent += group == GROUP_SILENT;
        n->n_tokens += queries;
        n->n_plain_tokens += group == GROUP_PLAIN ? queries : 0;
        n->n_full_tokens += group < GROUP_BLOCK ? queries : 0;
        n->n_stream_tokens += n_stream_of(packed, span);
        n->max_stream_tokens = larger(n->max_stream_tokens, n_stream_of(packed, span));
        n->n_values += packed->features ? n_values(span) : 0;
        n->max_compared = larger(n->max_compared, (int32_t)span->value_rows);
        n->n_logit_rows += (int32_t)span->logit_rows;
        if (packed->patterns && group == GROUP_SELECT) {
            n->max_candidates = larger(n->max_candidates, queries);
        }
        int32_t *longest = group >= GROUP_BLOCK ? &n->max_block_tokens : &n->max_full_tokens;
        *longest = larger(*longest, queries);
        n->max_candidates = larger(n->max_candidates, (int32_t)span->select_rows);
        bool may_keep = group == GROUP_PLAIN || packed->limits.renews_rows;
        keeps = keeps || (may_keep && part->kv_rows != NULL && part->kv.n_rows > 0);
        n_pages = larger(n_pages, part->kv_pages.n_pages);
        n->checks = n->checks || part->kv_pages.before != NULL;
        if (packed->evicts) {
            n->max_masked = larger(n->max_masked, packed_count_masked(part, span->queries));
        }
        if (decision->n_rows > 0) {
            int32_t *most = decision->take > 0 ? &n->max_take_rows : &n->max_rule_rows;
            *most = larger(*most, (int32_t)decision->n_rows);
            n->n_take += decision->take > 0;
            n->n_rule += decision->take == 0;
        }
    }
    bool all_keep = packed->exact || packed->features || packed->limits.renews_rows;
    n->n_keeping_tokens = !keeps ? 0 : all_keep ? n->n_tokens : n->n_plain_tokens;
    n->max_pages = packed->exact ? table_width(n_pages) : 0;
    if (n->n_rule > 0) {
        n->rule = step->rule.kind;
        n->slack = step->rule.slack;
        n->low = step->rule.low;
        n->factor = step->rule.factor;
        n->bound = step->rule.bound;
        n->edit = step->rule.kind == DECODE_JOINT ? step->rule.edit : 0;
    }
    n->credit = packed->credits ? step->credit : (struct decode_credit){0};
    lay_out(packed);
}

/* ---- filling ---- */

/* What was filled so far, and where the arrays lie. */
struct filling {
    struct packed *packed;
    const struct step *step;
    const struct packed *whole;
    unsigned char *out;
    int32_t n_spans, n_tokens, n_selecting, n_candidates;
    int32_t n_stream, n_values, n_compared;
};

static void *array(const struct filling *f, enum packed_array array) {
    return f->out + f->packed->offset_bytes[array];
}

/* Where tokens stand, which of them an eviction kept or may leave out, and what is kept of their
 * keys and values in stores. */
static void append_tokens(const struct filling *f, uint32_t i) {
    const struct step_part *part = &f->step->parts[i];
    const int32_t n = (int32_t)f->step->shape->spans[i]->queries;
    const int32_t n_stream = n_stream_of(f->packed, f->step->shape->spans[i]);
    int64_t *at = (int64_t *)array(f, PACKED_AT) + f->n_stream;
    int32_t *positions = (int32_t *)array(f, PACKED_POSITIONS) + f->n_stream;
    for (int32_t t = 0; t < n_stream; t++) {
        at[t] = part->canvas + (part->tokens != NULL ? part->tokens : part->positions)[t];
        positions[t] = part->positions[t];
    }
    int32_t *places = (int32_t *)array(f, PACKED_TOKEN_PLACES) + f->n_stream;
    for (int32_t t = 0; f->packed->smooths && t < n_stream; t++) {
        places[t] = part->token_places != NULL ? part->token_places[t] : -1;
    }
    int32_t *kept = (int32_t *)array(f, PACKED_KEPT_TOKENS) + f->n_tokens;
    uint8_t *masked = (uint8_t *)array(f, PACKED_MASKED) + f->n_tokens;
    int32_t first = f->whole != NULL ? f->whole->first_token[i] : f->n_tokens;
    for (int32_t t = 0; f->packed->evicts && t < n; t++) {
        kept[t] = first + (part->kept != NULL ? part->kept[t] : t);
        masked[t] = part->masked != NULL && part->masked[t];
    }
    int32_t *kv_rows = (int32_t *)array(f, PACKED_KV_ROWS) + f->n_tokens;
    int32_t *owner = (int32_t *)array(f, PACKED_OWNER) + f->n_tokens;
    bool may_keep = !f->packed->exact && f->n_tokens < f->packed->n.n_keeping_tokens;
    for (int32_t t = 0; may_keep && t < n; t++) {
        kv_rows[t] = part->kv_rows != NULL ? part->kv_rows[t] : -1;
        owner[t] = f->n_spans;
    }
}

/* Which rows of the stream run after the first layer. */
static void append_run(struct filling *f, uint32_t i) {
    const struct span *span = f->step->shape->spans[i];
    const struct feature_run *run = &f->step->parts[i].run;
    const int32_t n = n_values(span);
    int32_t *owner = (int32_t *)array(f, PACKED_STREAM_OWNER) + f->n_stream;
    int32_t *rows = (int32_t *)array(f, PACKED_VALUE_ROWS) + f->n_values;
    for (uint32_t t = 0; t < span->first_queries; t++) {
        owner[t] = f->n_spans;
    }
    for (int32_t v = 0; v < n; v++) {
        rows[v] = f->n_stream + run->first + v;
    }
    ((int32_t *)array(f, PACKED_RUN_FIRST))[f->n_spans] = run->first;
    ((int32_t *)array(f, PACKED_GIVEN))[f->n_spans] = run->given;
    f->n_values += n;
    f->n_compared += (int32_t)span->value_rows;
    ((int32_t *)array(f, PACKED_STREAM_START))[f->n_spans + 1] =
        f->n_stream + (int32_t)span->first_queries;
    ((int32_t *)array(f, PACKED_VALUE_START))[f->n_spans + 1] = f->n_values;
    ((int32_t *)array(f, PACKED_COMPARED_START))[f->n_spans + 1] = f->n_compared;
}

/* Rows of the pool for the tokens' keys and values, what they attend to, and the page table. */
static void append_pages(const struct filling *f, uint32_t i) {
    const struct step_part *part = &f->step->parts[i];
    const struct kv_pages *kv = &part->kv_pages;
    const int32_t page_rows = (int32_t)f->packed->limits.page_rows;
    const int32_t width = f->packed->n.max_pages;
    int32_t *kv_rows = (int32_t *)array(f, PACKED_KV_ROWS) + f->n_tokens;
    int32_t *extent = (int32_t *)array(f, PACKED_EXTENT) + f->n_tokens;
    int32_t *before = (int32_t *)array(f, PACKED_BEFORE) + f->n_tokens;
    int32_t *pages = (int32_t *)array(f, PACKED_PAGES) + (int64_t)f->n_spans * width;
    for (uint32_t t = 0; t < f->step->shape->spans[i]->queries; t++) {
        const int32_t row = (kv->rows != NULL ? kv->rows : part->positions)[t];
        const int32_t page = row / page_rows;
        const bool writes = !kv->reads_only && (kv->writes == NULL || kv->writes[page]);
        kv_rows[t] = writes ? kv->pages[page] * page_rows + row % page_rows : -1;
        extent[t] = kv->extent[t];
        if (f->packed->n.checks) {
            before[t] = kv->before != NULL ? kv->before[t] : kv->extent[t] - 1;
        }
    }
    for (int32_t page = 0; page < width; page++) {
        pages[page] = page < kv->n_pages ? kv->pages[page] : 0;
    }
}

/* Where the span's store lies, and what it selects for it. */
static void append_store(struct filling *f, uint32_t i) {
    const struct model *model = f->packed->model;
    const struct span *span = f->step->shape->spans[i];
    const struct step_part *part = &f->step->parts[i];
    int64_t *cache_start = array(f, PACKED_CACHE_START);
    ((int32_t *)array(f, PACKED_KEPT))[f->n_spans] = part->kv.n_rows;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        cache_start[(int64_t)layer * f->step->shape->n_spans + f->n_spans] =
            part->kv.first + layer * packed_layer_elements(f->packed, part->kv.n_rows);
    }
    if (group_of(span) == GROUP_SELECT && f->packed->patterns) {
        ((int32_t *)array(f, PACKED_PATTERN_REST))[f->n_selecting] = part->pattern.rest;
        ((int32_t *)array(f, PACKED_PATTERN_KEEP))[f->n_selecting] = part->pattern.keep;
        ((int32_t *)array(f, PACKED_PATTERN_KEEP_REST))[f->n_selecting] = part->pattern.keep_rest;
    }
    if (group_of(span) == GROUP_SELECT) {
        ((int32_t *)array(f, PACKED_BLOCK_START))[f->n_selecting] = (int32_t)part->block_start;
        ((int32_t *)array(f, PACKED_BLOCK_END))[f->n_selecting] = (int32_t)part->block_end;
        ((int64_t *)array(f, PACKED_SCORE_START))[f->n_selecting] = f->n_candidates;
        f->n_selecting++;
        f->n_candidates += (int32_t)span->select_rows;
    }
}

/* The tokens of the logit rows and what they decide on, in batch order. */
static void fill_rows(const struct filling *f) {
    int32_t *rows = array(f, PACKED_ROWS);
    int32_t *places = array(f, PACKED_ROW_PLACES), *steps = array(f, PACKED_STEP);
    bool has_places = f->packed->credits || f->packed->smooths;
    int64_t *targets = array(f, PACKED_TARGETS);
    uint64_t *draws = array(f, PACKED_DRAWS);
    struct draw_rule *rules = array(f, PACKED_DRAW_RULES);
    for (uint32_t i = 0; i < f->step->shape->n_spans; i++) {
        const struct span *span = f->step->shape->spans[i];
        const struct step_part *part = &f->step->parts[i];
        for (uint32_t r = 0; r < span->logit_rows; r++) {
            int32_t query = part->logit_rows != NULL ? part->logit_rows[r] : (int32_t)r;
            *rows++ = f->packed->first_stream[i] + query;
            int32_t target = part->targets != NULL ? part->targets[r] : part->positions[query];
            *targets++ = part->canvas + target;
            if (f->packed->draws) {
                *draws++ = keyed_bits(part->draw_key, (uint64_t)target);
                *rules++ = part->drawing;
            }
            if (has_places) {
                *places++ = part->row_places != NULL ? part->row_places[r] : -1;
            }
            if (f->packed->smooths) {
                *steps++ = (int32_t)part->steps;
            }
        }
    }
}

static void fill_decisions(const struct filling *f) {
    int32_t by_take = 0, by_rule = f->packed->n.n_take, row = 0;
    for (uint32_t i = 0; i < f->step->shape->n_spans; i++) {
        const struct decision *decision = &f->step->parts[i].decision;
        f->packed->decision_of[i] = -1;
        if (decision->n_rows > 0) {
            int32_t at = decision->take > 0 ? by_take++ : by_rule++;
            uint32_t take = decision->take > 0 ? decision->take : decision->least;
            take = take < decision->n_rows ? take : decision->n_rows;
            f->packed->decision_of[i] = at;
            ((int32_t *)array(f, PACKED_FIRST_ROW))[at] = row + (int32_t)decision->first_row;
            ((int32_t *)array(f, PACKED_N_ROWS))[at] = (int32_t)decision->n_rows;
            ((int32_t *)array(f, PACKED_TAKE))[at] = (int32_t)take;
            ((float *)array(f, PACKED_THRESHOLD))[at] = decision->threshold;
            ((int64_t *)array(f, PACKED_KEY))[at] = (int64_t)decision->key;
            ((int64_t *)array(f, PACKED_CANVAS))[at] = f->step->parts[i].canvas;
        }
        row += (int32_t)f->step->shape->spans[i]->logit_rows;
    }
}

void packed_fill(struct packed *packed, const struct step *step, const struct packed *whole,
                 unsigned char *out) {
    struct filling f = {.packed = packed, .step = step, .whole = whole, .out = out};
    int32_t *start = array(&f, PACKED_START);
    start[0] = 0;
    if (packed->features) {
        *(int32_t *)array(&f, PACKED_STREAM_START) = *(int32_t *)array(&f, PACKED_VALUE_START) =
            *(int32_t *)array(&f, PACKED_COMPARED_START) = 0;
    }
    for (int group = 0; group < GROUP_COUNT; group++) {
        for (uint32_t i = 0; i < step->shape->n_spans; i++) {
            if ((int)group_of(step->shape->spans[i]) != group) {
                continue;
            }
            append_tokens(&f, i);
            packed->first_token[i] = f.n_tokens;
            packed->first_stream[i] = f.n_stream;
            if (packed->features) {
                append_run(&f, i);
            }
            if (packed->exact) {
                append_pages(&f, i);
            } else {
                append_store(&f, i);
            }
            f.n_tokens += (int32_t)step->shape->spans[i]->queries;
            f.n_stream += n_stream_of(packed, step->shape->spans[i]);
            start[++f.n_spans] = f.n_tokens;
        }
    }
    fill_rows(&f);
    fill_decisions(&f);
}
