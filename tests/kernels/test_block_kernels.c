/* The plain-C kernels of block diffusion: attention over pages, FOCUS's importance, and the rows
 * that an eviction leaves. */
#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

static void fill(float *x, int n, const char *stream) {
    struct rng rng = rng_stream(5, stream);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

enum { SIZE = 4, HEADS = 4, KV_HEADS = 2, PAGE_ROWS = 4, PAGES = 9, MAX_PAGES = 4, TOKENS = 7 };

/* Request 0: three queries of one extent (a block). Request 1: none. Request 2: four queries, each
 * of its own extent (causal). */
struct paged {
    float q[TOKENS][HEADS][SIZE], y[TOKENS][HEADS][SIZE];
    float k[PAGES * PAGE_ROWS][KV_HEADS][SIZE], v[PAGES * PAGE_ROWS][KV_HEADS][SIZE];
    int32_t start[4], extent[TOKENS], pages[3][MAX_PAGES];
    struct call_paged_attention call;
};

static void paged_init(struct paged *p) {
    *p = (struct paged){.start = {0, 3, 3, TOKENS},
                        .extent = {9, 9, 9, 12, 13, 14, 15},
                        .pages = {{3, 0, 7, -9}, {-9, -9, -9, -9}, {8, 2, 5, 1}}};
    fill(&p->q[0][0][0], TOKENS * HEADS * SIZE, "q");
    fill(&p->k[0][0][0], PAGES * PAGE_ROWS * KV_HEADS * SIZE, "k");
    fill(&p->v[0][0][0], PAGES * PAGE_ROWS * KV_HEADS * SIZE, "v");
    p->call =
        MAKE(struct call_paged_attention, .q = p->q, .k = p->k, .v = p->v, .y = p->y,
             .start = p->start, .extent = p->extent, .pages = p->pages[0], .q_stride = HEADS * SIZE,
             .kv_stride = KV_HEADS * SIZE, .y_stride = HEADS * SIZE, .n_requests = 3,
             .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_size = SIZE, .max_pages = MAX_PAGES,
             .page_rows = PAGE_ROWS, .max_queries = 4, .max_extent = 15, .dtype = KERNEL_F32);
}

static int pool_row(const struct paged *p, int r, int row) {
    return p->pages[r][row / PAGE_ROWS] * PAGE_ROWS + row % PAGE_ROWS;
}

/* Both implementations, over the rows up to each query's extent but those that `before` leaves out.
 */
static void averages_what_it_sees(struct paged *p) {
    for (int reference = 0; reference < 2; reference++) {
        memset(p->y, 0xff, sizeof p->y);
        if (reference) {
            ck_assert(ref_paged_attention(&p->call));
        } else {
            cpu_paged_attention(&(struct cpu_room){0}, &p->call);
        }
        for (int i = 0; i < TOKENS * HEADS * SIZE; i++) {
            const int t = i / SIZE / HEADS, h = i / SIZE % HEADS, d = i % SIZE;
            const int32_t last = p->extent[t] - 1,
                          before = p->call.before ? p->call.before[t] : last;
            double above = 0, below = 0;
            for (int j = 0; j <= last; j++) {
                const int row = pool_row(p, t < 3 ? 0 : 2, j);
                double dot = 0;
                for (int e = 0; e < SIZE; e++) {
                    dot += (double)p->q[t][h][e] * (double)p->k[row][h / 2][e];
                }
                const double weight = j < before || j == last ? exp(dot / 2) : 0;
                above += weight * (double)p->v[row][h / 2][d];
                below += weight;
            }
            ck_assert_double_eq_tol(p->y[t][h][d], above / below, 1e-6);
        }
    }
}

TEST(paged_attention_averages_the_values_a_page_table_names) {
    struct paged p;
    paged_init(&p);
    averages_what_it_sees(&p);
}

/* A block of three whose drafts see what is before them, and two masks that leave the drafts after
 * them out: their rows come last. */
TEST(masks_attend_to_the_drafts_before_them_and_to_themselves) {
    const int32_t extent[TOKENS] = {9, 9, 9, 10, 11, 14, 15},
                  before[TOKENS] = {8, 0, 8, 9, 10, 9, 10};
    struct paged p;
    paged_init(&p);
    memcpy(p.extent, extent, sizeof extent);
    p.call.before = before;
    averages_what_it_sees(&p);
}

TEST(on_the_cpu_pages_and_one_run_of_keys_give_the_same_bits) {
    struct paged p;
    paged_init(&p);
    float k[9][KV_HEADS][SIZE], v[9][KV_HEADS][SIZE], q[9][HEADS][SIZE], y[9][HEADS][SIZE];
    const int32_t start[2] = {0, 9};
    memset(q, 0, sizeof q);
    for (int row = 0; row < 9; row++) {
        memcpy(k[row], p.k[pool_row(&p, 0, row)], sizeof k[row]);
        memcpy(v[row], p.v[pool_row(&p, 0, row)], sizeof v[row]);
    }
    memcpy(q[6], p.q[0], 3 * sizeof q[0]);
    struct call_dense_attention dense =
        MAKE(struct call_dense_attention, .q = q, .k = k, .v = v, .y = y, .start = start,
             .q_stride = HEADS * SIZE, .kv_stride = KV_HEADS * SIZE, .y_stride = HEADS * SIZE,
             .n_requests = 1, .n_tokens = 9, .n_heads = HEADS, .n_kv_heads = KV_HEADS,
             .head_size = SIZE, .max_tokens = 9, .dtype = KERNEL_F32);
    float query[SIZE];
    const struct cpu_room room = {.inputs = query};
    cpu_dense_attention(&room, &dense);
    cpu_paged_attention(&room, &p.call);
    ck_assert_mem_eq(p.y[0], y[6], 3 * sizeof y[0]);
}

TEST(importance_is_what_masked_tokens_pay_to_masked_tokens) {
    enum { T = 6 };
    float q[T][HEADS][SIZE], k[2 * T][KV_HEADS][SIZE], importance[T];
    const int32_t start[3] = {0, 1, T}, rows[T] = {11, 2, 0, 7, 5, 3};
    const uint8_t masked[T] = {1, 0, 1, 1, 0, 1};
    fill(&q[0][0][0], T * HEADS * SIZE, "q");
    fill(&k[0][0][0], 2 * T * KV_HEADS * SIZE, "k");
    struct call_importance call =
        MAKE(struct call_importance, .q = q, .k = k, .kv_rows = rows, .start = start,
             .masked = masked, .importance = importance, .q_stride = HEADS * SIZE,
             .kv_stride = KV_HEADS * SIZE, .n_requests = 2, .n_heads = HEADS,
             .n_kv_heads = KV_HEADS, .head_size = SIZE, .max_masked = 3, .dtype = KERNEL_F32);
    ref_importance(&call);
    const int list[3] = {2, 3, 5};
    double want[3] = {0};
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < 3; i++) {
            double s[3], e[3], all = 0;
            for (int j = 0; j < 3; j++) {
                s[j] = 0;
                for (int d = 0; d < SIZE; d++) {
                    s[j] += (double)q[list[i]][h][d] * (double)k[rows[list[j]]][h / 2][d] / 2;
                }
            }
            e[0] = exp(fmax(s[0], s[1]));
            e[1] = exp(fmax(s[0], fmax(s[1], s[2])));
            e[2] = exp(fmax(s[1], s[2]));
            all = e[0] + e[1] + e[2];
            for (int j = 0; j < 3; j++) {
                want[j] += e[j] / all;
            }
        }
    }
    ck_assert_float_eq(importance[0], HEADS); /* the only masked token of its request */
    ck_assert(importance[1] == 0 && importance[4] == 0);
    for (int j = 0; j < 3; j++) {
        ck_assert_double_eq_tol(importance[list[j]], want[j], 1e-6);
    }
}

TEST(compaction_gathers_rows_of_several_arrays) {
    float a[4][8], b[4][16], to_a[3][8], to_b[3][24];
    const int32_t rows[3] = {1, 3, 0}, n_rows[1] = {2};
    fill(a[0], 32, "a");
    fill(b[0], 64, "b");
    memset(to_a, 0, sizeof to_a);
    memset(to_b, 0, sizeof to_b);
    struct call_compact call =
        MAKE(struct call_compact, .rows = rows, .n_rows = n_rows, .from = {a, b},
             .to = {to_a, to_b}, .from_stride = {8, 16}, .to_stride = {8, 24}, .width = {8, 16},
             .n_arrays = 2, .max_rows = 3, .dtype = KERNEL_F32);
    ref_compact(&call);
    ck_assert_mem_eq(to_a[0], a[1], sizeof a[1]);
    ck_assert_mem_eq(to_a[1], a[3], sizeof a[3]);
    ck_assert_mem_eq(to_b[1], b[3], sizeof b[3]);
    ck_assert(to_a[2][0] == 0 && to_b[1][16] == 0 && to_b[2][0] == 0);
    call.n_rows = NULL;
    ref_compact(&call);
    ck_assert_mem_eq(to_a[2], a[0], sizeof a[0]);
}

TEST(the_cpu_runs_all_of_them) {
    struct device *cpu;
    char text[DEVICE_TEXT_CHARS];
    struct paged p;
    paged_init(&p);
    ck_assert_int_eq(device_cpu.open(0, KERNEL_F32, &cpu, text), DEVICE_OK);
    ck_assert_int_eq(device_cpu.paged_attention(cpu, &p.call), DEVICE_OK);
    device_cpu.close(cpu);
}

SUITE("block_kernels")
