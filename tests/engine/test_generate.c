/* Generators, length models and transforms, against their formulas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/arrival.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/reader.h"
#include "traces/transform.h"

#define GOLDEN  "tests/golden/traces/"
#define SAMPLES "traces/samples/"

static struct length *open_length(const char *spec, enum length_side side, const char *const *set) {
    struct err err = {0};
    struct length *length;
    ck_assert_msg(length_open(spec, "test", side, &length, &err) == 0, "%s", err.text);
    for (; set != NULL && *set != NULL; set += 2) {
        ck_assert_msg(length_set(length, "test", set[0], set[1], &err) == 0, "%s", err.text);
    }
    ck_assert_msg(length_start(length, 1, &err) == 0, "%s", err.text);
    return length;
}

/* Endless rows of 10 and 20 tokens. */
struct rows {
    struct lengths lengths;
};

static struct arrival_source open_rows(struct rows *rows) {
    const char *ten[] = {"tokens", "10", NULL}, *twenty[] = {"tokens", "20", NULL};
    rows->lengths = (struct lengths){.length = {open_length("fixed", LENGTH_INPUT, ten),
                                                open_length("fixed", LENGTH_OUTPUT, twenty)}};
    return lengths_source(&rows->lengths);
}

static void close_rows(struct rows *rows) {
    length_close(rows->lengths.length[LENGTH_INPUT]);
    length_close(rows->lengths.length[LENGTH_OUTPUT]);
}

static struct generator *open_generator(const char *process, double rate, uint64_t seed,
                                        const char *const *set, struct arrival_source rows) {
    struct generator *generator = generator_open(process_find(process));
    struct err err = {0};
    for (; set != NULL && *set != NULL; set += 2) {
        ck_assert_msg(generator_set(generator, "test", set[0], set[1], &err) == 0, "%s", err.text);
    }
    ck_assert_msg(generator_start(generator, rate, seed, 0, rows, &err) == 0, "%s", err.text);
    return generator;
}

struct moments {
    double mean_s, cv;
};

static struct moments gap_moments(const char *process, double rate, const char *const *set, int n) {
    struct rows rows;
    struct generator *generator = open_generator(process, rate, 7, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    int64_t last_ns = 0;
    double sum = 0, squares = 0;
    int n_good = 0; /* one assertion for all: Check writes a file at each */
    for (int i = 0; i < n; i++) {
        enum source_reply reply = source.next(source.state, &row, &err);
        double gap_s = (double)(row.arrival_ns - last_ns) * 1e-9;
        n_good += reply == SOURCE_ROW && row.id == (uint64_t)i && row.prompt_tokens == 10 &&
                  row.output_tokens == 20 && gap_s >= 0;
        last_ns = row.arrival_ns;
        sum += gap_s;
        squares += gap_s * gap_s;
    }
    ck_assert_int_eq(n_good, n);
    generator_close(generator);
    close_rows(&rows);
    double mean = sum / n;
    return (struct moments){mean, sqrt(squares / n - mean * mean) / mean};
}

/* Tolerances are four standard errors: cv / sqrt(n) for the mean; for the cv of 400,000 gaps, from
 * the fourth moments of each distribution, at most 2 % up to cv 2. */
TEST(gaps_have_the_mean_and_the_variation_asked_for) {
    const int n = 400000;
    const double step = 4 / sqrt(n);
    struct moments poisson = gap_moments("poisson", 2.5, NULL, n);
    ck_assert_double_eq_tol(poisson.mean_s * 2.5, 1, step);
    ck_assert_double_eq_tol(poisson.cv, 1, 2 * step);
    const char *const cvs[] = {"0.1", "0.5", "1", "2"};
    const char *const renewals[] = {"gamma", "weibull"};
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < 4; i++) {
            const char *set[] = {"cv", cvs[i], NULL};
            double cv = atof(cvs[i]);
            struct moments gaps = gap_moments(renewals[p], 0.25, set, n);
            ck_assert_double_eq_tol(gaps.mean_s * 0.25, 1, cv * step);
            ck_assert_double_eq_tol(gaps.cv / cv, 1, 0.02);
        }
    }
}

TEST(no_draw_of_a_gamma_gap_fails_to_converge) {
    const char *const cvs[] = {"0.05", "1", "3", "5", "10"};
    for (int i = 0; i < 5; i++) {
        const char *set[] = {"cv", cvs[i], NULL};
        struct moments gaps = gap_moments("gamma", 1, set, 200000);
        ck_assert(isfinite(gaps.mean_s) && isfinite(gaps.cv));
    }
}

TEST(bursts_keep_the_mean_rate_and_fill_their_share) {
    struct rows rows;
    const char *set[] = {"on_ns", "10s", "off_ns", "30s", "burst", "3", NULL};
    struct generator *generator = open_generator("bursts", 2, 3, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    const int n = 400000;
    int n_in_bursts = 0, n_good = 0;
    for (int i = 0; i < n; i++) {
        n_good += source.next(source.state, &row, &err) == SOURCE_ROW;
        n_in_bursts += row.arrival_ns % INT64_C(40000000000) < INT64_C(10000000000);
    }
    ck_assert_int_eq(n_good, n);
    /* A quarter of the time at three times the rate. */
    ck_assert_double_eq_tol((double)n_in_bursts / n, 0.75, 4 * sqrt(0.75 * 0.25 / n));
    ck_assert_double_eq_tol((double)row.arrival_ns * 1e-9 * 2 / n, 1, 4 / sqrt(n));
    generator_close(generator);
    close_rows(&rows);
}

TEST(bursts_of_the_whole_rate_leave_silence_between) {
    struct rows rows;
    const char *set[] = {"on_ns", "10s", "off_ns", "30s", "burst", "4", NULL};
    struct generator *generator = open_generator("bursts", 2, 3, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    for (int i = 0; i < 10000; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_int_le(row.arrival_ns % INT64_C(40000000000), INT64_C(10000000000));
    }
    generator_close(generator);
    close_rows(&rows);
    generator = generator_open(process_find("bursts"));
    ck_assert_int_eq(generator_set(generator, "test", "burst", "5", &err), 0);
    ck_assert_int_eq(generator_start(generator, 1, 1, 0, source, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "bursts of 5 times the mean rate cannot fill 0.25 of the time: "
                          "expected burst up to 4, where nothing arrives between bursts");
    generator_close(generator);
}

TEST(the_same_seed_gives_the_same_arrivals_and_another_gives_others) {
    struct rows rows[3];
    struct arrival_source sources[3];
    struct generator *generators[3];
    const uint64_t seeds[] = {5, 5, 6};
    for (int i = 0; i < 3; i++) {
        generators[i] = open_generator("gamma", 1, seeds[i], NULL, open_rows(&rows[i]));
        sources[i] = generator_source(generators[i]);
    }
    int n_other = 0;
    for (int k = 0; k < 1000; k++) {
        struct arrival row[3];
        struct err err = {0};
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(sources[i].next(sources[i].state, &row[i], &err), SOURCE_ROW);
        }
        ck_assert_mem_eq(&row[0], &row[1], sizeof row[0]);
        n_other += row[0].arrival_ns != row[2].arrival_ns;
    }
    ck_assert_int_gt(n_other, 990);
    for (int i = 0; i < 3; i++) {
        generator_close(generators[i]);
        close_rows(&rows[i]);
    }
}

TEST(a_closed_loop_keeps_its_clients_in_flight) {
    struct rows rows;
    const char *set[] = {"clients", "3", "think_ns", "2s", NULL};
    struct generator *generator = open_generator("closed-loop", 0, 1, set, open_rows(&rows));
    struct limit limit = {.inner = generator_source(generator), .n = 50};
    struct arrival_source source = limit_source(&limit);
    ck_assert(source.completed != NULL);
    struct err err = {0};
    struct arrival row, in_flight[3];
    uint64_t n_given = 0;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(source.next(source.state, &in_flight[i], &err), SOURCE_ROW);
        ck_assert_int_eq(in_flight[i].arrival_ns, 0);
        n_given++;
    }
    const int64_t s = 1000000000;
    for (int64_t now_ns = 7 * s; n_given < 50; now_ns += 5 * s) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_WAIT);
        int client = (int)(n_given % 3);
        source.completed(source.state, in_flight[client].id, now_ns);
        ck_assert_int_eq(source.next(source.state, &in_flight[client], &err), SOURCE_ROW);
        ck_assert_int_eq(in_flight[client].arrival_ns, now_ns + 2 * s);
        ck_assert_uint_eq(in_flight[client].id, n_given);
        n_given++;
    }
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_END);
    generator_close(generator);
    close_rows(&rows);
}

TEST(every_process_and_model_can_be_found_and_explains_itself) {
    for (size_t i = 0; process_at(i) != NULL; i++) {
        ck_assert_ptr_eq(process_find(process_at(i)->name), process_at(i));
        ck_assert_uint_gt(strlen(process_at(i)->doc), 10);
        generator_close(generator_open(process_at(i)));
    }
    ck_assert_ptr_null(process_find("poison"));
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        ck_assert_uint_gt(strlen(length_model_at(i)->doc), 10);
    }
}

static struct moments length_moments(struct length *length, uint32_t *min, uint32_t *max) {
    const int n = 200000;
    double sum = 0, squares = 0;
    *min = UINT32_MAX;
    *max = 0;
    for (int i = 0; i < n; i++) {
        uint32_t tokens = length_draw(length);
        *min = tokens < *min ? tokens : *min;
        *max = tokens > *max ? tokens : *max;
        sum += tokens;
        squares += (double)tokens * tokens;
    }
    length_close(length);
    double mean = sum / n;
    return (struct moments){mean, sqrt(squares / n - mean * mean) / mean};
}

/* A table of one's own, most of whose lengths round to nothing. */
TEST(no_length_is_nothing) {
    uint32_t min, max;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path("traces"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    FILE *file = fopen(scratch_path("traces/quantiles.csv"), "w");
    fputs("set,field\nshort,input", file);
    for (int i = 0; i <= 100; i++) {
        fprintf(file, ",%d", i == 100);
    }
    fputs("\n", file);
    fclose(file);
    setenv("UNMASK_DATA", scratch_folder, 1);
    struct moments drawn =
        length_moments(open_length("quantiles:short", LENGTH_INPUT, NULL), &min, &max);
    ck_assert(min == 1 && max == 1 && drawn.mean_s == 1);
}

TEST(lengths_have_the_mean_and_the_variation_of_their_model) {
    uint32_t min, max;
    const char *lognormal[] = {"mean", "380", "cv", "0.45", NULL};
    struct moments drawn =
        length_moments(open_length("lognormal", LENGTH_INPUT, lognormal), &min, &max);
    ck_assert_double_eq_tol(drawn.mean_s, 380, 4 * 380 * 0.45 / sqrt(200000));
    ck_assert_double_eq_tol(drawn.cv, 0.45, 0.005);
    const char *clamped[] = {"mean", "380", "cv", "0.45", "min", "60", "max", "700", NULL};
    length_moments(open_length("lognormal", LENGTH_INPUT, clamped), &min, &max);
    ck_assert(min >= 60 && max == 700);
    const char *uniform[] = {"min", "3", "max", "5", NULL};
    drawn = length_moments(open_length("uniform", LENGTH_INPUT, uniform), &min, &max);
    ck_assert(min == 3 && max == 5);
    ck_assert_double_eq_tol(drawn.mean_s, 4, 4 * sqrt(2.0 / 3 / 200000));
    ck_assert_double_eq_tol(drawn.cv * drawn.mean_s, sqrt(2.0 / 3), 0.01);
    /* The moments of the table's piecewise-linear distribution; the 1,319 problems themselves have
     * mean 67.1 and cv 0.404, because few of the last percent are near its end of 236. */
    drawn = length_moments(open_length("quantiles:gsm8k_test_est", LENGTH_INPUT, NULL), &min, &max);
    ck_assert(min >= 21 && max <= 236);
    ck_assert_double_eq_tol(drawn.mean_s, 67.303, 0.25);
    ck_assert_double_eq_tol(drawn.cv, 0.4154, 0.005);
}

static void check_length_error(const char *spec, const char *name, const char *value,
                               const char *sentence) {
    struct err err = {0};
    struct length *length = NULL;
    int status = length_open(spec, "x.ini:3", LENGTH_INPUT, &length, &err);
    if (status == 0 && name != NULL) {
        status = length_set(length, "x.ini:3", name, value, &err);
    }
    if (status == 0) {
        status = length_start(length, 1, &err);
    }
    length_close(length);
    ck_assert_int_eq(status, ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
}

TEST(a_wrong_length_model_is_explained) {
    check_length_error("lognorml", NULL, NULL,
                       "x.ini:3: there is no length model 'lognorml'; did you mean 'lognormal'?");
    check_length_error("quantiles", NULL, NULL,
                       "x.ini:3: 'quantiles' is not a length model: expected quantiles:SET");
    check_length_error("fixed:3", NULL, NULL,
                       "x.ini:3: 'fixed:3' is not a length model: expected fixed");
    check_length_error("quantiles:gsm8k_test", NULL, NULL,
                       "./traces/quantiles.csv has no set 'gsm8k_test'; did you mean "
                       "'gsm8k_test_est'?");
    check_length_error("fixed", "token", "5",
                       "x.ini:3: fixed has no parameter 'token'; did you mean 'tokens'?");
    check_length_error("uniform", "min", "2000",
                       "uniform lengths from 2000 to 1024: expected min up to max");
}

TEST(resampled_pairs_are_rows_of_the_trace) {
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open(GOLDEN "lengths.csv", &trace, &err), 0);
    struct resample *resample;
    ck_assert_int_eq(resample_open(trace_source(trace), "x", 1, &resample, &err), 0);
    trace_close(trace);
    struct arrival_source source = resample_source(resample);
    const uint32_t inputs[] = {74, 290, 1402}, outputs[] = {918, 905, 711};
    int counts[3] = {0};
    for (int i = 0; i < 30000; i++) {
        struct arrival row;
        enum source_reply reply = source.next(source.state, &row, &err);
        for (int k = 0; k < 3; k++) {
            counts[k] += reply == SOURCE_ROW && row.prompt_tokens == inputs[k] &&
                         row.output_tokens == outputs[k];
        }
    }
    ck_assert_int_eq(counts[0] + counts[1] + counts[2], 30000);
    for (int k = 0; k < 3; k++) {
        ck_assert_double_eq_tol(counts[k], 10000, 4 * sqrt(30000 * 2.0 / 9));
    }
    resample_close(resample);
}

static int rewind_one(void *state, struct err *err) {
    return trace_rewind(state, err);
}

TEST(a_replay_has_exactly_the_rate_it_is_rescaled_to) {
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open(SAMPLES "azure_conv_2023_first2000.csv", &trace, &err), 0);
    struct survey survey;
    ck_assert_int_eq(survey_source(trace_source(trace), 0, &survey, &err), 0);
    ck_assert_int_eq(trace_rewind(trace, &err), 0);
    ck_assert_uint_eq(survey.rows, 2000);
    struct replay replay = MAKE(
        struct replay, .inner = trace_source(trace), .factor = survey_rate_per_s(&survey) / 0.8,
        .again = {trace, rewind_one}, .period_ns = survey_period_ns(&survey));
    struct arrival_source source = replay_source(&replay);
    struct arrival row;
    int64_t ends_ns[3], last_ns = 0;
    for (int i = 0; i < 6000; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_int_ge(row.arrival_ns, last_ns);
        last_ns = row.arrival_ns;
        if (i % 2000 == 1999) {
            ends_ns[i / 2000] = row.arrival_ns;
        }
    }
    /* 1,999 gaps of 1.25 s; a round more is 2,000 gaps, the mean gap rounded down to a ns. */
    ck_assert_int_le(llabs(ends_ns[0] - INT64_C(2498750000000)), 1);
    ck_assert_int_le(llabs(ends_ns[1] - INT64_C(4998750000000)), 16);
    ck_assert_int_le(llabs(ends_ns[2] - INT64_C(7498750000000)), 32);
    trace_close(trace);
}

TEST(a_cap_drops_or_truncates_and_counts) {
    struct err err = {0};
    for (int truncates = 0; truncates < 2; truncates++) {
        struct trace *trace;
        ck_assert_int_eq(trace_open(SAMPLES "mooncake_synthetic_first1000.csv", &trace, &err), 0);
        struct cap cap = MAKE(struct cap, .inner = trace_source(trace), .context_tokens = 4096,
                              .truncates = truncates == 1, .name = "mooncake");
        struct arrival_source source = cap_source(&cap);
        struct arrival row;
        uint64_t n = 0;
        while (source.next(source.state, &row, &err) == SOURCE_ROW) {
            ck_assert_uint_le(row.prompt_tokens + row.output_tokens, 4096);
            n++;
        }
        ck_assert_int_eq(err.kind, ERR_NONE);
        ck_assert_uint_eq(n, truncates ? 1000 : 512);
        ck_assert_uint_eq(cap.n_dropped, truncates ? 0 : 488);
        ck_assert_uint_eq(cap.n_truncated, truncates ? 488 : 0);
        ck_assert_uint_eq(cap.n_listed, truncates ? 0 : CAP_MAX_LISTED);
        /* The file's first rows ask for 40,160 and 36,640 tokens. */
        ck_assert(truncates || (cap.dropped_ids[0] == 0 && cap.dropped_ids[1] == 1));
        trace_close(trace);
    }
}

TEST(a_context_nothing_fits_into_is_an_error) {
    struct rows rows;
    struct cap cap = {.inner = open_rows(&rows), .context_tokens = 29, .name = "tens"};
    struct arrival_source source = cap_source(&cap);
    struct arrival row;
    struct err err = {0};
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_BAD);
    ASSERT_SAYS(err.text, "tens: found 1000000 requests in a row longer than the context of 29 "
                          "tokens, expected some that fit");
    cap = (struct cap){.inner = cap.inner, .context_tokens = 30, .name = "tens"};
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    close_rows(&rows);
}

SUITE("generate")
