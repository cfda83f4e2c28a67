#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/price/captured.h"
#include "sim/price/cost_model.h"
#include "sim/price/ladder.h"

static enum provenance_kind kind_of(const struct profile *profile) {
    return profile == NULL ? PROVENANCE_ROOFLINE : profile_kind(profile);
}

static void use_symbol(struct cost_model *cost, enum symbol symbol) {
    if (cost->known[symbol] == NULL) {
        cost->known[symbol] = mem_reserved(TABLE_VALUES, sizeof *cost->known[symbol]);
    }
    cost->n_used = 0;
    for (int i = 0; i < SYM_COUNT; i++) {
        if (cost->known[i] != NULL) {
            cost->used[cost->n_used++] = (enum symbol)i;
        }
    }
}

/* Source of each operator's price: the profile; `behind` where that alone has rows for the
 * operator; and where neither has the rows that it needs, roofline, or a refusal. */
static int choose_profiles(struct cost_model *cost, const struct profile *behind, bool fills_gaps,
                           struct err *err) {
    const struct graph *graph = cost->pricing.graph;
    cost->kind = kind_of(cost->profile);
    cost->behind_kind = kind_of(behind);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        bool is_behind = cost->profile != NULL && behind != NULL && !op_type_of(op)->is_part &&
                         !lookup_is_measured(cost->profile, graph, op) &&
                         lookup_is_answered(behind, graph, op);
        const struct profile *answers = is_behind ? behind : cost->profile;
        struct err missing = {0};
        if (answers != NULL && lookup_require(answers, graph, op, &missing) != 0) {
            if (!fills_gaps) {
                return err_world(err,
                                 "%s: measure them (`unmask calibrate --system NAME` measures what "
                                 "that system runs), price by the data sheet (--roofline), or on a "
                                 "GPU that has them (`unmask profile show NAME` lists a GPU's)",
                                 missing.text);
            }
            answers = NULL;
            is_behind = false;
        }
        lookup_open(&cost->lookups[i], &cost->pricing, op, answers, is_behind);
        cost->n_behind += is_behind;
    }
    return 0;
}

static void add_up_layers(struct cost_model *cost) {
    const struct runtime *r = cost->pricing.runtime;
    double layers = (double)cost->pricing.graph->model->layers;
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        cost->host[kind] = (struct host_terms){
            .step_ns = r->host_step_ns[kind] + layers * r->host_layer_ns[kind],
            .launches = r->launches_step[kind] + layers * r->launches_layer[kind],
            .request_ns = r->host_request_ns[kind] + layers * r->host_layer_request_ns[kind],
            .request_launches =
                r->launches_request[kind] + layers * r->launches_layer_request[kind]};
    }
}

static int open_cost(const struct gpu *gpu, const struct profile *profile,
                     const struct profile *behind, const struct runtime *runtime,
                     const struct graph *graph, bool fills_gaps, struct cost_model **out,
                     struct err *err) {
    struct cost_model *cost = mem_zeroed(1, sizeof *cost);
    static const struct expert_routing random = {.exponent = 1, .is_random = true};
    cost->pricing = (struct lookup_shared){gpu, runtime, graph, &random};
    cost->profile = profile;
    cost->power =
        profile != NULL && power_is_known(profile_power(profile)) ? profile_power(profile) : NULL;
    add_up_layers(cost);
    const double *issued_ns = runtime->issued_ns;
    cost->knows_issued =
        issued_ns[HOST_REFRESH] > 0 || issued_ns[HOST_REUSE] > 0 || issued_ns[HOST_SELECT] > 0;
    int status = choose_profiles(cost, behind, fills_gaps, err);
    if (status != 0) {
        free(cost);
        return status;
    }
    bool goes_by_each = false;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        cost->n_executions += op_type_of(op)->is_part ? 0 : graph->segments[op->segment].repeat;
        cost->waiting = op_type_of(op)->waits != NULL ? &cost->lookups[i] : cost->waiting;
        if (op_is_attention(op)) {
            goes_by_each = goes_by_each || price_steps[STEP_VARLEN].concerns(&cost->lookups[i]);
            cost->attention[cost->n_attention++] = i;
        } else if (!cost->lookups[i].is_absent) {
            use_symbol(cost, op->rows);
        }
    }
    cost->steps = goes_by_each ? NULL : mem_reserved(1, sizeof *cost->steps);
    cost->spans = goes_by_each
                      ? NULL
                      : mem_reserved((size_t)cost->n_attention * KNOWN_SPANS, sizeof *cost->spans);
    cost->settled = cost->power != NULL ? mem_reserved(KNOWN_SETTLED, sizeof *cost->settled) : NULL;
    *out = cost;
    return 0;
}

int cost_open(const struct gpu *gpu, const struct profile *profile, const struct profile *behind,
              const struct runtime *runtime, const struct graph *graph, struct cost_model **out,
              struct err *err) {
    return open_cost(gpu, profile, behind, runtime, graph, false, out, err);
}

int cost_open_with_gaps(const struct gpu *gpu, const struct profile *profile,
                        const struct profile *behind, const struct runtime *runtime,
                        const struct graph *graph, struct cost_model **out, struct err *err) {
    return open_cost(gpu, profile, behind, runtime, graph, true, out, err);
}

const struct profile *cost_collectives(const struct cost_model *cost) {
    const struct profile *profile = NULL;
    for (uint32_t i = 0; i < cost->pricing.graph->n_ops; i++) {
        const struct lookup *lookup = &cost->lookups[i];
        bool answers = lookup->type->table == PROFILE_ALL_REDUCE && lookup->has_own;
        profile = answers ? lookup->profile : profile;
    }
    return profile;
}

uint32_t cost_ops_behind(const struct cost_model *cost) {
    return cost->n_behind;
}

struct price_shares cost_shares(const struct cost_model *cost, const struct price_time *time) {
    struct price_shares shares = {0};
    double all_ns = 0;
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        all_ns += time->match_ns[match];
    }
    if (all_ns <= 0) {
        return shares;
    }
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        shares.by_match[match] = time->match_ns[match] / all_ns;
    }
    double roofline_ns = time->match_ns[PRICE_ROOFLINE];
    shares.by_kind[PROVENANCE_ROOFLINE] = (roofline_ns - time->link_ns) / all_ns;
    shares.by_kind[PROVENANCE_ASSUMED] += time->link_ns / all_ns;
    shares.by_kind[cost->behind_kind] += time->behind_ns / all_ns;
    shares.by_kind[cost->kind] += (all_ns - roofline_ns - time->behind_ns) / all_ns;
    return shares;
}

void cost_routes(struct cost_model *cost, const struct expert_routing *routing) {
    cost->pricing.routing = routing;
}

double cost_experts_hit(const struct cost_model *cost, double n_tokens) {
    for (uint32_t i = 0; i < cost->pricing.graph->n_ops; i++) {
        if (cost->lookups[i].type->family == FAMILY_EXPERTS) {
            return lookup_experts_hit(&cost->lookups[i], n_tokens);
        }
    }
    return 0;
}

void cost_close(struct cost_model *cost) {
    if (cost == NULL) {
        return;
    }
    for (int symbol = 0; symbol < SYM_COUNT; symbol++) {
        mem_released(cost->known[symbol]);
    }
    mem_released(cost->steps);
    mem_released(cost->spans);
    mem_released(cost->settled);
    free(cost);
}
