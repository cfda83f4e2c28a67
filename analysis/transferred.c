#include "analysis/transferred.h"

#include <math.h>

static const double least_share = 0.05; /* as of a warning (analysis/caution.c) */

/* Simulated / live - 1 under the Azure conversation trace, the best and the worst: LLaDA-8B by
 * profiles measured under load, eight runs on an H100 by an H200's and twelve on an H200 by an
 * H100's (-4.4 to +4.1 %, mean latency -13.8 to +14.1 %, by the rule of before); LLaDA-8B, SDAR-8B
 * and LLaDA2.0-mini by profiles with clocks, 87 and 129 (-6.1 to +5.2 %, -14.1 to +15.9 %;
 * experiments/gpu/results/2026-11-23-grid/transfer.txt, experiments/gpu/again.sh). */
static const double throughput_errors[] = {-0.061, 0.052};
static const double latency_errors[] = {-0.141, 0.159};

const char transferred_source[] =
    "236 live runs on H200s and H100s, each by the other's profile: throughput -6.1 to +5.2 % off, "
    "mean latency -14.1 to +15.9 %";

bool transferred_interval(const struct summary *summary, const struct run_facts *facts,
                          struct transferred *out) {
    if (facts->device != NULL ||
        !(facts->price_shares.by_kind[PROVENANCE_TRANSFERRED] >= least_share)) {
        return false;
    }
    const bool has_latency = summary->completed > 0;
    const double latency_s = has_latency ? summary->latency.mean : (double)NAN;
    *out = (struct transferred){
        .low_tok_s = summary->throughput_tok_s / (1 + throughput_errors[1]),
        .high_tok_s = summary->throughput_tok_s / (1 + throughput_errors[0]),
        .low_latency_s = latency_s / (1 + latency_errors[1]),
        .high_latency_s = latency_s / (1 + latency_errors[0]),
    };
    return true;
}
