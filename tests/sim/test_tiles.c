/* Facts of kernels in a profile: what it does not say is as the default has it, and what it says
 * changes the look-ups that go by it. Run from the repository root. */
#include <math.h>
#include <string.h>

#include "sim/price/ladder.h"
#include "sim/price/profile/profile.h"
#include "tests/support/rig.h"

static const struct profile_peaks card = {
    .flops = 989e12, .bandwidth = 4.8e12, .sms = 132, .l2_bytes = 50 << 20};

/* The file without its count of rows, and with `more` at its end. */
static struct profile *with_rows(const char *path, const char *more) {
    struct err err = {0};
    size_t size;
    char *text = profile_read(path, &size, &err);
    ck_assert_msg(text != NULL, "%s", err.text);
    char *counted = strstr(text, "# rows:");
    if (counted != NULL) {
        counted[2] = 'R';
    }
    char *all = malloc(size + strlen(more) + 1);
    ck_assert_ptr_nonnull(all);
    memcpy(all, text, size);
    strcpy(all + size, more);
    struct profile *profile = NULL;
    ck_assert_msg(profile_parse(path, all, strlen(all), &card, &profile, &err) == 0, "%s",
                  err.text);
    free(text);
    free(all);
    return profile;
}

enum { N_PROBES = 10 };

/* Sizes that lie between rows, beyond them and in half-filled tiles. */
static void probe(const struct profile *profile, double out[N_PROBES]) {
    enum profile_match match;
    const int64_t heads = 32, dim = 128;
    const struct profile_spans pass =
        MAKE(struct profile_spans, .n_seqs = 3, .sum_q = 1900, .sum_kv = 1900, .sum_q_kv = 1500000,
             .heads = heads, .kv_heads = heads, .head_dim = dim);
    const struct profile_spans blocks =
        MAKE(struct profile_spans, .n_seqs = 3, .sum_q = 420, .sum_kv = 2400, .sum_q_kv = 336000,
             .heads = heads, .kv_heads = heads, .head_dim = dim);
    const struct correction *correction = profile_correction(profile);
    const int curve = correction_find(correction, OP_LINEAR, "12288x4096");
    struct profile_spans single =
        MAKE(struct profile_spans, .n_seqs = 7, .sum_q = 7, .sum_kv = 40000, .sum_q_kv = 40000,
             .heads = heads, .kv_heads = heads, .head_dim = dim);
    struct step_shape shape;
    struct span spans[2] = {{.queries = 1, .context = 20000, .phase = PHASE_REUSE},
                            {.queries = 1, .context = 300, .phase = PHASE_REUSE}};
    const struct span *listed[2] = {&spans[0], &spans[1]};
    shape_clear(&shape);
    shape.spans = listed;
    shape.n_spans = 2;
    memset(out, 0, N_PROBES * sizeof *out);
    out[0] = profile_gemm(profile, 30, 12288, 4096, &match);
    out[1] = profile_gemm(profile, 100001, 12288, 4096, &match);
    out[2] = profile_gemm(profile, 1100, 4096, 4096, &match);
    out[3] = profile_has(profile, PROFILE_ATTENTION_FULL)
                 ? profile_attention_full(profile, &pass, &match)
                 : 0;
    out[4] = profile_has(profile, PROFILE_ATTENTION_BLOCK)
                 ? profile_attention_block(profile, &blocks, &match)
                 : 0;
    out[5] = profile_has(profile, PROFILE_ATTENTION_CAUSAL)
                 ? profile_attention(profile, &pass, &match)
                 : 0;
    out[6] = correction_factor(correction, curve, 520);
    out[7] = correction_factor(correction, curve, 1100);
    single.n_seqs = 6;
    out[8] = profile_has(profile, PROFILE_ATTENTION_MIXED)
                 ? profile_varlen_single_ns(profile, &shape, &single, 1e5, &match)
                 : 0;
    out[9] = profile_gemm(profile, 66, 12288, 4096, &match);
}

static const char *const files[] = {"kernels/profiles/h200/llada-8b.csv",
                                    "kernels/profiles/rtx-pro-6000.csv"};
enum { N_FILES = sizeof files / sizeof files[0] };

/* Whether another value of the fact changes any look-up of these profiles. */
static bool is_read(const char *key, double value) {
    bool differs = false;
    for (size_t i = 0; i < N_FILES; i++) {
        char row[64];
        double as_is[N_PROBES], changed[N_PROBES];
        snprintf(row, sizeof row, "tile,%s,%.6g\n", key, value);
        struct profile *a = with_rows(files[i], ""), *b = with_rows(files[i], row);
        probe(a, as_is);
        probe(b, changed);
        differs = differs || memcmp(as_is, changed, sizeof as_is) != 0;
        profile_close(a);
        profile_close(b);
    }
    return differs;
}

TEST(look_ups_go_by_each_fact_that_a_profile_says) {
#define LOOK(name, initial)                                                                        \
    ck_assert_msg(is_read(#name, 2.5 * (initial)) || is_read(#name, 0.02 * (initial)),             \
                  "no look-up goes by " #name);                                                    \
    ck_assert_msg(!is_read(#name, initial), #name " is not " #initial " by default");
    TILE_FACTS(LOOK)
#undef LOOK
}

/* What a file says is written again, and a copy for another card has it. */
TEST(facts_are_kept_when_a_profile_is_written_or_copied) {
    struct err err = {0};
    struct profile *said = with_rows(files[0], "tile,query_rows,64\ntile,split_fill,0.5\n");
    struct profile *copy = profile_copy(said, "a copy", profile_peaks(said));
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    ck_assert_int_eq(profile_write(said, file, &err), 0);
    fclose(file);
    struct profile *again = NULL;
    ck_assert_int_eq(profile_parse("again", text, size, &card, &again, &err), 0);
    ck_assert_mem_eq(profile_tiles(again), profile_tiles(said), sizeof(struct tiles));
    ck_assert_mem_eq(profile_tiles(copy), profile_tiles(said), sizeof(struct tiles));
    ck_assert_double_eq(profile_tiles(again)->query_rows, 64);
    ck_assert_double_eq(profile_tiles(again)->key_rows, tiles_default.key_rows);
    free(text);
    profile_close(said);
    profile_close(copy);
    profile_close(again);
}

/* Three heads share keys: their 24 rows of 8 queries fill a tile of 32; where a tile is a
 * row, as the CPU's, time goes by the work alone. */
TEST(tiles_of_single_rows_pad_nothing) {
    static const char rows[] = "attention_block,1,8,64,3,1,64,10\n"
                               "attention_block,4,8,64,3,1,64,40\n";
    const char *const tiles[] = {"tile,query_rows,128\n", "tile,query_rows,1\n"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", tiles[i], rows);
        struct profile *profile = with_rows(files[0], text);
        const struct profile_spans spans = {.n_seqs = 4,
                                            .sum_q = 32,
                                            .sum_kv = 288,
                                            .sum_q_kv = 2304,
                                            .heads = 3,
                                            .kv_heads = 1,
                                            .head_dim = 64};
        enum profile_match match;
        const double ns = profile_attention_block(profile, &spans, &match);
        ck_assert_int_eq(match, i == 1 ? PROFILE_EXACT : PROFILE_EXTRAPOLATED);
        ck_assert(i == 1 ? ns == 40e3 : ns > 40e3);
        profile_close(profile);
    }
}

TEST(a_fact_that_nobody_knows_is_refused) {
    static const char *const bad[] = {"tile,waves,3\n",       "tile,key_rows,0\n",
                                      "tile,key_rows\n",      "tile,key_rows,-1\n",
                                      "tile,key_rows,many\n", "tile,key_rows,70000\n",
                                      "tile,key_rows,64,1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        struct err err = {0};
        struct profile *profile = NULL;
        snprintf(text, sizeof text, "# kind: measured\n# source: test\ngemm,1,512,512,2\n%s",
                 bad[i]);
        ck_assert_int_eq(profile_parse("bad", text, strlen(text), &card, &profile, &err),
                         ERR_WORLD);
        ck_assert_ptr_nonnull(strstr(err.text, "bad:4"));
    }
}

SUITE("tiles")
