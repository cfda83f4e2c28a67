#include "sim/policy/decoder/moving.h"

#include <string.h>

uint32_t moving_fill(const struct decode_rule *rule, const struct decode_seen *seen,
                     const uint8_t *added, uint8_t *commit) {
    struct decode_rule by_count = *rule;
    uint32_t n_added = 0, n_sure = 0;
    by_count.kind = DECODE_COUNT;
    for (uint32_t k = 0; k < seen->n; k++) {
        n_added += added[seen->offset[k]];
        n_sure += seen->confidence[k] > rule->threshold;
    }
    const uint32_t need = n_added == seen->n ? seen->n : 1 + n_added;
    return decode_choose(&by_count, seen, n_sure > need ? n_sure : need, commit);
}
