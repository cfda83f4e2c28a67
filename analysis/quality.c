#include "analysis/quality.h"

#include <gsl/gsl_cdf.h>
#include <inttypes.h>
#include <math.h>

#include "analysis/spread.h"

struct share quality_share(uint64_t n, uint64_t of) {
    struct spread spread = spread_of_count((double)n, (double)of);
    return (struct share){spread.mean, spread.low, spread.high};
}

void mcnemar_add(struct mcnemar *test, const char *ours, const char *base) {
    for (; *ours != '\0' && *base != '\0'; ours++, base++) {
        if (*ours != '-' && *base != '-') {
            test->pairs++;
            test->gained += *ours == '1' && *base == '0';
            test->lost += *ours == '0' && *base == '1';
        }
    }
}

void mcnemar_finish(struct mcnemar *test) {
    uint64_t n = test->gained + test->lost;
    uint64_t fewer = test->gained < test->lost ? test->gained : test->lost;
    double tail = n > 0 ? gsl_cdf_binomial_P((unsigned)fewer, 0.5, (unsigned)n) : 1;
    test->p = fmin(1, 2 * tail);
}

void quality_add(struct quality *sum, const json_t *summary) {
    const json_t *of = json_object_get(summary, "quality");
    sum->served += (uint64_t)json_integer_value(json_object_get(of, "served"));
    sum->judged += (uint64_t)json_integer_value(json_object_get(of, "judged"));
    sum->right += (uint64_t)json_integer_value(json_object_get(of, "right"));
    sum->compared += (uint64_t)json_integer_value(json_object_get(of, "compared"));
    sum->agreed += (uint64_t)json_integer_value(json_object_get(of, "agreed"));
}

json_t *mcnemar_json(const struct mcnemar *test) {
    return json_pack("{s:I, s:I, s:I, s:f}", "pairs", (json_int_t)test->pairs, "gained",
                     (json_int_t)test->gained, "lost", (json_int_t)test->lost, "p", test->p);
}

static void put_share(json_t *object, const char *name, const char *low, const char *high,
                      uint64_t n, uint64_t of) {
    struct share share = quality_share(n, of);
    json_object_set_new(object, name, number_json(share.value));
    json_object_set_new(object, low, number_json(share.low));
    json_object_set_new(object, high, number_json(share.high));
}

static double per(double value, double of) {
    return of > 0 ? value / of : (double)NAN;
}

json_t *quality_json(const struct quality *q, double makespan_s, uint64_t answer_tokens,
                     uint64_t tokens_run) {
    json_t *o = json_object();
    json_object_set_new(o, "served", json_integer((json_int_t)q->served));
    json_object_set_new(o, "judged", json_integer((json_int_t)q->judged));
    json_object_set_new(o, "right", json_integer((json_int_t)q->right));
    put_share(o, "accuracy", "accuracy_low", "accuracy_high", q->right, q->judged);
    json_object_set_new(o, "compared", json_integer((json_int_t)q->compared));
    json_object_set_new(o, "agreed", json_integer((json_int_t)q->agreed));
    put_share(o, "agreement", "agreement_low", "agreement_high", q->agreed, q->compared);
    json_object_set_new(o, "answer_tok_s", number_json(per((double)answer_tokens, makespan_s)));
    json_object_set_new(
        o, "right_req_s",
        number_json(q->judged > 0 ? per((double)q->right, makespan_s) : (double)NAN));
    json_object_set_new(
        o, "tokens_run_per_right",
        number_json(tokens_run > 0 ? per((double)tokens_run, (double)q->right) : (double)NAN));
    json_object_set_new(o, "marks", json_string(q->marks));
    return o;
}

static void print_share(const char *name, uint64_t n, uint64_t of, FILE *out) {
    struct share share = quality_share(n, of);
    fprintf(out, "%-13s%" PRIu64 " of %" PRIu64 " = %.1f %% (%.1f to %.1f)", name, n, of,
            100 * share.value, 100 * share.low, 100 * share.high);
}

void quality_print(const struct quality *q, double makespan_s, uint64_t tokens_run, FILE *out) {
    if (q->judged > 0) {
        print_share("right", q->right, q->judged, out);
        fprintf(out, "  %.4g right/s", per((double)q->right, makespan_s));
        if (q->right > 0 && tokens_run > 0) {
            fprintf(out, "  %.4g tokens run per right answer",
                    (double)tokens_run / (double)q->right);
        }
        fprintf(out, "\n");
    }
    if (q->compared > 0) {
        print_share("agreement", q->agreed, q->compared, out);
        fprintf(out, "  outputs are the reference's, token for token\n");
    }
}
