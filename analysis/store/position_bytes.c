#include "analysis/store/position_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/store/varint.h"
#include "sim/base/mem.h"
#include "sim/decode/block.h"

/* Longer blocks are no blocks, which bounds what a damaged length can ask for. */
enum { MOST_BLOCK = 1 << 16 };

enum { SEEN_FOLLOWS = 0xC0 };
_Static_assert(OUTCOME_COMMIT == 1, "flags of commits are read as flags");

size_t position_bytes_most(const struct step_positions *p, uint32_t n) {
    size_t entropy = p->entropy != NULL ? sizeof(float) * p->stride : 0;
    size_t seen = p->seen != NULL ? sizeof(float) * p->stride : 0;
    return n * (MAX_VARINT_BYTES + 2 * ((size_t)p->stride / 8 + 1) + entropy + seen) + 2;
}

static size_t put_float(unsigned char *to, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(bits >> 8 * i);
    }
    return sizeof bits;
}

static bool get_float(const unsigned char **at, const unsigned char *end, float *out) {
    uint32_t bits = 0;
    if (end - *at < 4) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        bits |= (uint32_t) * (*at)++ << 8 * i;
    }
    memcpy(out, &bits, sizeof *out);
    return true;
}

/* Of the positions whose flag is 1, as that of a commit is; of `values` NULL nothing. */
static size_t put_floats(unsigned char *to, const float *values, const uint8_t *flags,
                         const struct step_positions *p, uint32_t n) {
    unsigned char *at = to;
    for (uint32_t i = 0; values != NULL && i < n; i++) {
        for (uint32_t j = 0; j < p->lengths[i]; j++) {
            size_t place = (size_t)i * p->stride + j;
            at += flags[place] == 1 ? put_float(at, values[place]) : 0;
        }
    }
    return (size_t)(at - to);
}

size_t position_bytes_put(unsigned char *to, const struct step_positions *p, uint32_t n) {
    unsigned char *at = to;
    for (uint32_t i = 0; i < n; i++) {
        size_t first = (size_t)i * p->stride;
        at += varint_put(at, p->lengths[i]);
        at += bits_put(at, p->keep + first, 1, p->lengths[i]);
        at += bits_put(at, p->outcome + first, OUTCOME_COMMIT, p->lengths[i]);
    }
    at += put_floats(at, p->entropy, p->outcome, p, n);
    if (p->seen != NULL) {
        *at++ = SEEN_FOLLOWS;
        at += put_floats(at, p->seen, p->keep, p, n);
    }
    return (size_t)(at - to);
}

/* Twice over the bytes: for the longest block, then for the flags. */
static bool get_flags(const unsigned char **at, const unsigned char *end, uint32_t n, bool fills,
                      struct step_positions *p) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t length;
        uint8_t *keep = fills ? p->keep + (size_t)i * p->stride : NULL;
        uint8_t *outcome = fills ? p->outcome + (size_t)i * p->stride : NULL;
        if (!varint_get(at, end, &length) || length > MOST_BLOCK ||
            !bits_get(at, end, (uint32_t)length, 1, keep) ||
            !bits_get(at, end, (uint32_t)length, OUTCOME_COMMIT, outcome)) {
            return false;
        }
        p->lengths[i] = (uint32_t)length;
        p->stride = !fills && length > p->stride ? (uint32_t)length : p->stride;
    }
    return true;
}

/* Of all positions whose flag is 1. */
static bool get_floats(const unsigned char **at, const unsigned char *end, const uint8_t *flags,
                       const struct step_positions *p, uint32_t n, float *values) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < p->lengths[i]; j++) {
            size_t place = (size_t)i * p->stride + j;
            if (flags[place] == 1 && !get_float(at, end, &values[place])) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t count_flags(const uint8_t *flags, const struct step_positions *p, uint32_t n) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < p->lengths[i]; j++) {
            found += flags[(size_t)i * p->stride + j] == 1;
        }
    }
    return found;
}

/* Entropies of all that was committed, or none; after them and a byte of their own, confidences of
 * all that was kept, or none. */
static bool get_values(const unsigned char *at, const unsigned char *end, uint32_t n,
                       struct step_positions *p) {
    const size_t n_values = (size_t)n * p->stride + 1;
    const bool has_seen = (size_t)(end - at) % sizeof(float) == 1;
    const size_t seen = has_seen ? 1 + sizeof(float) * count_flags(p->keep, p, n) : 0;
    free(p->entropy);
    free(p->seen);
    p->entropy = (size_t)(end - at) > seen ? mem_zeroed(n_values, sizeof *p->entropy) : NULL;
    p->seen = has_seen ? mem_zeroed(n_values, sizeof *p->seen) : NULL;
    if (p->entropy != NULL && !get_floats(&at, end, p->outcome, p, n, p->entropy)) {
        return false;
    }
    if (has_seen &&
        (at == end || *at++ != SEEN_FOLLOWS || !get_floats(&at, end, p->keep, p, n, p->seen))) {
        return false;
    }
    return at == end;
}

bool position_bytes_get(const unsigned char *at, const unsigned char *end, uint32_t n,
                        struct step_positions *p) {
    const unsigned char *begin = at;
    p->stride = 0;
    if (n > (size_t)(end - at)) {
        return false; /* each takes a byte at least */
    }
    p->lengths = mem_resized(p->lengths, (size_t)n + 1, sizeof *p->lengths);
    if (!get_flags(&at, end, n, false, p)) {
        return false;
    }
    size_t n_flags = (size_t)n * p->stride + 1;
    p->keep = mem_resized(p->keep, n_flags, 1);
    p->outcome = mem_resized(p->outcome, n_flags, 1);
    memset(p->keep, 0, n_flags);
    memset(p->outcome, OUTCOME_NONE, n_flags);
    at = begin;
    return get_flags(&at, end, n, true, p) && get_values(at, end, n, p);
}

/* Those that are written in addition to commits. */
static const uint8_t others[] = {OUTCOME_REVISE, OUTCOME_AGAIN};
enum { N_OTHERS = sizeof others / sizeof others[0] };

static bool has_others(const struct step_positions *p, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const struct outcomes found =
            block_outcomes(p->outcome + (size_t)i * p->stride, p->lengths[i]);
        if (found.n[OUTCOME_REVISE] + found.n[OUTCOME_AGAIN] > 0) {
            return true;
        }
    }
    return false;
}

size_t outcome_bytes_put(unsigned char *to, const struct step_positions *p, uint32_t n) {
    unsigned char *at = to;
    uint32_t n_written = has_others(p, n) ? n : 0;
    for (uint32_t i = 0; i < n_written; i++) {
        for (int k = 0; k < N_OTHERS; k++) {
            at += bits_put(at, p->outcome + (size_t)i * p->stride, others[k], p->lengths[i]);
        }
    }
    return (size_t)(at - to);
}

bool outcome_bytes_get(const unsigned char *at, const unsigned char *end, uint32_t n,
                       struct step_positions *p) {
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < N_OTHERS; k++) {
            uint8_t *outcome = p->outcome + (size_t)i * p->stride;
            if (!bits_get(&at, end, p->lengths[i], others[k], outcome)) {
                return false;
            }
        }
    }
    return at == end;
}

struct step_positions positions_copied(const struct step_positions *from, uint32_t n) {
    size_t n_flags = (size_t)n * from->stride;
    return (struct step_positions){
        .stride = from->stride,
        .lengths = mem_copied(from->lengths, n * sizeof *from->lengths),
        .keep = mem_copied(from->keep, n_flags),
        .outcome = mem_copied(from->outcome, n_flags),
        .entropy = from->entropy != NULL
                       ? mem_copied(from->entropy, n_flags * sizeof *from->entropy)
                       : NULL,
        .seen = from->seen != NULL ? mem_copied(from->seen, n_flags * sizeof *from->seen) : NULL};
}

void positions_free(struct step_positions *p) {
    free(p->lengths);
    free(p->keep);
    free(p->outcome);
    free(p->entropy);
    free(p->seen);
}
