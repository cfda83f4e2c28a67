#include "sim/price/lookup.h"

#include <string.h>

#include "sim/model/ranks.h"

/* What a profile without rows of the operator's own has instead. */
static struct op_pass pass_in(const struct profile *profile, const struct graph *graph,
                              const struct op *op) {
    struct op_pass pass = op_pass_of(graph, op);
    const enum profile_pass instead = op_type_of(op)->pass_instead;
    if (instead != 0 && profile != NULL && !profile_has_pass(profile, pass.pass)) {
        pass.pass = instead;
    }
    return pass;
}

static enum profile_op table_in(const struct profile *profile, const struct op_type *type) {
    const bool is_other = type->table_instead != 0 && !profile_has(profile, type->table);
    return is_other ? type->table_instead : type->table;
}

/* Unfused runtimes run other kernels than those that profiles name. */
static bool has_pass(const struct profile *profile, const struct graph *graph,
                     const struct op *op) {
    const struct op_type *type = op_type_of(op);
    return type->wide != WIDE_NONE && op->eager_bytes == 0 &&
           profile_type(profile) == op_profile_type(graph, op) &&
           profile_has_pass(profile, pass_in(profile, graph, op).pass);
}

/* The rows of a mixture's experts; NULL: the file has none of their type. */
static const struct profile *experts_rows(const struct profile *profile,
                                          const struct graph *graph) {
    const struct op experts = {.kind = OP_MOE_LINEAR, .weight = WEIGHT_EXPERTS_GATE_UP};
    const struct profile *rows = profile_in(profile, op_profile_type(graph, &experts));
    return rows != NULL && profile_has(rows, PROFILE_MOE) ? rows : NULL;
}

/* Whether a mixture's operator is in the rows of its experts' products, as others measure them: the
 * router, the choice, the sum. */
static bool is_included(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    return op_type_of(op)->within_experts && experts_rows(profile, graph) != NULL &&
           !has_pass(profile, graph, op);
}

static bool has_causal_pair(const struct profile *profile) {
    return profile_has(profile, PROFILE_ATTENTION_CAUSAL) &&
           profile_has(profile, PROFILE_ATTENTION_DECODE);
}

/* Whether rows of the operator's type can price it. */
static bool answers(const struct profile *rows, const struct graph *graph, const struct op *op) {
    const struct op_type *type = op_type_of(op);
    switch (type->family) {
    case FAMILY_PRODUCT:
        return profile_has(rows, PROFILE_GEMM);
    case FAMILY_ATTENTION:
        return profile_has(rows, table_in(rows, type)) || has_causal_pair(rows);
    case FAMILY_ROUTER:
    case FAMILY_EXPERTS:
    case FAMILY_EXCHANGE:
        return profile_has(rows, type->table);
    case FAMILY_PASS:
        break;
    }
    return profile_has(rows, PROFILE_ELEMENTWISE) || has_pass(rows, graph, op);
}

/* Of a file the rows that an operator is priced by: those of its type, where it has one and they
 * know such operators; passes go by the bytes that they move, too. NULL: there are none. */
static const struct profile *rows_of(const struct profile *profile, const struct graph *graph,
                                     const struct op *op) {
    const enum op_family family = op_type_of(op)->family;
    const enum profile_type type = op_profile_type(graph, op);
    if (family == FAMILY_EXCHANGE || type == profile_type(profile)) {
        return profile;
    }
    const struct profile *rows = profile_in(profile, type);
    if (rows != NULL && answers(rows, graph, op)) {
        return rows;
    }
    return family == FAMILY_PASS && profile_has(profile, PROFILE_ELEMENTWISE) ? profile : NULL;
}

bool lookup_is_measured(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    const struct op_type *type = op_type_of(op);
    const struct model_heads heads = graph_heads(graph, op);
    const struct profile *rows = rows_of(profile, graph, op);
    if (rows == NULL) {
        return lookup_is_answered(profile, graph, op);
    }
    switch (type->family) {
    case FAMILY_PRODUCT:
        return profile_measures(rows, type->table, op->n, op->k) ||
               profile_measures(rows, PROFILE_GEMM, op->n, op->k);
    case FAMILY_ROUTER:
    case FAMILY_EXPERTS:
        return profile_has(rows, type->table);
    case FAMILY_ATTENTION:
        return profile_measures_heads(rows, table_in(rows, type), heads.heads, heads.kv_heads,
                                      heads.head_dim);
    case FAMILY_EXCHANGE:
        return profile_measures_group(rows, type->table, model_ranks(graph->model));
    case FAMILY_PASS:
        break;
    }
    return lookup_is_answered(profile, graph, op);
}

bool lookup_is_answered(const struct profile *profile, const struct graph *graph,
                        const struct op *op) {
    const struct profile *rows = rows_of(profile, graph, op);
    return (rows != NULL && answers(rows, graph, op)) ||
           (op_type_of(op)->family == FAMILY_PASS && is_included(profile, graph, op));
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

int lookup_require(const struct profile *profile, const struct graph *graph, const struct op *op,
                   struct err *err) {
    const struct op_type *type = op_type_of(op);
    if (rows_of(profile, graph, op) != profile) {
        return 0;
    }
    switch (type->family) {
    case FAMILY_PRODUCT: {
        bool stands_alone = !type->activates && profile_has(profile, type->table);
        return stands_alone ? 0 : profile_require(profile, PROFILE_GEMM, err);
    }
    case FAMILY_EXPERTS:
        return profile_require(profile, type->table, err);
    case FAMILY_ATTENTION:
        return require_attention(profile, table_in(profile, type), err);
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

static void take_profile(struct lookup *lookup, bool is_included) {
    const struct profile *profile = lookup->profile;
    const struct graph *graph = lookup->of->graph;
    const struct op *op = lookup->op;
    const struct op_type *type = lookup->type;
    lookup->kind = profile_kind(profile);
    lookup->is_ours = is_ours(profile);
    lookup->is_included = is_included;
    lookup->table = table_in(profile, type);
    lookup->has_own = type->family == FAMILY_PASS ? has_pass(profile, graph, op)
                      : type->family == FAMILY_ROUTER
                          ? false /* within the experts', or a product */
                          : profile_has(profile, lookup->table);
    lookup->has_bytes = profile_has(profile, PROFILE_ELEMENTWISE);
    lookup->is_absent = type->is_part && !lookup->has_own;
    /* By its size; by its name in old files. */
    lookup->in_step = profile_correction(profile);
    struct correction_key key = correction_key_of(op_size_of(graph, op));
    int curve = correction_find(lookup->in_step, op->kind, key.text);
    lookup->correction = curve >= 0 ? curve : correction_find(lookup->in_step, op->kind, op->name);
    if (type->family == FAMILY_ATTENTION) {
        const struct model_heads heads = graph_heads(graph, op);
        lookup->layouts = profile_layouts_of(profile, heads.heads, heads.kv_heads, heads.head_dim);
    }
}

void lookup_open(struct lookup *lookup, const struct lookup_shared *of, const struct op *op,
                 const struct profile *profile, bool is_behind) {
    const struct op_type *type = op_type_of(op);
    const bool included = profile != NULL && is_included(profile, of->graph, op);
    const struct profile *rows = profile == NULL ? NULL
                                 : included      ? experts_rows(profile, of->graph)
                                                 : rows_of(profile, of->graph, op);
    *lookup = (struct lookup){.of = of,
                              .op = op,
                              .type = type,
                              .table = type->table,
                              .profile = rows,
                              .kind = PROVENANCE_ROOFLINE,
                              .is_behind = is_behind,
                              .correction = -1};
    if (type->wide != WIDE_NONE) {
        lookup->pass = pass_in(rows, of->graph, op);
    }
    lookup->is_absent = type->is_part && type->wide == WIDE_NONE;
    lookup->peaks = rows != NULL ? *profile_peaks(rows) : profile_peaks_of(of->gpu);
    lookup->reached_bandwidth = reached_bandwidth(of->gpu, &lookup->peaks);
    lookup->plain_row_bytes = op_is_product(op) ? (double)op_plain_row_bytes(of->graph, op) : 0;
    lookup->passes = profile;
    lookup->passes_have_bytes = profile != NULL && profile_has(profile, PROFILE_ELEMENTWISE);
    lookup->has_activation = profile != NULL && profile_type(profile) == op_wide_type(of->graph) &&
                             profile_has_pass(profile, PASS_SWIGLU);
    if (rows != NULL) {
        take_profile(lookup, included);
    }
    lookup_take_steps(lookup);
}
