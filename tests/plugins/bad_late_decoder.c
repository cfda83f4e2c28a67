/* A decoder that commits the surest position, and a crime for requests that no exercise has. */
#include "tests/plugins/crime.h"

enum { LATE_REQUEST = 3000 };

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t best = 0;
    (void)state;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = 0;
        best = seen->confidence[i] > seen->confidence[best] ? i : best;
    }
    commit[best] = 1;
    if (request->id < LATE_REQUEST) {
        return 1;
    }
    common_crime(seen);
    if (is_crime("write-request")) {
        ((struct request *)(uintptr_t)request)->committed_tokens++;
    } else if (is_crime("write-seen")) {
        ((float *)(uintptr_t)seen->confidence)[0] = 2;
    } else if (is_crime("oob-commit")) {
        commit[seen->n] = 1;
    } else if (is_crime("none")) {
        commit[best] = 0;
        return 0;
    } else if (is_crime("sum")) {
        return 7;
    } else if (is_crime("flag")) {
        commit[best] = 9;
    }
    return 1;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "late"), .choose = choose};
