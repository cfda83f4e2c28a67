/* Requests of unequal lengths, whose last blocks are shorter; together, and each alone. */
#ifndef UNMASK_TESTS_SUPPORT_UNEQUAL_H
#define UNMASK_TESTS_SUPPORT_UNEQUAL_H

#include "sim/base/arrival.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 9, .output_tokens = 14},
    {.id = 1, .prompt_tokens = 5, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 12, .output_tokens = 6},
};
static const struct arrival apart[] = {
    {.id = 2, .arrival_ns = 0, .prompt_tokens = 12, .output_tokens = 6},
    {.id = 0, .arrival_ns = INT64_C(1000000000000), .prompt_tokens = 9, .output_tokens = 14},
    {.id = 1, .arrival_ns = INT64_C(2000000000000), .prompt_tokens = 5, .output_tokens = 7},
};
enum { N = 3 };

#endif
