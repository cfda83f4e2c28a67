/* dInfer's Table 2 as one claim: distilled, every benchmark's passes take longer though the
 * compiled pass is the same. A cost of a request that long answers hide says by how much. */
#include <math.h>
#include <string.h>

#include "tests/support/study.h"
#include "tests/support/suite.h"

static const char *const benchmarks[] = {"GSM8K",  "CRUX-O", "HumanEval",
                                         "IFEval", "MBPP",   "LCB_V6"};
enum { N_BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };

/* Of dInfer with its cache, by the table whose rows begin so. */
static double printed(const char *file, const char *table, const char *benchmark,
                      const char *quantity) {
    char path[64];
    struct paper paper;
    struct err err = {0};
    double value = NAN;
    snprintf(path, sizeof path, "experiments/study/paper/%s", file);
    ck_assert_msg(paper_load(path, &paper, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < paper.n_rows; i++) {
        const struct paper_row *row = &paper.rows[i];
        bool is_cached = strcmp(row->setting, "without KV cache") != 0;
        bool is_dinfer =
            strcmp(row->system, "dInfer") == 0 || strcmp(row->system, "dInfer TD") == 0;
        if (is_cached && is_dinfer && strncmp(row->source, table, strlen(table)) == 0 &&
            strcmp(row->dataset, benchmark) == 0 && strcmp(row->quantity, quantity) == 0) {
            value = row->value;
        }
    }
    paper_fini(&paper);
    ck_assert_msg(!isnan(value), "%s, %s, %s", table, benchmark, quantity);
    return value;
}

/* A pass takes t + c TPF / answer: a request's cost c falls on the passes that its answer takes. */
TEST(a_cost_of_a_request_fitted_to_one_benchmark_gives_the_other_fives_passes) {
    double cost_ms = 0; /* for each token of an answer */
    for (int i = 0; i < N_BENCHMARKS; i++) {
        double tpf[2], ms[2];
        for (int table = 0; table < 2; table++) {
            const char *name = table == 0 ? "Table 1" : "Table 2";
            tpf[table] = printed("dinfer.csv", name, benchmarks[i], "tpf");
            ms[table] = printed("dinfer_steps.csv", name, benchmarks[i], "ms_per_forward");
        }
        ck_assert_double_gt(ms[1] / ms[0], 1.14); /* all six are longer, by as much again */
        ck_assert_double_lt(ms[1] / ms[0], 1.23);
        if (i == 0) {
            cost_ms = (ms[1] - ms[0]) / (tpf[1] - tpf[0]);
            ck_assert_double_eq_tol(cost_ms, 0.385, 0.01);
        }
        double predicted = ms[0] + cost_ms * (tpf[1] - tpf[0]);
        ck_assert_double_lt(fabs(predicted / ms[1] - 1), 0.10);
    }
}

SUITE("table 2")
