#include "sim/model/routing.h"
#include "sim/base/system.h"

#include <math.h>
#include <string.h>

double model_experts_hit(uint32_t experts, uint32_t experts_active, double n_tokens) {
    return experts * (1 - pow(1 - (double)experts_active / experts, n_tokens));
}

/* How many random draws n_tokens tokens count as. */
static double routing_draws(const struct expert_routing *routing, double n_tokens) {
    double block = routing->block_tokens;
    if (routing->exponent == 1 || n_tokens <= 1) {
        return n_tokens;
    }
    return n_tokens < block ? pow(n_tokens, routing->exponent)
                            : n_tokens / block * pow(block, routing->exponent);
}

/* The share of experts that none of n blocks hits, where one block misses `missed`. */
static double share_missed(double spread, double missed, double n) {
    double b = missed * spread;
    return exp(system_log_gamma(b + n) - system_log_gamma(b) + system_log_gamma(spread) -
               system_log_gamma(spread + n));
}

double routing_hits(const struct expert_routing *routing, uint32_t experts, uint32_t experts_active,
                    double n_tokens) {
    double blocks = n_tokens / routing->block_tokens;
    if (routing->spread > 0 && blocks > 1) {
        double one = routing_hits(routing, experts, experts_active, routing->block_tokens);
        return experts * (1 - share_missed(routing->spread, 1 - one / experts, blocks));
    }
    return model_experts_hit(experts, experts_active, routing_draws(routing, n_tokens));
}

/* A count of the model itself begins with the word; another source is a publication. */
static struct provenance provenance_of_hits(const char *source) {
    static const char counted[] = "measured: ";
    bool is_ours = source != NULL && strncmp(source, counted, sizeof counted - 1) == 0;
    return is_ours ? provenance_of(PROVENANCE_MEASURED, source + sizeof counted - 1)
                   : provenance_of(PROVENANCE_IMPORTED, source);
}

/* By the second moment of what a block misses: 0 where two blocks hit no fewer than by chance. */
static double spread_of(double experts, double one, double two) {
    double missed = 1 - one / experts, both = 1 - two / experts;
    double variance = both - missed * missed;
    return two > one && variance > 0 ? missed * (1 - missed) / variance - 1 : 0;
}

/* The experts that a block hits where its tokens would hit `free` each by itself. What a block
 * admits bounds it from above: assumed to be reached, but for a count under the rule. */
static double hits_by_block(const struct model *whole, double free, struct provenance *from) {
    const bool is_counted =
        whole->block_routing == BLOCK_ROUTING_SHARE && whole->share_experts_hit > 0;
    double most = is_counted ? whole->share_experts_hit : (double)whole->block_experts;
    if (whole->block_routing == BLOCK_ROUTING_NONE || most >= free) {
        return free;
    }
    *from = is_counted ? provenance_of_hits(whole->block_experts_hit_source)
                       : provenance_of(PROVENANCE_ASSUMED, "as many as block_routing lets it");
    return most;
}

int routing_make(const struct model *whole, double asked, bool has_random_weights,
                 struct expert_routing *out, struct err *err) {
    double experts = whole->experts, active = whole->experts_active, block = whole->block_tokens;
    bool is_random = has_random_weights && asked <= 0;
    double hits = asked > 0 ? asked : is_random ? 0 : whole->block_experts_hit;
    *out = (struct expert_routing){.exponent = 1, .block_tokens = block, .is_random = is_random};
    out->provenance = asked > 0   ? provenance_of(PROVENANCE_ASSUMED, "experts_hit")
                      : is_random ? provenance_of(PROVENANCE_ASSUMED,
                                                  "random weights: each token's choice random")
                      : hits > 0  ? provenance_of_hits(whole->block_experts_hit_source)
                                  : provenance_of(PROVENANCE_ASSUMED, "each token's choice random");
    if (asked > 0 && (experts == 0 || asked < active)) {
        return err_usage(err, "experts_hit = %g: %s", asked,
                         experts == 0 ? "the model has no experts"
                                      : "one token hits more of them already");
    }
    double chance = model_experts_hit(whole->experts, whole->experts_active, block);
    double free = hits > 0 ? hits : chance;
    double by_block = asked > 0 ? free : hits_by_block(whole, free, &out->provenance);
    out->is_by_block = by_block < free;
    hits = out->is_by_block ? by_block : hits;
    out->is_random = is_random && !out->is_by_block;
    if (hits > 0 && block > 1 && hits < chance) {
        double draws = log(1 - hits / experts) / log(1 - active / experts);
        out->exponent = log(draws) / log(block);
        out->spread = asked > 0 || out->is_by_block
                          ? 0
                          : spread_of(experts, hits, whole->two_blocks_experts_hit);
    }
    return 0;
}
