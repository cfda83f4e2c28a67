#include "analysis/transferred.h"

#include <math.h>

static const double least_share = 0.05; /* as of a warning (analysis/caution.c) */

/* Simulated / live - 1 over 20 runs of LLaDA-8B under the Azure conversation trace, by our own
 * library under load: eight on an H100 by the profile of an H200, twelve on an H200 by the profile
 * of an H100, each of the best and worst (2026-11-23,
 * experiments/gpu/results/2026-11-23-grid/transfer.txt). */
static const double throughput_errors[] = {-0.044, 0.041};
static const double latency_errors[] = {-0.138, 0.141};

const char transferred_source[] =
    "20 live runs on an H200 and an H100, each by the other's profile: throughput -4.4 to +4.1 % "
    "off, mean latency -13.8 to +14.1 %";

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
