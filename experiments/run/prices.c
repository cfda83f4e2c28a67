#include "experiments/run/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/compose_impl.h"
#include "sim/base/mem.h"

/* Workloads and engines aside: 0 where its system can be priced so, else why not. */
static int try_prices(const struct run_request *asked, enum price_source source, struct err *err) {
    struct composition *c = mem_zeroed(1, sizeof *c);
    struct run_request request = *asked;
    request.price_source = source == PRICES_ROOFLINE ? PRICES_BEST : source;
    request.roofline = source == PRICES_ROOFLINE || request.roofline;
    const int status = compose_open_system(&request, c, err);
    system_close(c->system);
    free(c);
    return status;
}

/* *all: none that can be priced at all lacks prices of this source. Whatever else goes wrong by it
 * alone, such as a file that could not be read, is no lack of prices. */
static int all_have(struct run_request *(*request)(void *, size_t), void *state, size_t n,
                    enum price_source source, bool *all, struct err *err) {
    *all = true;
    for (size_t i = 0; *all && i < n; i++) {
        const struct run_request *asked = request(state, i);
        struct err why = {0}, best = {0};
        if (try_prices(asked, source, &why) == 0 || try_prices(asked, PRICES_BEST, &best) != 0) {
            continue;
        }
        if (why.code != ERR_NO_PRICES && why.code != ERR_NO_ROOM) {
            *err = why;
            return err_status(err);
        }
        *all = false;
    }
    return 0;
}

int prices_take_one(struct run_request *(*request)(void *, size_t), void *state, size_t n,
                    struct err *err) {
    enum price_source source = PRICES_MEASURED;
    bool all = false;
    int status = 0;
    for (; source < PRICES_ROOFLINE; source++) {
        status = all_have(request, state, n, source, &all, err);
        if (status != 0 || all) {
            break;
        }
    }
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        struct run_request *asked = request(state, i);
        asked->roofline = source == PRICES_ROOFLINE;
        asked->price_source = source == PRICES_ROOFLINE ? PRICES_BEST : source;
    }
    return 0;
}

/* ---- warning ---- */

static const char *text_of(const json_t *prices, const char *key) {
    const char *text = json_string_value(json_object_get(prices, key));
    return text != NULL ? text : "";
}

/* "measured", "imported (vLLM 0.24.0), transferred". */
static const char *words_of(const json_t *prices, char *text, size_t size) {
    const char *of = text_of(prices, "of"), *kernels = text_of(prices, "kernels");
    const bool is_transferred =
        strcmp(text_of(prices, "kind"), provenance_words[PROVENANCE_TRANSFERRED]) == 0;
    const bool names = kernels[0] != '\0' && strcmp(of, price_source_words[PRICES_IMPORTED]) == 0;
    snprintf(text, size, "%s prices%s%s%s%s", of, names ? " (" : "", names ? kernels : "",
             names ? ")" : "", is_transferred ? ", transferred" : "");
    return text;
}

/* Scaled from another GPU or not, prices of the kernels that were asked for are of one source. */
static bool are_of_one(const json_t *a, const json_t *b) {
    return strcmp(text_of(a, "asked"), price_source_words[PRICES_BEST]) != 0 &&
           strcmp(text_of(a, "of"), text_of(b, "of")) == 0 &&
           strcmp(text_of(a, "kernels"), text_of(b, "kernels")) == 0;
}

/* Of the same step, the prices of `has` over those of source `other`. */
static double ratio_of(const json_t *has, const char *other) {
    char key[32];
    snprintf(key, sizeof key, "over_%s", other);
    const json_t *value = json_object_get(has, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* On one GPU our own runtime may be priced by the GPU's profile of the model, GPU/MODEL, and others
 * by its profile for all: both measured by unmask, at other times. */
static bool are_two_profiles(const json_t *a, const json_t *b) {
    const char *gpu = text_of(a, "gpu");
    return strcmp(gpu, text_of(b, "gpu")) == 0 &&
           (strcmp(text_of(a, "profile"), gpu) == 0) != (strcmp(text_of(b, "profile"), gpu) == 0);
}

/* The run that has both sources; NULL: neither has. */
static const json_t *which_has_both(const json_t *ours, const json_t *base, double *ratio) {
    const json_t *a = json_object_get(ours, "prices"), *b = json_object_get(base, "prices");
    *ratio = ratio_of(a, text_of(b, "of"));
    if (!isnan(*ratio)) {
        return ours;
    }
    *ratio = ratio_of(b, text_of(a, "of"));
    return isnan(*ratio) ? NULL : base;
}

bool prices_warn(const json_t *ours, const char *ours_name, const json_t *base,
                 const char *base_name, struct warnings *out) {
    const json_t *a = json_object_get(ours, "prices"), *b = json_object_get(base, "prices");
    char words[2][96], size[160] = "";
    if (text_of(a, "of")[0] == '\0' || text_of(b, "of")[0] == '\0' || are_of_one(a, b)) {
        return false;
    }
    words_of(a, words[0], sizeof words[0]);
    words_of(b, words[1], sizeof words[1]);
    if (strcmp(words[0], words[1]) == 0) {
        if (are_two_profiles(ours, base)) {
            warnings_add(out, WARNING_PRICES_DIFFER, (double)NAN,
                         "%s is priced by profile %s, %s by %s: some of the difference may be "
                         "theirs (--profile prices both alike)",
                         ours_name, text_of(ours, "profile"), base_name, text_of(base, "profile"));
        }
        return are_two_profiles(ours, base);
    }
    double ratio;
    const json_t *both = which_has_both(ours, base, &ratio);
    if (both != NULL) {
        snprintf(size, sizeof size,
                 "; one block of %.40s on %.24s takes %+.0f %% by %s prices, compared with %s ones",
                 text_of(both, "model"), text_of(both, "gpu"), 100 * (ratio - 1),
                 text_of(both == ours ? a : b, "of"), text_of(both == ours ? b : a, "of"));
    }
    warnings_add(out, WARNING_PRICES_DIFFER, ratio,
                 "%s has %s, %s %s%s: some of a difference may be theirs (--price-source one)",
                 ours_name, words[0], base_name, words[1], size);
    return true;
}
