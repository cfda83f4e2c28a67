#include "sim/price/why.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/model/ranks.h"
#include "sim/price/ladder.h"
#include "sim/price/link.h"
#include "sim/price/roofline.h"

/* A text of a provenance, with the kind. */
__attribute__((format(printf, 3, 4))) static void
say(struct provenance *out, enum provenance_kind kind, const char *format, ...) {
    va_list arguments;
    *out = provenance_of(kind, NULL);
    va_start(arguments, format);
    vsnprintf(out->source, sizeof out->source, format, arguments);
    va_end(arguments);
}

/* ---- what steps of an operator rest on ---- */

/* The profile's file as the data folder has it; of a transferred one the donor's. */
static void say_rows(const struct profile *of, struct provenance *out, const char *rows) {
    const char *path = profile_path(of), *shipped = strstr(path, "kernels/profiles/");
    const enum provenance_kind kind = profile_kind(of);
    say(out, kind, "%s%s: %s", kind == PROVENANCE_TRANSFERRED ? "scaled from " : "",
        shipped != NULL ? shipped : path, rows);
}

static void say_sheet(const struct lookup *l, struct provenance *out, const char *keys) {
    say(out, PROVENANCE_ROOFLINE, "%s's %s (%s)", l->of->gpu->name, keys, l->of->gpu->source);
}

static const char best_rates[] = "best_bf16_flops, best_bandwidth";
static const char fp8_rates[] = "peak_fp8_flops, best_bandwidth";

/* Rows by name or by bytes, or none. */
static void say_pass(const struct lookup *l, const struct profile *of, bool has_pass,
                     struct op_pass pass, const struct priced *p, struct provenance *out) {
    char rows[96];
    if (has_pass) {
        snprintf(rows, sizeof rows, "pass,%s,%" PRId64 ",%" PRId64, profile_pass_names[pass.pass],
                 pass.channels, p->rows);
        say_rows(of, out, rows);
    } else if (of != NULL && profile_has(of, PROFILE_ELEMENTWISE)) {
        snprintf(rows, sizeof rows, "elementwise,%.0f", p->price.bytes);
        say_rows(of, out, rows);
    } else {
        say_sheet(l, out, best_rates);
    }
}

/* A row of this very size that was raised when its table was imported. */
static double warm_us_of(const struct priced *p) {
    const struct lookup *l = p->lookup;
    if (l->type->family == FAMILY_EXPERTS) {
        return profile_moe_warm_us(l->profile, lookup_moe_shape(l), p->rows);
    }
    const bool is_gemm = (l->type->family == FAMILY_PRODUCT || l->type->family == FAMILY_ROUTER) &&
                         !(l->has_own && l->table != PROFILE_GEMM);
    return is_gemm ? profile_gemm_warm_us(l->profile, p->rows, l->op->n, l->op->k) : 0;
}

static void product_rows(const struct priced *p, char *rows, size_t size) {
    const struct lookup *l = p->lookup;
    const enum profile_op table = l->has_own && l->table != PROFILE_GEMM ? l->table : PROFILE_GEMM;
    snprintf(rows, size, "%s,%" PRId64 ",%" PRId64 ",%" PRId64, profile_op_name(table), p->rows,
             l->op->n, l->op->k);
}

static void experts_rows(const struct priced *p, char *rows, size_t size) {
    const struct model *m = p->lookup->of->graph->model;
    snprintf(rows, size, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu32 ",%" PRIu32,
             profile_op_name(PROFILE_MOE), p->rows, (int64_t)m->hidden, (int64_t)m->expert_ffn,
             p->lookup->op->experts_active, p->lookup->op->experts);
}

static void attention_rows(const struct priced *p, char *rows, size_t size) {
    const struct lookup *l = p->lookup;
    const struct model_heads heads = graph_heads(l->of->graph, l->op);
    const int64_t n = p->shape->sym[l->op->span_n];
    snprintf(rows, size,
             "%s, %" PRId64 " sequences of %.4g queries over %.4g keys, heads %" PRId64 ",%" PRId64
             ",%" PRId64,
             l->has_own ? profile_op_name(l->table) : "attention_causal, attention_decode", n,
             p->amount.sum_q / (double)n, p->amount.sum_kv / (double)n, (int64_t)heads.heads,
             (int64_t)heads.kv_heads, (int64_t)heads.head_dim);
}

static void exchange_rows(const struct priced *p, char *rows, size_t size) {
    snprintf(rows, size, "%s over %" PRIu32 " GPUs", profile_op_name(p->lookup->table),
             model_ranks(p->lookup->of->graph->model));
}

static void (*const rows_by_family[FAMILY_COUNT])(const struct priced *p, char *rows,
                                                  size_t size) = {
    [FAMILY_PRODUCT] = product_rows,   [FAMILY_ROUTER] = product_rows,
    [FAMILY_EXPERTS] = experts_rows,   [FAMILY_ATTENTION] = attention_rows,
    [FAMILY_EXCHANGE] = exchange_rows,
};

static void of_look_up(const struct priced *p, struct provenance *out) {
    const struct lookup *l = p->lookup;
    char rows[224] = "moe: the experts' rows have it";
    if (l->is_included) {
        say_rows(l->profile, out, rows);
    } else if (l->type->family == FAMILY_PASS) {
        say_pass(l, l->profile, l->has_own, l->pass, p, out);
    } else if (lookup_is_assumed(l)) {
        char link[64];
        say(out, PROVENANCE_ASSUMED, "by the kind of link, %s",
            link_words(l->of->gpu, link, sizeof link));
    } else if (l->profile == NULL) {
        say_sheet(l, out, p->work.fp8_flops > 0 ? fp8_rates : best_rates);
    } else {
        rows_by_family[l->type->family](p, rows, sizeof rows);
        const size_t n = strlen(rows);
        const bool is_other = l->profile != l->passes; /* than the file's own type */
        const double warm_us = warm_us_of(p);
        char raised[64] = "";
        if (warm_us > 0) {
            snprintf(raised, sizeof raised, ": raised from %.4g us of a warm cache", warm_us);
        }
        snprintf(rows + n, sizeof rows - n, "%s%s (%s%s)", is_other ? "," : "",
                 is_other ? profile_type_words[profile_type(l->profile)] : "",
                 price_match_words[p->price.match], raised);
        say_rows(l->profile, out, rows);
    }
}

static void of_varlen(const struct priced *p, struct provenance *out) {
    say_rows(p->lookup->profile, out,
             "attention_mixed; FlashAttention-2 splits no sequence of many");
}

static void of_activation(const struct priced *p, struct provenance *out) {
    const struct lookup *l = p->lookup;
    const struct op_pass pass = {PASS_SWIGLU, l->op->n / 2};
    struct priced activation = *p;
    activation.price.bytes =
        (double)(3 * pass.channels * graph_element_bytes(l->of->graph) * p->rows);
    say_pass(l, l->passes, l->has_activation, pass, &activation, out);
}

static void of_mixture(const struct priced *p, struct provenance *out) {
    (void)p;
    say(out, PROVENANCE_ASSUMED, "time goes by weights, of which there are three equal matrices");
}

static void of_eager(const struct priced *p, struct provenance *out) {
    const struct op *op = p->lookup->op;
    const struct gpu *gpu = p->lookup->of->gpu;
    const bool is_cached = p->price.bytes < (double)(p->rows * op->eager_bytes);
    say(out, is_cached ? PROVENANCE_ASSUMED : PROVENANCE_MEASURED,
        is_cached
            ? "%" PRId64 " bytes a row, counted in the released code; in the L2 cache at %s's "
              "l2_bandwidth, an estimate"
            : "%" PRId64 " bytes a row, counted in the released code; %s's L2 cache holds none",
        op->eager_bytes, gpu->name);
}

static void of_eager_rate(const struct priced *p, struct provenance *out) {
    static const char measured_on[] = "h200";
    const bool is_here = strcmp(p->lookup->of->gpu->name, measured_on) == 0;
    say(out, is_here ? PROVENANCE_MEASURED : PROVENANCE_TRANSFERRED,
        "%.4g GB/s of a multiprocessor, profiled on an H200", p->lookup->op->eager_sm_rate);
}

static void of_double(const struct priced *p, struct provenance *out) {
    say_sheet(p->lookup, out, "peak_fp64_flops");
}

static void of_correction(const struct priced *p, struct provenance *out) {
    const struct lookup *l = p->lookup;
    char rows[96] = "load,FACTOR of all operators";
    if (l->correction >= 0) {
        snprintf(rows, sizeof rows, "load,%s,%s", op_kind_names[l->op->kind],
                 l->in_step->curves[l->correction].key.text);
    }
    say_rows(l->profile, out, rows);
}

static void of_floor(const struct priced *p, struct provenance *out) {
    const struct gpu *gpu = p->lookup->of->gpu;
    const double bytes = p->work.weight_bytes + p->work.cached_bytes;
    const bool by_bytes = bytes / gpu->peak_bandwidth * 1e9 >= floor_ns(gpu, &p->work);
    say_sheet(p->lookup, out, by_bytes ? "peak_bandwidth" : "peak FLOP/s");
}

static void of_repetitions(const struct priced *p, struct provenance *out) {
    const struct graph *graph = p->lookup->of->graph;
    say(out, PROVENANCE_MEASURED, "counted: %.0f of segment '%s' in %s", p->repeat,
        graph->segments[p->lookup->op->segment].name, graph->model->name);
}

static void of_chunks(const struct priced *p, struct provenance *out) {
    say(out, p->lookup->kind, "%" PRId64 " of %" PRId64 " rows at once, each priced as above",
        p->chunk, p->rows);
}

/* NULL: a setting says it. */
static const struct {
    void (*say)(const struct priced *p, struct provenance *out);
    const char *setting;
} of_steps[PRICE_STEPS] = {
    [STEP_LOOK_UP] = {of_look_up, NULL},
    [STEP_VARLEN] = {of_varlen, NULL},
    [STEP_PRODUCT_RATIO] = {NULL, "runtime.product_ratio"},
    [STEP_ACTIVATION] = {of_activation, NULL},
    [STEP_MIXTURE] = {of_mixture, NULL},
    [STEP_EAGER] = {of_eager, NULL},
    [STEP_EAGER_RATE] = {of_eager_rate, NULL},
    [STEP_DOUBLE] = {of_double, NULL},
    [STEP_CORRECTION] = {of_correction, NULL},
    [STEP_CORRECTION_HITS] = {of_correction, NULL},
    [STEP_FLOOR] = {of_floor, NULL},
    [STEP_REPETITIONS] = {of_repetitions, NULL},
    [STEP_CHUNKS] = {of_chunks, NULL},
    [STEP_WAIT] = {NULL, "evict_wait_ns"},
};

static bool is_same(double a, double b) {
    return !(a < b || a > b);
}

static struct why_rung *add(struct why *why, const char *name, const char *says, double before_ns,
                            double after_ns) {
    why->ns = after_ns;
    if (is_same(before_ns, after_ns) || why->n == WHY_MOST_RUNGS) {
        return NULL;
    }
    struct why_rung *rung = &why->rungs[why->n++];
    *rung =
        (struct why_rung){.name = name, .says = says, .before_ns = before_ns, .after_ns = after_ns};
    return rung;
}

static void take_step(void *state, enum price_step_id step, double before_ns, double after_ns,
                      const struct priced *priced) {
    struct why *why = state;
    struct why_rung *rung =
        add(why, price_steps[step].name, price_steps[step].says, before_ns, after_ns);
    if (rung == NULL) {
        return;
    }
    rung->setting = of_steps[step].setting;
    if (of_steps[step].say != NULL) {
        of_steps[step].say(priced, &rung->from);
    }
    why->kind = step == STEP_LOOK_UP ? rung->from.kind : why->kind;
    why->is_raised = why->is_raised || step == STEP_FLOOR;
}

void why_operator(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
                  struct chunk_rows chunks, struct why *out) {
    *out = (struct why){.kind = PROVENANCE_ROOFLINE};
    cost_show(cost, op, shape, chunks, take_step, out);
}

/* ---- of a step ---- */

static const char *const term_settings[STEP_TERMS] = {
    [TERM_LAUNCHES] = "runtime.small_kernel_ns",
    [TERM_HOST] = "runtime.host_mode",
    [TERM_VISIT] = "runtime.host_visit_ns",
    [TERM_PLANS] = "runtime.host_plan_ns",
    [TERM_WAITS] = "evict_wait_ns",
};

static void take_term(void *state, enum step_term_id term, double before_ns, double after_ns) {
    struct why *why = state;
    struct why_rung *rung =
        add(why, step_terms[term].name, step_terms[term].says, before_ns, after_ns);
    if (rung != NULL) {
        rung->setting = term_settings[term];
    }
    if (rung != NULL && term == TERM_CLOCK) {
        say(&rung->from, PROVENANCE_MEASURED, "power rows of the profile");
    }
}

void why_step(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows chunks,
              const struct step_price *price, struct why *out) {
    *out = (struct why){.kind = PROVENANCE_ROOFLINE};
    cost_show_step(cost, shape, chunks, price->plan_ns, take_term, out);
}
