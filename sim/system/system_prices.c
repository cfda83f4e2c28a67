/* Which profiles price a system, and how far two sources of prices differ for it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/price/profile_share.h"
#include "sim/price/transfer.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_parts.h"

const char *const price_source_words[PRICE_SOURCES + 1] = {
    [PRICES_BEST] = "best",
    [PRICES_MEASURED] = "measured",
    [PRICES_IMPORTED] = "imported",
    [PRICES_ROOFLINE] = "roofline",
};

/* Whose kernels a profile is of, whatever GPU it was scaled to. */
static enum price_source source_of(const struct profile *profile) {
    if (profile == NULL) {
        return PRICES_ROOFLINE;
    }
    const char *donor = profile_note(profile, "donor_kind");
    const char *kind = profile_kind(profile) == PROVENANCE_TRANSFERRED && donor != NULL
                           ? donor
                           : provenance_words[profile_kind(profile)];
    return strcmp(kind, provenance_words[PROVENANCE_MEASURED]) == 0 ? PRICES_MEASURED
                                                                    : PRICES_IMPORTED;
}

/* ---- choosing profiles ---- */

/* A profile that holds one rank's share of the shapes says of how many. */
static int check_ranks(const struct system *s, const struct profile *profile, struct err *err) {
    const char *value = profile_note(profile, "ranks");
    unsigned long ranks = value != NULL ? strtoul(value, NULL, 10) : 0;
    return ranks == 0 || ranks == s->settings.tensor_parallel
               ? 0
               : err_usage(err,
                           "%s was calibrated for one of %lu GPUs that hold the model together: "
                           "set tensor_parallel = %lu, not %" PRIu32,
                           s->profile_path, ranks, ranks, s->settings.tensor_parallel);
}

/* The model of whose steps by our own engine a GPU has a profile, and whose shape this one has:
 * itself before others, so that SDAR-8B and Qwen3-8B are priced alike. NULL: there is none,
 * several GPUs hold the model together, or `err` says what could not be read. */
static const struct model *model_of_profile(const struct system *s, const struct gpu *gpu,
                                            char *path, size_t size, struct err *err) {
    const struct model *const *all = model_all(err), *found = NULL;
    const bool fits = s->settings.tensor_parallel == 1;
    char candidate[4096];
    for (size_t i = 0; fits && all != NULL && all[i] != NULL; i++) {
        const bool is_itself = strcmp(all[i]->name, s->model->name) == 0;
        if ((found == NULL || is_itself) && model_has_shape_of(s->model, all[i]) &&
            gpu_model_profile_path(gpu, all[i]->name, candidate, sizeof candidate) != NULL) {
            found = all[i];
            snprintf(path, size, "%s", candidate);
        }
    }
    return found;
}

bool system_is_profiled(const struct system *s) {
    char path[4096];
    struct err err = {0}; /* models were read when prices were taken */
    return s->profile_path[0] == '\0' &&
           model_of_profile(s, s->gpu, path, sizeof path, &err) != NULL;
}

/* The same, which prices our own runtime alone. */
static const struct model *profiled_model(const struct system *s, const struct gpu *gpu, char *path,
                                          size_t size, struct err *err) {
    return s->runtime.engine ? model_of_profile(s, gpu, path, size, err) : NULL;
}

/* The candidates in their order: the first that exists gives the prices, the next one what it
 * lacks. */
struct choice {
    struct system *s;
    enum price_source asked;
    const struct profile **next; /* NULL: both places are taken */
};

/* Takes over the profile, or gives it back where it is not of the source that is asked for. */
static void take(struct choice *c, const struct profile *profile) {
    const bool is_wanted = c->asked == PRICES_BEST || source_of(profile) == c->asked;
    if (profile == NULL || c->next == NULL || !is_wanted) {
        profile_give_back(profile);
        return;
    }
    *c->next = profile;
    c->next = c->next == &c->s->profile ? &c->s->behind : NULL;
}

/* All of the donor's rows, or those of memory-bound passes alone. */
static int take_transferred(struct choice *c, const char *donor_path, bool passes_alone,
                            struct err *err) {
    const struct profile_peaks peaks = profile_peaks_of(c->s->donor);
    const struct profile *donor = NULL;
    int status = donor_path != NULL ? profile_share(donor_path, &peaks, &donor, err)
                                    : profile_share_shipped(c->s->donor, &donor, err);
    if (status == 0) {
        struct transfer_side from = transfer_side_of(c->s->donor), to = transfer_side_of(c->s->gpu);
        to.passes_alone = passes_alone;
        take(c, profile_share_transfer(donor, &from, &to));
    }
    profile_give_back(donor);
    return status;
}

/* Where only our own measurements are wanted and the GPU has none of this model, the donor's. */
static int take_donor(struct choice *c, struct err *err) {
    struct system *s = c->s;
    char path[4096];
    s->donor = gpu_find(s->gpu->donor, err);
    if (s->donor == NULL) {
        return err_status(err);
    }
    const bool wants_own = c->asked == PRICES_MEASURED && s->profile == NULL &&
                           profiled_model(s, s->donor, path, sizeof path, err) != NULL;
    int status = wants_own ? take_transferred(c, path, false, err) : (int)err->kind;
    return status == 0 && c->next != NULL ? take_transferred(c, NULL, false, err) : status;
}

/* What its own profile has no rows of. */
static int take_passes(struct choice *c, struct err *err) {
    struct system *s = c->s;
    s->donor = gpu_find(s->gpu->donor_of_passes, err);
    return s->donor != NULL ? take_transferred(c, NULL, true, err) : err_status(err);
}

/* What the GPU has for all models: nothing where it was calibrated for a single model, one of this
 * model alone stands before it, and a donor knows others. */
static int take_for_all(struct choice *c, struct err *err) {
    const struct system *s = c->s;
    const struct profile *profile = NULL;
    int status = profile_share_shipped(s->gpu, &profile, err);
    const bool is_behind = s->profile != NULL && s->profile_path[0] == '\0';
    if (status == 0 && is_behind && s->gpu->donor != NULL &&
        profile_note(profile, "model") != NULL) {
        profile_give_back(profile);
        return 0;
    }
    take(c, profile);
    return status;
}

static int take_of_model(struct choice *c, struct err *err) {
    struct system *s = c->s;
    char path[4096];
    const struct profile_peaks peaks = profile_peaks_of(s->gpu);
    const struct model *profiled =
        c->asked != PRICES_IMPORTED ? profiled_model(s, s->gpu, path, sizeof path, err) : NULL;
    const struct profile *profile = NULL;
    int status = profiled != NULL ? profile_share(path, &peaks, &profile, err) : (int)err->kind;
    take(c, profile);
    if (profiled != NULL && s->profile != NULL) {
        snprintf(s->profile_name, sizeof s->profile_name, "%.90s/%.90s", s->gpu->name,
                 profiled->name);
    }
    return status;
}

static int take_users(struct choice *c, const char *path, struct err *err) {
    struct system *s = c->s;
    const struct profile_peaks peaks = profile_peaks_of(s->gpu);
    if (strlen(path) >= sizeof s->profile_path) {
        return err_usage(err, "the path of the profile is longer than %zu characters",
                         sizeof s->profile_path - 1);
    }
    snprintf(s->profile_path, sizeof s->profile_path, "%s", path);
    int status = profile_share(path, &peaks, c->next, err);
    c->next = &s->behind;
    return status == 0 ? check_ranks(s, s->profile, err) : status;
}

int system_take_prices(struct system *s, const struct system_request *asked, struct err *err) {
    struct choice choice = {s, asked->price_source, &s->profile};
    const bool is_users = asked->profile_path != NULL;
    s->price_source = asked->price_source;
    int status =
        is_users ? take_users(&choice, asked->profile_path, err) : take_of_model(&choice, err);
    if (status == 0 && s->gpu->profile != NULL) {
        status = take_for_all(&choice, err);
    }
    if (status == 0 && choice.next != NULL && s->gpu->donor != NULL) {
        status = take_donor(&choice, err);
    } else if (status == 0 && choice.next == &s->behind && s->gpu->donor_of_passes != NULL) {
        status = take_passes(&choice, err);
    }
    if (status != 0 || asked->price_source == PRICES_BEST || s->profile != NULL) {
        return status;
    }
    err_set(err, ERR_USAGE, ERR_NO_PRICES,
            "there are no %s prices of %s on %s%s: another --price-source, or one, which takes a "
            "source that all have",
            price_source_words[asked->price_source], s->model->name, s->gpu->name,
            s->settings.tensor_parallel > 1 ? " over several GPUs" : "");
    return err_status(err);
}

/* ---- how far sources differ ---- */

/* One block of one request against as many cached rows, by the rows of these profiles. */
static double block_ns(const struct system *s, const struct profile *profile,
                       const struct profile *behind) {
    enum { CACHED_ROWS = 256 };
    const uint32_t block = s->settings.block_tokens;
    const struct span span = {.phase = PHASE_REUSE,
                              .queries = block,
                              .first_queries = block,
                              .context = CACHED_ROWS,
                              .logit_rows = block,
                              .kept_queries = block,
                              .kept_keys = block + CACHED_ROWS};
    struct cost_model *cost = NULL;
    struct step_price price;
    struct step_shape shape;
    struct err ignored = {0};
    if (cost_open_with_gaps(s->gpu, profile, behind, &s->runtime, &s->graph, &cost, &ignored) !=
        0) {
        return NAN;
    }
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    cost_routes(cost, &s->routing);
    cost_price(cost, &shape, (struct chunk_rows){{0}}, &price);
    cost_close(cost);
    return price.device_ns;
}

enum price_source system_price_source(const struct system *s) {
    return source_of(s->profile);
}

const char *system_price_kernels(const struct system *s, char *text, size_t size) {
    const char *software = s->profile != NULL ? profile_note(s->profile, "software") : NULL;
    const enum price_source source = source_of(s->profile);
    if (source == PRICES_MEASURED) {
        snprintf(text, size, "unmask");
    } else if (software != NULL) {
        snprintf(text, size, "%.*s", (int)(strcspn(software, ",(")), software);
        for (size_t n = strlen(text); n > 0 && text[n - 1] == ' '; n--) {
            text[n - 1] = '\0';
        }
    }
    return source == PRICES_ROOFLINE || (source == PRICES_IMPORTED && software == NULL) ? NULL
                                                                                        : text;
}

double system_price_ratio(const struct system *s, enum price_source other) {
    const enum price_source own = source_of(s->profile);
    const struct profile *has =
        s->behind != NULL && source_of(s->behind) == other ? s->behind : NULL;
    if (other == own || other == PRICES_BEST || (has == NULL && other != PRICES_ROOFLINE)) {
        return NAN;
    }
    return block_ns(s, s->profile, s->behind) / block_ns(s, has, NULL);
}
