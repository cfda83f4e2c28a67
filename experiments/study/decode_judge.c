/* Measured decisions compared with those of decode processes, as a table, as JSON, as an INI
 * section. */
#include <math.h>
#include <string.h>

#include "experiments/run/cli/table.h"
#include "experiments/study/decode_measured.h"

/* ---- numbers to compare ---- */

enum kind { RELATIVE, DIFFERENCE };
struct compared {
    const char *name, *key;
    enum kind kind;
    double (*of)(const struct decode_facts *facts, double *error);
};

static double over(double x, double n, double *error) {
    double share = x / n;
    *error = share >= 0 && share <= 1 ? sqrt(share * (1 - share) / n) : NAN;
    return share;
}

static double yield_of(const struct decode_facts *facts, double *error) {
    return facts_quotient(&facts->yield, error);
}
static double cost_of(const struct decode_facts *facts, double *error) {
    return facts_quotient(&facts->cost, error);
}
static double distance_of(const struct decode_facts *facts, double *error) {
    *error = NAN;
    return facts->distance / facts->n_commits;
}
static double beside_of(const struct decode_facts *facts, double *error) {
    return over(facts->n_beside, facts->n_commits, error);
}
static double lag_of(const struct decode_facts *facts, double *error) {
    *error = NAN;
    return facts->lag / facts->n_lags;
}
static double settled_of(const struct decode_facts *facts, double *error) {
    return over(facts->settled, facts->n_seen, error);
}
static double confidence_of(const struct decode_facts *facts, double *error) {
    return over(facts->confidence, facts->n_seen, error);
}
static double margin_of(const struct decode_facts *facts, double *error) {
    return over(facts->margin, facts->n_seen, error);
}
static double entropy_of(const struct decode_facts *facts, double *error) {
    *error = NAN;
    return facts->entropy / facts->n_seen;
}
#define QUINTILE(i)                                                                                \
    static double quintile_##i(const struct decode_facts *facts, double *error) {                  \
        return over(facts->quintile[i], facts->n_ranked, error);                                   \
    }
QUINTILE(0)
QUINTILE(1)
QUINTILE(2)
QUINTILE(3)
QUINTILE(4)

static const struct compared compared[] = {
    {"tokens a pass", "tokens_per_pass", RELATIVE, yield_of},
    {"tokens run for a decoded one", "run_per_token", RELATIVE, cost_of},
    {"masked before a commit", "distance", RELATIVE, distance_of},
    {"commits next to what is known", "beside", DIFFERENCE, beside_of},
    {"passes the right neighbour lags", "lag", RELATIVE, lag_of},
    {"mean confidence", "confidence", DIFFERENCE, confidence_of},
    {"mean margin", "margin", DIFFERENCE, margin_of},
    {"mean entropy, nats", "entropy", RELATIVE, entropy_of},
    {"most likely tokens that stay", "settled", DIFFERENCE, settled_of},
    {"commits, least fifth of deltas", "quintile_1", DIFFERENCE, quintile_0},
    {"second", "quintile_2", DIFFERENCE, quintile_1},
    {"third", "quintile_3", DIFFERENCE, quintile_2},
    {"fourth", "quintile_4", DIFFERENCE, quintile_3},
    {"greatest", "quintile_5", DIFFERENCE, quintile_4},
};
enum { N_COMPARED = sizeof compared / sizeof compared[0] };

struct number {
    double measured, error, fitted, assumed;
    double off_fitted, off_assumed; /* relative, or differences */
};

static double off(enum kind kind, double process, double measured) {
    return kind == RELATIVE ? process / measured - 1 : process - measured;
}

/* False where a trace does not say. */
static bool compare(const struct measured_trace *trace, const struct compared *what,
                    struct number *out) {
    double ignored;
    *out = (struct number){.measured = what->of(&trace->odd, &out->error)};
    out->measured = what->of(&trace->odd, &out->error);
    out->fitted = what->of(&trace->fitted, &ignored);
    out->assumed = what->of(&trace->assumed, &ignored);
    out->off_fitted = off(what->kind, out->fitted, out->measured);
    out->off_assumed = off(what->kind, out->assumed, out->measured);
    return isfinite(out->measured);
}

/* ---- the error ---- */

/* Blocks run once more, or by parts, only there. */
static bool is_block_diffusion(const struct measured_trace *trace) {
    static const char *const caches[] = {"exact", "delayed", "neighbour", "focus"};
    const char *cache = decode_trace_about(trace->trace, "cache");
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        if (strcmp(cache, caches[i]) == 0) {
            return true;
        }
    }
    return false;
}

struct measured_error measured_error(const struct measured *measured) {
    struct measured_error out = {NAN, NAN, NAN, NAN};
    double squares = 0;
    size_t n = 0;
    for (size_t i = 0; i < measured->n; i++) {
        const struct measured_trace *trace = &measured->traces[i];
        for (int c = 0; c < N_COMPARED; c++) {
            struct number number;
            double size = compare(trace, &compared[c], &number) ? fabs(number.off_fitted) : NAN;
            if (!isfinite(size)) {
                continue;
            }
            if (c == 0 && !measured_counts(trace)) {
                out.most_yield = fmax(out.most_yield, size);
                squares += size * size;
                n++;
            } else if (c == 1 && is_block_diffusion(trace) && !measured_counts(trace)) {
                out.most_cost = fmax(out.most_cost, size);
            } else if (strncmp(compared[c].key, "quintile", 8) == 0) {
                out.most_quintile = fmax(out.most_quintile, size);
            }
        }
    }
    out.rms_yield = sqrt(squares / (double)n); /* of none: NaN */
    return out;
}

static void error_text(const struct measured *measured, char *text, size_t size) {
    struct measured_error error = measured_error(measured);
    int n = isfinite(error.rms_yield) ? snprintf(text, size, "tokens a pass %.0f %% (at most %.0f)",
                                                 100 * error.rms_yield, 100 * error.most_yield)
                                      : snprintf(text, size, "tokens a pass -");
    if (isfinite(error.most_cost) && n > 0 && (size_t)n < size) {
        snprintf(text + n, size - (size_t)n, ", tokens run at most %.0f %%", 100 * error.most_cost);
    }
}

/* ---- printing ---- */

/* A share as a percentage. */
static void add_off(struct table *table, enum kind kind, double off) {
    char text[32];
    snprintf(text, sizeof text, kind == RELATIVE ? "%+.1f%%" : "%+.3f",
             kind == RELATIVE ? 100 * off : off);
    table_shown(table, off, isfinite(off) ? text : NULL);
}

static void print_trace(const struct measured_trace *trace, FILE *out) {
    const struct decode_trace *of = trace->trace;
    const char *threshold = decode_trace_about(of, "decoder.threshold");
    char at[32] = "";
    if (threshold[0] != '\0') {
        snprintf(at, sizeof at, " %.4g", strtod(threshold, NULL));
    }
    fprintf(out, "\n%s: system %s, cache %s, decoder %s%s%s; %zu requests, %s\n", trace->path,
            decode_trace_about(of, "system"), decode_trace_about(of, "cache"),
            decode_trace_about(of, "decoder"), at, trace->rule.smooths ? ", smoothing" : "",
            decode_trace_requests(of),
            trace->is_fitted ? "half of them fitted to, judged by the others"
                             : "judged by half of them");
    struct table *table = table_open("number|measured|+-|process|process off|assumed|assumed off");
    for (int c = 0; c < N_COMPARED; c++) {
        struct number number;
        if (compare(trace, &compared[c], &number) && (c != 1 || is_block_diffusion(trace))) {
            table_add(table, "s %.3f %.3f %.3f", compared[c].name, number.measured, number.error,
                      number.fitted);
            add_off(table, compared[c].kind, number.off_fitted);
            table_add(table, "%.3f", number.assumed);
            add_off(table, compared[c].kind, number.off_assumed);
        }
    }
    if (isfinite(trace->shift)) {
        table_add(table, "s - - %+.3f - - -", "logits that tokens a pass are off", trace->shift);
    }
    table_print(table, out);
    table_close(table);
}

static const struct constant {
    const char *name;
    size_t offset;
} constants[] = {
#define CONSTANT(field)                                                                            \
    { #field, offsetof(struct decode_process, field) }
    CONSTANT(location),
    CONSTANT(distance),
    CONSTANT(gap),
    CONSTANT(context),
    CONSTANT(position_spread),
    CONSTANT(step_spread),
    CONSTANT(skew),
    CONSTANT(lost),
    CONSTANT(lost_reach),
    CONSTANT(lost_power),
    CONSTANT(lost_location),
    CONSTANT(lost_spread),
    CONSTANT(delta_distance),
    CONSTANT(delta_noise),
    CONSTANT(delta_behind),
    CONSTANT(tail),
    CONSTANT(tail_spread),
};
enum { N_CONSTANTS = sizeof constants / sizeof constants[0] };

static double constant_of(const struct decode_process *process, int i) {
    return *(const double *)(const void *)((const char *)process + constants[i].offset);
}

void measured_print(const struct measured *measured, FILE *out) {
    char error[128];
    struct table *table = table_open("constant|process|assumed");
    for (int i = 0; i < N_CONSTANTS; i++) {
        table_add(table, "s %.4f %.4f", constants[i].name, constant_of(&measured->fitted, i),
                  constant_of(&measured->assumed, i));
    }
    if (isfinite(measured->gain)) { /* a system's, not the process's */
        table_add(table, "s %.4f %.4f", "iteration.gain", measured->gain, 1.0);
    }
    table_print(table, out);
    table_close(table);
    for (size_t i = 0; i < measured->n; i++) {
        print_trace(&measured->traces[i], out);
    }
    error_text(measured, error, sizeof error);
    fprintf(out, "\nerror on requests that nothing was fitted to: %s\n", error);
}

static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *trace_json(const struct measured_trace *trace) {
    json_t *numbers = json_object();
    for (int c = 0; c < N_COMPARED; c++) {
        struct number number;
        if (compare(trace, &compared[c], &number)) {
            json_object_set_new(
                numbers, compared[c].key,
                json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "measured",
                          real_or_null(number.measured), "standard_error",
                          real_or_null(number.error), "process", real_or_null(number.fitted), "off",
                          real_or_null(number.off_fitted), "assumed", real_or_null(number.assumed),
                          "assumed_off", real_or_null(number.off_assumed)));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "trace", trace->path, "system",
                     decode_trace_about(trace->trace, "system"), "cache",
                     decode_trace_about(trace->trace, "cache"), "decoder",
                     decode_trace_about(trace->trace, "decoder"), "fitted", trace->is_fitted,
                     "numbers", numbers, "logit_shift", real_or_null(trace->shift));
}

json_t *measured_json(const struct measured *measured) {
    const struct measured_error error = measured_error(measured);
    json_t *process = json_object(), *traces = json_array();
    for (int i = 0; i < N_CONSTANTS; i++) {
        json_object_set_new(process, constants[i].name,
                            real_or_null(constant_of(&measured->fitted, i)));
    }
    for (size_t i = 0; i < measured->n; i++) {
        json_array_append_new(traces, trace_json(&measured->traces[i]));
    }
    return json_pack(
        "{s:o, s:o*, s:o, s:{s:o, s:o, s:o, s:o}}", "process", process, "iteration_gain",
        isfinite(measured->gain) ? json_real(measured->gain) : NULL, "traces", traces, "error",
        "tokens_per_pass_rms", real_or_null(error.rms_yield), "tokens_per_pass_most",
        real_or_null(error.most_yield), "run_per_token_most", real_or_null(error.most_cost),
        "quintile_most", real_or_null(error.most_quintile));
}

void measured_write(const struct measured *measured, const char *name, FILE *out) {
    char error[128];
    const struct decode_trace *first = measured->traces[0].trace;
    error_text(measured, error, sizeof error);
    fprintf(out, "[%s]\ncalibrated_to = %zu requests", name, decode_trace_requests(first) / 2);
    for (size_t i = 0; i < measured->n && measured->traces[i].is_fitted; i++) {
        const struct decode_trace *trace = measured->traces[i].trace;
        fprintf(out, "%s %s under %s", i == 0 ? " of" : ",", decode_trace_about(trace, "model"),
                decode_trace_about(trace, "system"));
    }
    fprintf(out, "\nerror = %s\nblock_tokens = %u\n", error, measured->fitted.at.block_tokens);
    for (int i = 0; i < N_CONSTANTS; i++) {
        fprintf(out, "%s = %.4f\n", constants[i].name, constant_of(&measured->fitted, i));
    }
}
