/* The plain-C kernels of block diffusion: attention over pages, the tokens of a step, FOCUS's
 * importance and every rule of its choice. */
#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref.h"
#include "kernels/work.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

static void fill(float *x, int n, const char *stream) {
    struct rng rng = rng_stream(5, stream);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

/* ---- paged attention ---- */

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
    p->call = (struct call_paged_attention){.q = p->q,
                                            .k = p->k,
                                            .v = p->v,
                                            .y = p->y,
                                            .start = p->start,
                                            .extent = p->extent,
                                            .pages = p->pages[0],
                                            .q_stride = HEADS * SIZE,
                                            .kv_stride = KV_HEADS * SIZE,
                                            .y_stride = HEADS * SIZE,
                                            .n_requests = 3,
                                            .n_heads = HEADS,
                                            .n_kv_heads = KV_HEADS,
                                            .head_size = SIZE,
                                            .max_pages = MAX_PAGES,
                                            .page_rows = PAGE_ROWS,
                                            .max_queries = 4,
                                            .max_extent = 15,
                                            .dtype = KERNEL_F32};
}

static int pool_row(const struct paged *p, int r, int row) {
    return p->pages[r][row / PAGE_ROWS] * PAGE_ROWS + row % PAGE_ROWS;
}

START_TEST(paged_attention_averages_the_values_a_page_table_names) {
    struct paged p;
    paged_init(&p);
    for (int reference = 0; reference < 2; reference++) {
        memset(p.y, 0xff, sizeof p.y);
        if (reference) {
            ck_assert(ref_paged_attention(&p.call));
        } else {
            cpu_paged_attention(&p.call);
        }
        for (int t = 0; t < TOKENS; t++) {
            for (int h = 0; h < HEADS; h++) {
                for (int d = 0; d < SIZE; d++) {
                    double above = 0, below = 0;
                    for (int j = 0; j < p.extent[t]; j++) {
                        const int row = pool_row(&p, t < 3 ? 0 : 2, j);
                        double dot = 0;
                        for (int e = 0; e < SIZE; e++) {
                            dot += (double)p.q[t][h][e] * (double)p.k[row][h / 2][e];
                        }
                        above += exp(dot / 2) * (double)p.v[row][h / 2][d];
                        below += exp(dot / 2);
                    }
                    ck_assert_double_eq_tol(p.y[t][h][d], above / below, 1e-6);
                }
            }
        }
    }
}
END_TEST

START_TEST(on_the_cpu_pages_and_one_run_of_keys_give_the_same_bits) {
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
    struct call_dense_attention dense = {.q = q,
                                         .k = k,
                                         .v = v,
                                         .y = y,
                                         .start = start,
                                         .q_stride = HEADS * SIZE,
                                         .kv_stride = KV_HEADS * SIZE,
                                         .y_stride = HEADS * SIZE,
                                         .n_requests = 1,
                                         .n_tokens = 9,
                                         .n_heads = HEADS,
                                         .n_kv_heads = KV_HEADS,
                                         .head_size = SIZE,
                                         .max_tokens = 9,
                                         .dtype = KERNEL_F32};
    float query[SIZE];
    const struct cpu_room room = {.inputs = query};
    cpu_dense_attention(&room, &dense);
    cpu_paged_attention(&p.call);
    ck_assert_mem_eq(p.y[0], y[6], 3 * sizeof y[0]);
}
END_TEST

/* ---- the tokens of a step ---- */

enum { BLOCK = 4, MASK = 99 };

struct list {
    int32_t canvas[20], start[4], positions[14], kv_rows[14], extent[14];
    int64_t canvas_start[3], at[14];
    int32_t block_start[3], block_tokens[3], pages[3][2];
    uint8_t final[3][BLOCK], masked[14];
    struct call_block_list call;
};

/* Canvases of 8, 4 and 8 tokens; blocks at positions 4, 0 and 4, the last of three tokens. */
static void list_init(struct list *l, enum kernel_block_cache cache) {
    static const int32_t canvas[20] = {1,  2,    3, 4,    10, MASK, 12, 13, MASK, MASK,
                                       22, MASK, 5, MASK, 5,  5,    30, 31, MASK, MASK};
    *l = (struct list){.canvas_start = {0, 8, 12},
                       .block_start = {4, 0, 4},
                       .block_tokens = {4, 4, 3},
                       .pages = {{6, 2}, {5, 5}, {1, 0}}};
    memcpy(l->canvas, canvas, sizeof canvas);
    l->call = (struct call_block_list){.canvas = l->canvas,
                                       .canvas_start = l->canvas_start,
                                       .block_start = l->block_start,
                                       .block_tokens = l->block_tokens,
                                       .pages = l->pages[0],
                                       .final = l->final[0],
                                       .start = l->start,
                                       .positions = l->positions,
                                       .kv_rows = l->kv_rows,
                                       .extent = l->extent,
                                       .at = l->at,
                                       .masked = l->masked,
                                       .n_requests = 3,
                                       .n_tokens = 14,
                                       .max_pages = 2,
                                       .page_rows = 4,
                                       .max_block = BLOCK,
                                       .mask_token = MASK,
                                       .spare_row = 77,
                                       .cache = cache};
}

START_TEST(a_first_step_lists_whole_blocks_and_fills_up_with_harmless_rows) {
    struct list l;
    list_init(&l, KERNEL_BLOCK_WHOLE);
    twin_block_list(&l.call);
    const int32_t start[4] = {0, 4, 8, 11};
    const int32_t positions[14] = {4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0};
    const int32_t rows[14] = {8, 9, 10, 11, 20, 21, 22, 23, 0, 1, 2, 77, 77, 77};
    const int32_t extent[14] = {8, 8, 8, 8, 4, 4, 4, 4, 7, 7, 7, 1, 1, 1};
    const int64_t at[14] = {4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 0, 0, 0};
    const uint8_t masked[14] = {0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0}, none[3][BLOCK] = {{0}};
    ck_assert_mem_eq(l.start, start, sizeof start);
    ck_assert_mem_eq(l.positions, positions, sizeof positions);
    ck_assert_mem_eq(l.kv_rows, rows, sizeof rows);
    ck_assert_mem_eq(l.extent, extent, sizeof extent);
    ck_assert_mem_eq(l.at, at, sizeof at);
    ck_assert_mem_eq(l.masked, masked, sizeof masked);
    ck_assert_mem_eq(l.final, none, sizeof none);
}
END_TEST

START_TEST(a_delayed_token_is_listed_once_more_after_it_is_decoded) {
    struct list l;
    list_init(&l, KERNEL_BLOCK_DELAYED);
    twin_block_list(&l.call);
    const uint8_t after_one[3][BLOCK] = {{1, 0, 1, 1}, {0, 0, 1, 0}, {1, 1, 0, 0}};
    ck_assert_mem_eq(l.final, after_one, sizeof after_one);
    l.canvas[5] = 11; /* request 0 is decoded now */
    l.call.ends_at_last = true;
    twin_block_list(&l.call);
    const int32_t start[4] = {0, 1, 4, 5}, positions[5] = {5, 0, 1, 3, 6};
    const int32_t extent[5] = {6, 4, 4, 4, 7};
    ck_assert_mem_eq(l.start, start, sizeof start);
    ck_assert_mem_eq(l.positions, positions, sizeof positions);
    ck_assert_mem_eq(l.extent, extent, sizeof extent);
    ck_assert_uint_eq(l.masked[0], 0);
    twin_block_list(&l.call); /* its last token was listed decoded: nothing is left */
    ck_assert_int_eq(l.start[1], 0);
}
END_TEST

START_TEST(a_token_waits_for_its_right_neighbour_too) {
    struct list l;
    list_init(&l, KERNEL_BLOCK_NEIGHBOUR);
    twin_block_list(&l.call);
    /* Token 4 waits for 5; 7, the block's last, waits for nobody; request 2's token 5 for 6. */
    const uint8_t after_one[3][BLOCK] = {{0, 0, 1, 1}, {0, 0, 0, 0}, {1, 0, 0, 0}};
    ck_assert_mem_eq(l.final, after_one, sizeof after_one);
    l.canvas[18] = 32;
    twin_block_list(&l.call);
    const uint8_t after_two[BLOCK] = {1, 1, 1, 0};
    ck_assert_mem_eq(l.final[2], after_two, sizeof after_two);
    ck_assert(l.start[2] == 6 && l.start[3] == 8);
}
END_TEST

/* ---- importance ---- */

START_TEST(importance_is_what_masked_tokens_pay_to_masked_tokens) {
    enum { T = 6 };
    float q[T][HEADS][SIZE], k[2 * T][KV_HEADS][SIZE], importance[T];
    const int32_t start[3] = {0, 1, T}, rows[T] = {11, 2, 0, 7, 5, 3};
    const uint8_t masked[T] = {1, 0, 1, 1, 0, 1};
    fill(&q[0][0][0], T * HEADS * SIZE, "q");
    fill(&k[0][0][0], 2 * T * KV_HEADS * SIZE, "k");
    struct call_importance call = {.q = q,
                                   .k = k,
                                   .kv_rows = rows,
                                   .start = start,
                                   .masked = masked,
                                   .importance = importance,
                                   .q_stride = HEADS * SIZE,
                                   .kv_stride = KV_HEADS * SIZE,
                                   .n_requests = 2,
                                   .n_heads = HEADS,
                                   .n_kv_heads = KV_HEADS,
                                   .head_size = SIZE,
                                   .max_masked = 3,
                                   .dtype = KERNEL_F32};
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
END_TEST

/* ---- the choice ---- */

/* One request of 8 tokens at positions 40 .. 47, all masked, never processed, mean 1, alpha 1.5:
 * two are wanted. `after` is what a case sets; `before` is 0. */
struct choice {
    float before[8], after[8], mean[1];
    uint8_t masked[8], keep[8];
    int32_t start[2], positions[8], kv_rows[8], extent[8], frontier[1];
    int64_t at[8], targets[10];
    int32_t kept_start[2], kept[10], kept_positions[10], kept_rows[10], kept_extent[10];
    int32_t logit_rows[10], first_row[2], n_rows[1];
    struct call_focus_select call;
};

static void choice_init(struct choice *c, const float *after) {
    *c = (struct choice){.mean = {1}, .start = {0, 8}, .frontier = {47}};
    for (int i = 0; i < 8; i++) {
        c->after[i] = after[i];
        c->masked[i] = 1;
        c->positions[i] = 40 + i;
        c->kv_rows[i] = 100 - i;
        c->extent[i] = 48;
        c->at[i] = 1000 + i;
    }
    c->call = (struct call_focus_select){.before = c->before,
                                         .after = c->after,
                                         .masked = c->masked,
                                         .start = c->start,
                                         .positions = c->positions,
                                         .kv_rows = c->kv_rows,
                                         .extent = c->extent,
                                         .at = c->at,
                                         .mean = c->mean,
                                         .frontier = c->frontier,
                                         .keep = c->keep,
                                         .kept_start = c->kept_start,
                                         .kept = c->kept,
                                         .kept_positions = c->kept_positions,
                                         .kept_rows = c->kept_rows,
                                         .kept_extent = c->kept_extent,
                                         .logit_rows = c->logit_rows,
                                         .targets = c->targets,
                                         .first_row = c->first_row,
                                         .n_rows = c->n_rows,
                                         .n_requests = 1,
                                         .n_tokens = 10,
                                         .spare_row = 777,
                                         .max_masked = 8,
                                         .alpha = 1.5f};
}

static void choice_keeps(struct choice *c, const char *keep) {
    twin_focus_select(&c->call);
    int n = 0, n_masked = 0;
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(c->keep[i] == (keep[i] == '1'), "token %d of %s", i, keep);
        if (keep[i] == '1') {
            if (c->masked[i]) {
                ck_assert_int_eq(c->logit_rows[n_masked], n);
                ck_assert_int_eq(c->targets[n_masked++], 1000 + i);
            }
            ck_assert(c->kept[n] == i && c->kept_positions[n] == c->positions[i]);
            ck_assert_int_eq(c->kept_rows[n++], 100 - i);
        }
    }
    ck_assert(c->kept_start[0] == 0 && c->kept_start[1] == n);
    ck_assert(c->first_row[0] == 0 && c->n_rows[0] == n_masked);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(c->kept_extent[i], c->kept_positions[n - 1] + 1);
    }
    for (int i = n; i < 10; i++) { /* harmless rows */
        ck_assert(c->kept[i] == 0 && c->kept_positions[i] == 0 && c->kept_rows[i] == 777 &&
                  c->kept_extent[i] == 1);
    }
    for (int i = n_masked; i < 10; i++) {
        ck_assert(c->logit_rows[i] == 0 && c->targets[i] == 0);
    }
}

static const float flat[8] = {0, 0, 5, 0, 0, 1, 0, 0}; /* one beyond mean and deviation */

START_TEST(the_wanted_number_of_largest_deltas_is_kept_with_their_left_neighbours) {
    struct choice c;
    choice_init(&c, flat);
    choice_keeps(&c, "01101100");
    ck_assert_int_eq(c.frontier[0], 47); /* it never moves back */
}
END_TEST

START_TEST(the_earlier_token_wins_a_tie) {
    const float tied[8] = {3, 0, 0, 3, 0, 0, 3, 0};
    struct choice c;
    choice_init(&c, tied);
    c.call.alpha = 1;
    c.mean[0] = 4; /* four wanted: the three, which are fewer than four, and the earliest zero */
    choice_keeps(&c, "11110110");
    c.mean[0] = 2; /* the three are at least two, and stay together */
    choice_keeps(&c, "10110110");
    const float equal[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    choice_init(&c, equal); /* every token is at mean plus no deviation */
    choice_keeps(&c, "11111111");
}
END_TEST

START_TEST(tokens_beyond_the_deviation_are_all_kept) {
    const float many[8] = {0, 9, 0, 9, 0, 9, 0, 0};
    struct choice c;
    choice_init(&c, many);
    c.call.alpha = 1;
    choice_keeps(&c, "11111100");
    const float high[8] = {10, 10, 19, 10, 10, 19, 10, 10}; /* the deviation is below them all */
    choice_init(&c, high);
    choice_keeps(&c, "01101100");
    c.call.above_deviation = true;
    choice_keeps(&c, "11111111");
}
END_TEST

START_TEST(a_left_neighbour_is_kept_where_it_is_masked_and_adjacent) {
    struct choice c;
    choice_init(&c, flat);
    c.masked[1] = 0; /* decoded: kept all the same, and no neighbour of 2 to be added */
    choice_keeps(&c, "01101100");
    choice_init(&c, flat);
    for (int i = 2; i < 8; i++) {
        c.positions[i] += 3; /* position 42 is final: 41 is no neighbour of 45 */
        c.extent[i] += 3;
    }
    c.frontier[0] = 60;
    choice_keeps(&c, "00101100");
}
END_TEST

START_TEST(neighbours_of_neighbours_are_not_kept) {
    const float one[8] = {0, 0, 0, 0, 0, 0, 9, 0};
    struct choice c;
    choice_init(&c, one);
    c.call.alpha = 1;
    choice_keeps(&c, "00000110");
}
END_TEST

START_TEST(tokens_never_processed_are_kept_left_of_the_last_kept_one) {
    struct choice c;
    choice_init(&c, flat);
    c.frontier[0] = 42; /* 43 and 44 are beyond it */
    choice_keeps(&c, "01111100");
    ck_assert_int_eq(c.frontier[0], 45);
    choice_init(&c, flat);
    c.frontier[0] = -1;
    choice_keeps(&c, "11111100");
    choice_init(&c, flat);
    c.frontier[0] = 43; /* itself processed */
    choice_keeps(&c, "01101100");
}
END_TEST

START_TEST(decoded_tokens_are_always_kept_and_widen_the_extent) {
    struct choice c;
    choice_init(&c, flat);
    c.masked[7] = 0;
    c.frontier[0] = 44;
    choice_keeps(&c, "01101101"); /* 46 is right of the last masked token taken */
    ck_assert(c.frontier[0] == 47 && c.kept_extent[0] == 48);
}
END_TEST

START_TEST(nothing_is_evicted_where_no_fewer_are_wanted) {
    struct choice c;
    choice_init(&c, flat);
    c.mean[0] = 5.4f; /* ceil(8.1) */
    choice_keeps(&c, "11111111");
    c.mean[0] = 0; /* counts as 1 */
    memset(c.masked, 0, sizeof c.masked);
    choice_keeps(&c, "11111111");
    c.masked[3] = c.masked[5] = 1;
    choice_keeps(&c, "11111111");
}
END_TEST

START_TEST(the_target_is_computed_in_single_precision) {
    const float rising[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct choice c;
    choice_init(&c, rising);
    c.mean[0] = 4.0f / 3; /* times 1.5 rounds to 2; in double it is above */
    choice_keeps(&c, "00000111");
    c.call.alpha = 2.5f; /* ceil(3.33) = 4 */
    choice_keeps(&c, "00011111");
}
END_TEST

START_TEST(a_prompt_beside_the_blocks_keeps_its_own_extents) {
    struct choice c;
    choice_init(&c, flat);
    memset(c.masked, 0, sizeof c.masked);
    for (int i = 0; i < 8; i++) {
        c.extent[i] = 41 + i;
    }
    twin_focus_select(&c.call);
    ck_assert_mem_eq(c.kept_extent, c.extent, sizeof c.extent);
    ck_assert_int_eq(c.n_rows[0], 0);
}
END_TEST

START_TEST(requests_without_tokens_keep_nothing) {
    struct choice c;
    int32_t start[4] = {0, 0, 8, 8}, frontier[3] = {-1, 47, 3}, kept_start[4];
    int32_t first_row[4], n_rows[3];
    const float mean[3] = {1, 1, 1};
    choice_init(&c, flat);
    c.call.start = start;
    c.call.mean = mean;
    c.call.frontier = frontier;
    c.call.kept_start = kept_start;
    c.call.first_row = first_row;
    c.call.n_rows = n_rows;
    c.call.n_requests = 3;
    twin_focus_select(&c.call);
    const int32_t want[4] = {0, 0, 4, 4}, moved[3] = {-1, 47, 3}, rows[3] = {0, 4, 0};
    const int32_t first[4] = {0, 0, 4, 4};
    ck_assert_mem_eq(kept_start, want, sizeof want);
    ck_assert_mem_eq(frontier, moved, sizeof moved);
    ck_assert_mem_eq(n_rows, rows, sizeof rows);
    ck_assert_mem_eq(first_row, first, sizeof first);
}
END_TEST

/* ---- what goes with it ---- */

START_TEST(compaction_gathers_rows_of_several_arrays) {
    float a[4][8], b[4][16], to_a[3][8], to_b[3][24];
    const int32_t rows[3] = {1, 3, 0}, n_rows[1] = {2};
    fill(a[0], 32, "a");
    fill(b[0], 64, "b");
    memset(to_a, 0, sizeof to_a);
    memset(to_b, 0, sizeof to_b);
    struct call_compact call = {.rows = rows,
                                .n_rows = n_rows,
                                .from = {a, b},
                                .to = {to_a, to_b},
                                .from_stride = {8, 16},
                                .to_stride = {8, 24},
                                .width = {8, 16},
                                .n_arrays = 2,
                                .max_rows = 3,
                                .dtype = KERNEL_F32};
    ref_compact(&call);
    ck_assert_mem_eq(to_a[0], a[1], sizeof a[1]);
    ck_assert_mem_eq(to_a[1], a[3], sizeof a[3]);
    ck_assert_mem_eq(to_b[1], b[3], sizeof b[3]);
    ck_assert(to_a[2][0] == 0 && to_b[1][16] == 0 && to_b[2][0] == 0);
    call.n_rows = NULL;
    ref_compact(&call);
    ck_assert_mem_eq(to_a[2], a[0], sizeof a[0]);
}
END_TEST

START_TEST(the_mean_counts_steps_that_decode_and_forgets_with_the_block) {
    int32_t n[3] = {2, 0, 5}, sum[3] = {0}, steps[3] = {0};
    uint8_t restart[3] = {0, 0, 1};
    float mean[3] = {0};
    struct call_decode_mean call = {.n_decoded = n,
                                    .restart = restart,
                                    .mean = mean,
                                    .sum = sum,
                                    .steps = steps,
                                    .n_requests = 3};
    twin_decode_mean(&call);
    ck_assert(mean[0] == 2 && mean[1] == 0 && mean[2] == 1 && steps[1] == 0 && steps[2] == 0);
    n[0] = 1;
    twin_decode_mean(&call);
    n[0] = 0;
    twin_decode_mean(&call);
    ck_assert(mean[0] == 1.5f && sum[0] == 3 && steps[0] == 2);
    memset(steps, 0, sizeof steps);
    call.weight = 0.25f;
    n[0] = 5; /* 1 + (5 - 1) / 4 */
    twin_decode_mean(&call);
    twin_decode_mean(&call);
    ck_assert_float_eq(mean[0], 2.75f);
}
END_TEST

/* What was given the mask itself is decoded all the same. */
START_TEST(a_token_is_decoded_where_flags_say_so) {
    struct list l;
    uint8_t decoded[3][BLOCK] = {{1, 0, 1, 1}, {1, 1, 1, 1}, {0}};
    list_init(&l, KERNEL_BLOCK_NEIGHBOUR);
    l.call.decoded = decoded[0];
    twin_block_list(&l.call);
    const uint8_t masked[11] = {0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1};
    const uint8_t final[3][BLOCK] = {{0, 0, 1, 1}, {1, 1, 1, 1}, {0}};
    ck_assert_mem_eq(l.masked, masked, sizeof masked);
    ck_assert_mem_eq(l.final, final, sizeof final);
}
END_TEST

/* Of a request with masked tokens, and of one without. */
START_TEST(all_kept_tokens_have_logit_rows_where_the_request_asks_for_them) {
    for (uint8_t logits = 0; logits < 4; logits++) {
        for (int some = 0; some < 2; some++) {
            struct choice c;
            choice_init(&c, flat);
            memset(c.masked, 0, sizeof c.masked);
            c.masked[2] = some != 0;
            c.call.logits = &logits;
            twin_focus_select(&c.call);
            bool all = (logits & (some ? KERNEL_LOGITS_DENOISING : KERNEL_LOGITS_COMMIT)) != 0;
            ck_assert_int_eq(c.kept_start[1], 8);
            ck_assert_int_eq(c.n_rows[0], all ? 8 : some);
            ck_assert_int_eq(c.first_row[1], c.n_rows[0]);
            for (int i = 0; i < c.n_rows[0]; i++) {
                int token = all ? i : 2;
                ck_assert_int_eq(c.logit_rows[i], token);
                /* Its own place, or its request's first token. */
                ck_assert_int_eq(c.targets[i], c.masked[token] ? 1000 + token : 1000 - 40);
            }
            ck_assert_int_eq(c.kept_extent[0], 48);
        }
    }
}
END_TEST

START_TEST(a_number_of_rows_finds_the_smallest_size_that_holds_them) {
    int32_t n, place;
    const struct call_bucket call = {
        .n = &n, .place = &place, .n_sizes = 4, .sizes = {32, 64, 128, 130}};
    static const int32_t cases[][2] = {{0, -1}, {1, 0},  {32, 0},  {33, 1},
                                       {64, 1}, {65, 2}, {129, 3}, {130, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        n = cases[i][0];
        twin_bucket(&call);
        ck_assert_int_eq(place, cases[i][1]);
    }
}
END_TEST

/* Two blocks of 4: tokens 1, 2, 3 of the first, 0 and 3 of the second; the second step of two. */
START_TEST(the_log_says_what_became_of_each_position) {
    const int32_t start[3] = {0, 3, 5}, positions[5] = {41, 42, 43, 8, 11};
    const uint8_t keep[5] = {1, 0, 1, 1, 1}, committed[3] = {0, 1, 1};
    const int32_t kept_positions[4] = {41, 43, 8, 11}, logit_rows[3] = {0, 1, 3};
    const int32_t first_row[3] = {0, 2, 3}, n_rows[2] = {2, 1}, block_start[2] = {40, 8}, step = 1;
    uint8_t decoded[2][4] = {{1, 0, 0, 0}, {1, 1, 1, 0}}, log[2][2][4];
    memset(log, 0xff, sizeof log);
    const struct call_block_log call = {.start = start,
                                        .positions = positions,
                                        .keep = keep,
                                        .kept_positions = kept_positions,
                                        .logit_rows = logit_rows,
                                        .first_row = first_row,
                                        .n_rows = n_rows,
                                        .committed = committed,
                                        .block_start = block_start,
                                        .decoded = decoded[0],
                                        .log = log[0][0],
                                        .step = &step,
                                        .n_requests = 2,
                                        .max_block = 4};
    twin_block_log(&call);
    const uint8_t want[2][4] = {{0, 3, 1, 7}, {3, 0, 0, 7}};
    const uint8_t known[2][4] = {{1, 0, 0, 1}, {1, 1, 1, 1}};
    ck_assert_mem_eq(log[1], want, sizeof want);
    ck_assert_uint_eq(log[0][1][3], 0xff);
    ck_assert_mem_eq(decoded, known, sizeof known);
}
END_TEST

START_TEST(steps_go_on_until_as_many_or_a_block_is_over) {
    const int32_t block_tokens[3] = {4, 0, 3}, takes[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint8_t decoded[3][4] = {{1, 1, 1, 1}, {0}, {1, 1, 0, 0}};
    uint8_t final[3][4] = {{1, 1, 1, 0}, {0}, {1, 1, 0, 0}}, ends_early[3] = {0};
    int32_t take[3] = {0}, most = 3, step = 0, again = 1;
    const struct call_block_next call = {.block_tokens = block_tokens,
                                         .decoded = decoded[0],
                                         .final = final[0],
                                         .ends_early = ends_early,
                                         .takes = takes,
                                         .take = take,
                                         .most = &most,
                                         .step = &step,
                                         .again = &again,
                                         .n_requests = 3,
                                         .max_block = 4};
    twin_block_next(&call);
    ck_assert(step == 1 && again == 1 && take[0] == 4 && take[2] == 6);
    twin_block_next(&call);
    ck_assert(step == 2 && again == 1 && take[1] == 8);
    twin_block_next(&call);
    ck_assert(step == 3 && again == 0 && take[1] == 8);
    step = 0;
    ends_early[2] = 1;
    twin_block_next(&call);
    ck_assert_int_eq(again, 1);
    ends_early[0] = 1; /* decoded, though not final */
    twin_block_next(&call);
    ck_assert(step == 2 && again == 0);
    step = 0;
    ends_early[0] = 0;
    final[0][3] = 1;
    twin_block_next(&call);
    ck_assert(step == 1 && again == 0);
}
END_TEST

START_TEST(the_cpu_runs_all_of_them) {
    struct device *cpu;
    char text[DEVICE_TEXT_CHARS];
    struct paged p;
    struct choice c;
    paged_init(&p);
    choice_init(&c, flat);
    ck_assert_int_eq(device_cpu.open(0, KERNEL_F32, &cpu, text), DEVICE_OK);
    ck_assert_int_eq(device_cpu.paged_attention(cpu, &p.call), DEVICE_OK);
    ck_assert_int_eq(device_cpu.focus_select(cpu, &c.call), DEVICE_OK);
    ck_assert_int_eq(c.kept_start[1], 4);
    device_cpu.close(cpu);
}
END_TEST

START_TEST(work_counts_a_row_once_for_all_the_queries_that_share_it) {
    struct call_paged_attention paged = {
        .n_heads = 32, .n_kv_heads = 8, .head_size = 128, .dtype = KERNEL_BF16};
    const struct kernel_work work = work_paged_attention(&paged, 32, 2048, 32 * 2048);
    ck_assert_double_eq(work.bytes, 2 * 2048 * 8 * 256 + 2 * 32 * 32 * 256);
    ck_assert_double_eq(work.flops, 4.0 * 32 * 2048 * 32 * 128);
    struct call_importance importance = {
        .n_heads = 32, .n_kv_heads = 8, .head_size = 128, .dtype = KERNEL_BF16};
    ck_assert_double_eq(work_importance(&importance, 32, 10, 100).bytes, 10 * 40 * 256 + 5 * 32);
    struct call_compact compact = {.width = {64, 128}, .n_arrays = 2, .dtype = KERNEL_BF16};
    ck_assert_double_eq(work_compact(&compact, 3).bytes, 3 * (2 * 192 * 2 + 4));
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        paged_attention_averages_the_values_a_page_table_names,
        on_the_cpu_pages_and_one_run_of_keys_give_the_same_bits,
        a_first_step_lists_whole_blocks_and_fills_up_with_harmless_rows,
        a_delayed_token_is_listed_once_more_after_it_is_decoded,
        a_token_waits_for_its_right_neighbour_too,
        importance_is_what_masked_tokens_pay_to_masked_tokens,
        the_wanted_number_of_largest_deltas_is_kept_with_their_left_neighbours,
        the_earlier_token_wins_a_tie,
        tokens_beyond_the_deviation_are_all_kept,
        a_left_neighbour_is_kept_where_it_is_masked_and_adjacent,
        neighbours_of_neighbours_are_not_kept,
        tokens_never_processed_are_kept_left_of_the_last_kept_one,
        decoded_tokens_are_always_kept_and_widen_the_extent,
        nothing_is_evicted_where_no_fewer_are_wanted,
        the_target_is_computed_in_single_precision,
        a_prompt_beside_the_blocks_keeps_its_own_extents,
        requests_without_tokens_keep_nothing,
        compaction_gathers_rows_of_several_arrays,
        the_mean_counts_steps_that_decode_and_forgets_with_the_block,
        a_token_is_decoded_where_flags_say_so,
        all_kept_tokens_have_logit_rows_where_the_request_asks_for_them,
        a_number_of_rows_finds_the_smallest_size_that_holds_them,
        the_log_says_what_became_of_each_position,
        steps_go_on_until_as_many_or_a_block_is_over,
        the_cpu_runs_all_of_them,
        work_counts_a_row_once_for_all_the_queries_that_share_it,
    };
    return SUITE_RUN("block_kernels", tests);
}
