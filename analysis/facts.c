#include "analysis/facts.h"

const char *const figure_unit_words[UNIT_COUNT] = {
    [UNIT_NONE] = "1", [UNIT_BYTES] = "bytes", [UNIT_SECONDS] = "s", [UNIT_CALLS] = "calls"};

struct run_facts run_facts_unknown(void) {
    return (struct run_facts){
        .system = "",
        .model = "",
        .gpu = "",
        .profile = "",
        .profile_kind = "",
        .prices.from = {.kind = PROVENANCE_ASSUMED, .share = -1},
        .backend = "",
        .trace = "",
        .trace_provenance = "",
        .weights_bytes = -1,
        .reserve_bytes = -1,
        .kv_pool_bytes = -1,
        .kv_peak_bytes = -1,
        .activation_peak_bytes = -1,
        .logit_peak_bytes = -1,
        .gpu_busy = -1,
        .mfu = -1,
        .bandwidth_util = -1,
        .config = "",
    };
}
