/* What a point's calls read besides data: where requests start, what they keep, who decides. */
#include "engine/calibrate/measure_impl.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"

static void *on_host(const struct measure *m, enum array array) {
    return m->host + (int64_t)array * array_bytes(m);
}

/* Requests of `size` tokens each, the last one of what is left. */
static void split_requests(struct measure *m, int64_t n_tokens, int64_t size) {
    int32_t *start = on_host(m, ARRAY_START), *owner = on_host(m, ARRAY_OWNER);
    m->n_requests = (int32_t)ceil_div(n_tokens, size);
    m->n_tokens = (int32_t)n_tokens;
    m->longest = (int32_t)(n_tokens < size ? n_tokens : size);
    for (int32_t r = 0; r <= m->n_requests; r++) {
        start[r] = (int32_t)(r < m->n_requests ? r * size : n_tokens);
    }
    for (int32_t t = 0; t < m->n_tokens; t++) {
        owner[t] = (int32_t)(t / size);
    }
}

/* Each request's store behind the one before; what it keeps stands in ARRAY_KEPT. */
static void place_stores(struct measure *m) {
    const int32_t *kept = on_host(m, ARRAY_KEPT);
    int64_t *cache_start = on_host(m, ARRAY_CACHE_START), end = 0;
    int64_t kv_row = 2LL * m->model->kv_heads * m->model->head_dim;
    for (int32_t r = 0; r < m->n_requests; r++) {
        cache_start[r] = end;
        end += kept[r] * kv_row;
    }
    m->copy_bytes = end * m->element_bytes;
}

/* Contexts of a batch are never equal: from 0.6 to 1.4 times `mean`, mixed, of the same sum. */
static void spread_contexts(int32_t *kept, int32_t n, int64_t mean) {
    int64_t left = n * mean;
    for (int32_t r = 0; r < n; r++) {
        double at = ((double)(r * 5LL % n) + 0.5) / n;
        int64_t rows = n == 1 ? mean : (int64_t)((double)mean * (0.6 + 0.8 * at));
        kept[r] = (int32_t)larger(1, rows < left ? rows : left);
        left -= kept[r];
    }
    kept[0] += (int32_t)larger(0, left);
}

static void prepare_block(struct measure *m) {
    int32_t *kept = on_host(m, ARRAY_KEPT);
    const int64_t *sizes = m->point->sizes;
    split_requests(m, sizes[POINT_BATCH] * sizes[POINT_Q], sizes[POINT_Q]);
    spread_contexts(kept, m->n_requests, sizes[POINT_KV]);
    place_stores(m);
}

/* Pages as requests that grow side by side take them: everybody's first, then everybody's second.
 * As many rows each as ARRAY_KEPT says. */
static void place_pages(struct measure *m) {
    const int32_t *kept = on_host(m, ARRAY_KEPT);
    int32_t *pages = on_host(m, ARRAY_PAGES), next = 0, most = 1;
    const int32_t page_rows = (int32_t)m->bounds.page_rows;
    for (int32_t r = 0; r < m->n_requests; r++) {
        most = (int32_t)larger(most, ceil_div(kept[r], page_rows));
    }
    for (m->max_pages = 1; m->max_pages < most;) {
        m->max_pages *= 2;
    }
    ASSERT((int64_t)m->n_requests * m->max_pages * (int64_t)sizeof *pages <=
           ARRAY_PAGES_PLACES * array_bytes(m));
    for (int32_t page = 0; page < m->max_pages; page++) {
        for (int32_t r = 0; r < m->n_requests; r++) {
            bool has = page < ceil_div(kept[r], page_rows);
            pages[(int64_t)r * m->max_pages + page] = has ? next++ : 0;
        }
    }
    m->pool_rows = (int64_t)next * page_rows;
    m->copy_bytes = 2 * m->pool_rows * m->model->kv_heads * m->model->head_dim * m->element_bytes;
}

/* q queries of each request after rows whose mean is `context`: a prefill, each of whose queries
 * sees no further than the model's mask, or a block that is seen whole. */
static void prepare_paged(struct measure *m, int64_t context, bool is_prefill) {
    int32_t *kept = on_host(m, ARRAY_KEPT), *extent = on_host(m, ARRAY_EXTENT);
    const int64_t *sizes = m->point->sizes;
    const int32_t q = (int32_t)sizes[POINT_Q];
    const int32_t block = m->model->mask == MASK_CAUSAL ? 1 : (int32_t)m->model->block_tokens;
    split_requests(m, sizes[POINT_BATCH] * q, q);
    for (int32_t r = 0; r < m->n_requests; r++) {
        kept[r] = 0;
    }
    if (context > 0) {
        spread_contexts(kept, m->n_requests, context);
    }
    for (int32_t r = 0; r < m->n_requests; r++) {
        for (int32_t i = 0; i < q; i++) {
            int32_t end = is_prefill ? (i / block + 1) * block : q;
            extent[r * q + i] = kept[r] + (end < q ? end : q);
        }
        kept[r] += q;
    }
    place_pages(m);
}

/* Every token is kept in the order in which it stands. */
static void prepare_keep(struct measure *m, int64_t rows) {
    int32_t *kept = on_host(m, ARRAY_KEPT), *kv_rows = on_host(m, ARRAY_KV_ROWS);
    const int32_t *start = on_host(m, ARRAY_START);
    split_requests(m, rows, SELECT_CANVAS_TOKENS);
    for (int32_t r = 0; r < m->n_requests; r++) {
        kept[r] = start[r + 1] - start[r];
        for (int32_t t = start[r]; t < start[r + 1]; t++) {
            kv_rows[t] = t - start[r];
        }
    }
    place_stores(m);
}

/* The active block stands first, candidates behind it, which are the requests' in equal parts. */
static void prepare_select(struct measure *m, int64_t n_candidates) {
    int32_t *start = on_host(m, ARRAY_START), *kept = on_host(m, ARRAY_KEPT);
    int32_t *block_start = on_host(m, ARRAY_BLOCK_START), *block_end = on_host(m, ARRAY_BLOCK_END);
    int64_t *score_start = on_host(m, ARRAY_SCORE_START);
    int64_t block = m->model->block_tokens;
    int64_t n = calibration_select_requests(n_candidates, block);
    m->n_requests = (int32_t)n;
    m->longest = 0;
    for (int64_t r = 0; r < n; r++) {
        int64_t first = n_candidates * r / n, candidates = n_candidates * (r + 1) / n - first;
        start[r] = (int32_t)(first + r * block);
        score_start[r] = first;
        block_start[r] = 0;
        block_end[r] = (int32_t)block;
        kept[r] = (int32_t)(m->keeps_half ? larger(1, candidates / 2) : 1);
        m->longest = (int32_t)larger(m->longest, candidates);
    }
    start[n] = m->n_tokens = (int32_t)(n_candidates + n * block);
    place_stores(m);
}

/* Every position stays masked, because the mask token is what is committed there. */
static void prepare_decode(struct measure *m, int64_t rows) {
    int32_t *first_row = on_host(m, ARRAY_FIRST_ROW), *n_rows = on_host(m, ARRAY_N_ROWS);
    int32_t *take = on_host(m, ARRAY_TAKE), *token = on_host(m, ARRAY_TOKEN);
    int32_t *canvas = on_host(m, ARRAY_CANVAS);
    const int32_t *start = on_host(m, ARRAY_START);
    int64_t *at = on_host(m, ARRAY_AT);
    float *confidence = on_host(m, ARRAY_CONFIDENCE);
    split_requests(m, rows, m->model->block_tokens);
    for (int32_t r = 0; r < m->n_requests; r++) {
        first_row[r] = start[r];
        n_rows[r] = start[r + 1] - start[r];
        take[r] = 1;
    }
    for (int64_t i = 0; i < rows; i++) {
        token[i] = canvas[i] = (int32_t)m->model->mask_token;
        at[i] = i;
        confidence[i] = (float)rng_keyed(1, 0, 0, (uint64_t)i);
    }
}

static void prepare_rows(struct measure *m, int64_t rows) {
    int32_t *ids = on_host(m, ARRAY_IDS), *positions = on_host(m, ARRAY_POSITIONS);
    int32_t *kv_rows = on_host(m, ARRAY_KV_ROWS);
    int64_t *at = on_host(m, ARRAY_AT);
    m->n_tokens = (int32_t)rows;
    m->copy_bytes = rows * m->model->hidden * m->element_bytes;
    if (m->point->pass == PASS_ROPE && calibration_is_exact(m->model)) {
        m->pool_rows = rows;
        m->copy_bytes = 2 * rows * m->model->kv_heads * m->model->head_dim * m->element_bytes;
    }
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(rng_keyed(2, 0, 0, (uint64_t)i) * m->model->vocab);
        positions[i] = (int32_t)(i % MEASURE_MAX_ANGLES);
        kv_rows[i] = (int32_t)i;
        at[i] = i;
    }
}

bool measure_prepare(struct measure *m, const struct calibration_point *point) {
    const int64_t *sizes = point->sizes;
    m->point = point;
    if (point->op == PROFILE_MOE) {
        m->n_tokens = (int32_t)sizes[POINT_MOE_TOKENS];
        return false;
    }
    if (point->op == PROFILE_GEMM || point->op == PROFILE_HEAD || point->op == PROFILE_GATE_UP) {
        return false;
    }
    if (point->op == PROFILE_ATTENTION_FULL) {
        split_requests(m, sizes[POINT_BATCH] * sizes[POINT_Q], sizes[POINT_Q]);
    } else if (point->op == PROFILE_ATTENTION_CAUSAL) {
        prepare_paged(m, sizes[POINT_KV] - sizes[POINT_Q], true);
    } else if (point->op == PROFILE_ATTENTION_BLOCK && calibration_is_exact(m->model)) {
        prepare_paged(m, sizes[POINT_KV], false);
    } else if (point->op == PROFILE_ATTENTION_BLOCK) {
        prepare_block(m);
    } else if (point->op == PROFILE_PASS && point->pass == PASS_KEEP) {
        prepare_keep(m, sizes[POINT_PASS_ROWS]);
    } else if (point->op == PROFILE_PASS && point->pass == PASS_SELECT) {
        prepare_select(m, sizes[POINT_PASS_ROWS]);
    } else if (point->op == PROFILE_PASS && point->pass == PASS_PACK) {
        prepare_select(m, 2 * sizes[POINT_PASS_ROWS]);
    } else if (point->op == PROFILE_PASS && point->pass == PASS_DECODE) {
        prepare_decode(m, sizes[POINT_PASS_ROWS]);
    } else if (point->op == PROFILE_PASS) {
        prepare_rows(m, sizes[POINT_PASS_ROWS]);
    }
    return true;
}
