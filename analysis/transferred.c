#include "analysis/transferred.h"

#include <math.h>

static const double least_share = 0.05; /* as of a warning (analysis/caution.c) */

/* Simulated / live - 1 over 68 runs of LLaDA-8B under the Azure conversation trace, the best and
 * the worst: by profiles measured under load eight on an H100 by an H200's and twelve on an H200 by
 * an H100's (-4.4 to +4.1 %, mean latency -13.8 to +14.1 %), by profiles with clocks 23 and 25
 * (2026-11-23, experiments/gpu/results/2026-11-23-grid/transfer.txt,
 * 2026-11-23-serving-steps/table-h100-a-by-h200.txt, table-h200-b-by-h100.txt and
 * 2026-11-23-issued-steps/table-h100-b-by-h200.txt, table-h200-by-h100.txt). */
static const double throughput_errors[] = {-0.072, 0.062};
static const double latency_errors[] = {-0.153, 0.213};

const char transferred_source[] =
    "68 live runs on H200s and H100s, each by the other's profile: throughput -7.2 to +6.2 % off, "
    "mean latency -15.3 to +21.3 %";

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
