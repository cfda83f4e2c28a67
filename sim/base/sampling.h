/* How a request's tokens are drawn, as far as who asks for it says so: the rest is the system's. */
#ifndef UNMASK_SIM_BASE_SAMPLING_H
#define UNMASK_SIM_BASE_SAMPLING_H

#include <stdint.h>

/* Each is 1 + the value, 0 where nothing is said; temperature and top_p in millionths, so that a
 * record has what was asked for. */
struct sampling {
    uint64_t temperature; /* 0: the most likely token, whatever top_k and top_p are */
    uint64_t top_p, top_k;
    uint64_t seed; /* of its draws: the same tokens for the same prompt, whichever request it is */
};

enum { SAMPLING_UNIT = 1000000 };

#endif
