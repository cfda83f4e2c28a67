#include "sim/policy/decoder/bandit.h"

#include <math.h>

/* The bin of a share of 0 to 1. */
static uint32_t bin_of(double share, uint32_t bins) {
    const uint32_t bin = (uint32_t)(fmin(fmax(share, 0), 1) * bins);
    return bin < bins ? bin : bins - 1;
}

uint32_t bandit_case(uint32_t bins, uint32_t run, uint32_t length, uint32_t filled, double unsure) {
    const double longest = length > 1 ? (double)(run - 1) / (double)(length - 1) : 0;
    const double progress = (double)filled / (double)length;
    return (bin_of(longest, bins) * bins + bin_of(progress, bins)) * bins + bin_of(unsure, bins);
}

bool bandit_checks(struct bandit *bandit, uint32_t of, double explore) {
    double worth[2];
    bandit->n_asked++;
    for (uint32_t checks = 0; checks < 2; checks++) {
        const uint32_t arm = 2 * of + checks, n = bandit->arms[arm].n;
        worth[checks] =
            n == 0 ? INFINITY
                   : bandit->arms[arm].sum / n + explore * sqrt(log((double)bandit->n_asked) / n);
    }
    const bool is_checked = worth[1] >= worth[0];
    bandit->waits = 1 + 2 * of + is_checked;
    return is_checked;
}

void bandit_learn(struct bandit *bandit, uint32_t n) {
    if (bandit->waits == 0) {
        return;
    }
    const uint32_t arm = bandit->waits - 1;
    bandit->arms[arm].n++;
    bandit->arms[arm].sum += arm % 2 == 1 ? (double)n / 2 : n;
    bandit->waits = 0;
}
