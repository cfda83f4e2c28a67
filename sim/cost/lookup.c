#include "sim/cost/lookup.h"

#include <string.h>

#include "sim/model/ranks.h"

/* Unfused runtimes run other kernels than those that profiles name. */
static bool has_pass(const struct profile *profile, const struct graph *graph,
                     const struct op *op) {
    const struct op_type *type = op_type_of(op);
    return type->wide != WIDE_NONE && op->eager_bytes == 0 &&
           profile_has_pass(profile, op_pass_of(graph, op).pass);
}

/* Whether a mixture's operator is in the rows of its experts' products, as others measure them: the
 * router, the choice, the sum. */
static bool is_included(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    return op_type_of(op)->within_experts && profile_has(profile, PROFILE_MOE) &&
           !has_pass(profile, graph, op);
}

static bool has_causal_pair(const struct profile *profile) {
    return profile_has(profile, PROFILE_ATTENTION_CAUSAL) &&
           profile_has(profile, PROFILE_ATTENTION_DECODE);
}

bool lookup_is_measured(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    const struct op_type *type = op_type_of(op);
    const struct model *m = graph->model;
    switch (type->family) {
    case FAMILY_PRODUCT:
        return profile_measures(profile, type->table, op->n, op->k) ||
               profile_measures(profile, PROFILE_GEMM, op->n, op->k);
    case FAMILY_ROUTER:
    case FAMILY_EXPERTS:
        return profile_has(profile, type->table);
    case FAMILY_ATTENTION:
        return profile_measures_heads(profile, type->table, m->heads, m->kv_heads, m->head_dim);
    case FAMILY_EXCHANGE:
        return profile_measures_group(profile, type->table, model_ranks(m));
    case FAMILY_PASS:
        break;
    }
    return lookup_is_answered(profile, graph, op);
}

bool lookup_is_answered(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    const struct op_type *type = op_type_of(op);
    switch (type->family) {
    case FAMILY_PRODUCT:
        return profile_has(profile, PROFILE_GEMM);
    case FAMILY_ATTENTION:
        return profile_has(profile, type->table) || has_causal_pair(profile);
    case FAMILY_ROUTER:
    case FAMILY_EXPERTS:
    case FAMILY_EXCHANGE:
        return profile_has(profile, type->table);
    case FAMILY_PASS:
        break;
    }
    return profile_has(profile, PROFILE_ELEMENTWISE) || is_included(profile, graph, op) ||
           has_pass(profile, graph, op);
}

/* Rows of the operator itself, or of the causal pair that stands for both. */
static int require_attention(const struct profile *profile, enum profile_op own, struct err *err) {
    if (profile_has(profile, own) || has_causal_pair(profile)) {
        return 0;
    }
    bool has_own = profile_has(profile, PROFILE_ATTENTION_FULL) ||
                   profile_has(profile, PROFILE_ATTENTION_BLOCK);
    bool has_causal = profile_has(profile, PROFILE_ATTENTION_CAUSAL);
    return profile_require(profile,
                           has_own       ? own
                           : !has_causal ? PROFILE_ATTENTION_CAUSAL
                                         : PROFILE_ATTENTION_DECODE,
                           err);
}

int lookup_require(const struct profile *profile, const struct op *op, struct err *err) {
    const struct op_type *type = op_type_of(op);
    switch (type->family) {
    case FAMILY_PRODUCT: {
        bool stands_alone = !type->activates && profile_has(profile, type->table);
        return stands_alone ? 0 : profile_require(profile, PROFILE_GEMM, err);
    }
    case FAMILY_EXPERTS:
        return profile_require(profile, type->table, err);
    case FAMILY_ATTENTION:
        return require_attention(profile, type->table, err);
    case FAMILY_ROUTER:
    case FAMILY_EXCHANGE:
    case FAMILY_PASS:
        break;
    }
    return 0;
}

/* Bandwidth that memory is read at: the best known of such cards, or this card's own where its rows
 * show more than its data sheet. With a lower one, operators that the clock stretches would be
 * taken for memory-bound (experiments/gpu/rehearsal.sh, 2026-11-28: a step of 2.8 times its time).
 */
static double reached_bandwidth(const struct gpu *gpu, const struct profile_peaks *peaks) {
    return peaks->bandwidth > gpu->peak_bandwidth ? peaks->bandwidth : gpu->best_bandwidth;
}

static bool is_ours(const struct profile *profile) {
    const char *donor = profile_note(profile, "donor_kind");
    return profile_kind(profile) == PROVENANCE_MEASURED ||
           (donor != NULL && strcmp(donor, provenance_words[PROVENANCE_MEASURED]) == 0);
}

static void take_profile(struct lookup *lookup, const struct profile *profile) {
    const struct graph *graph = lookup->of->graph;
    const struct op *op = lookup->op;
    const struct op_type *type = lookup->type;
    lookup->kind = profile_kind(profile);
    lookup->is_ours = is_ours(profile);
    lookup->is_included = is_included(profile, graph, op);
    lookup->has_own = type->family == FAMILY_PASS ? has_pass(profile, graph, op)
                                                  : profile_has(profile, type->table);
    lookup->has_bytes = profile_has(profile, PROFILE_ELEMENTWISE);
    lookup->has_activation = profile_has_pass(profile, PASS_SWIGLU);
    lookup->is_absent = type->is_part && !lookup->has_own;
    /* By its size; by its name in old files. */
    lookup->in_step = profile_correction(profile);
    struct correction_key key = correction_key_of(op_size_of(graph, op));
    int curve = correction_find(lookup->in_step, op->kind, key.text);
    lookup->correction = curve >= 0 ? curve : correction_find(lookup->in_step, op->kind, op->name);
    if (type->family == FAMILY_ATTENTION) {
        const struct model *m = graph->model;
        lookup->layouts = profile_layouts_of(profile, m->heads, m->kv_heads, m->head_dim);
    }
}

void lookup_open(struct lookup *lookup, const struct lookup_shared *of, const struct op *op,
                 const struct profile *profile, bool is_behind) {
    const struct op_type *type = op_type_of(op);
    *lookup = (struct lookup){.of = of,
                              .op = op,
                              .type = type,
                              .profile = profile,
                              .kind = PROVENANCE_ROOFLINE,
                              .is_behind = is_behind,
                              .correction = -1};
    if (type->wide != WIDE_NONE) {
        lookup->pass = op_pass_of(of->graph, op);
    }
    lookup->is_absent = type->is_part && type->wide == WIDE_NONE;
    lookup->peaks = profile != NULL ? *profile_peaks(profile) : profile_peaks_of(of->gpu);
    lookup->reached_bandwidth = reached_bandwidth(of->gpu, &lookup->peaks);
    if (profile != NULL) {
        take_profile(lookup, profile);
    }
    lookup_take_steps(lookup);
}
