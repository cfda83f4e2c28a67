/* The runs that suites look at from the outside: small workloads, of which each brings others of
 * the system's mechanisms (tests/experiments/settings/cases.ini), and a digest of what was served.
 */
#ifndef UNMASK_TESTS_SUPPORT_CASES_H
#define UNMASK_TESTS_SUPPORT_CASES_H

#include <string.h>

#include "analysis/summary_output.h"
#include "experiments/run/compose.h"
#include "sim/base/input/config.h"
#include "sim/base/names.h"
#include "tests/support/suite.h"

enum { MOST_CASES = 8, MOST_SET = 12 };

static const char cases_path[] = "tests/experiments/settings/cases.ini";

/* ---- digests of what was done ---- */

static inline void mix(uint64_t *digest, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) {
        *digest = (*digest ^ at[i]) * UINT64_C(0x100000001b3);
    }
}

#define MIX(digest, value) mix(digest, &(value), sizeof(value))

/* Results alone: names, sources and what the configuration says again are left out. */
static inline void mix_numbers(uint64_t *digest, const json_t *value) {
    static const char *const echoed[] = {"identity", "warnings",    "constants", "host",
                                         "prices",   "submissions", NULL};
    const char *key;
    size_t i;
    json_t *each;
    if (json_is_number(value)) { /* as outputs print them: sums in another order are the same */
        char text[32];
        mix(digest, text, (size_t)snprintf(text, sizeof text, "%.9g", json_number_value(value)));
    }
    json_object_foreach((json_t *)value, key, each) {
        if (name_find(echoed, key) < 0) {
            mix_numbers(digest, each);
        }
    }
    json_array_foreach(value, i, each) {
        mix_numbers(digest, each);
    }
}

static inline int mix_request(void *state, const struct request_record *r, struct err *err) {
    (void)err;
    const int64_t all[] = {(int64_t)r->id,
                           r->replica,
                           r->arrival_ns,
                           r->admitted_ns,
                           r->first_block_ns,
                           r->finished_ns,
                           r->state,
                           r->reason,
                           r->steps,
                           r->refresh_steps,
                           r->preemptions,
                           r->first_block_tokens,
                           r->answer_tokens,
                           r->committed_tokens,
                           (int64_t)r->prefix_tokens,
                           (int64_t)r->tokens_processed};
    MIX(state, all);
    return 0;
}

struct test_case {
    const char *name, *workload, *gpu;
    struct setting set[MOST_SET];
    uint32_t n_set;
};

/* ---- the data ---- */

static struct test_case cases[MOST_CASES];
static size_t n_cases;
static struct config data;

static inline void read_cases(void) {
    struct err err = {0};
    ck_assert_msg(config_read(cases_path, &data, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < data.n_entries; i++) {
        const struct config_entry *entry = &data.entries[i];
        const char *name = name_behind(entry->section, "case ");
        if (name == NULL) {
            continue;
        }
        if (n_cases == 0 || strcmp(cases[n_cases - 1].name, name) != 0) {
            ck_assert_uint_lt(n_cases, MOST_CASES);
            cases[n_cases++] = (struct test_case){.name = name, .gpu = "l40s"};
        }
        struct test_case *of = &cases[n_cases - 1];
        if (strcmp(entry->key, "workload") == 0) {
            of->workload = entry->value;
        } else if (strcmp(entry->key, "gpu") == 0) {
            of->gpu = entry->value;
        } else {
            struct setting *set = &of->set[of->n_set++];
            ck_assert_uint_le(of->n_set, MOST_SET);
            snprintf(set->key, sizeof set->key, "%s", entry->key);
            snprintf(set->value, sizeof set->value, "%s", entry->value);
            snprintf(set->place, sizeof set->place, "%s", cases_path);
        }
    }
}

#endif
