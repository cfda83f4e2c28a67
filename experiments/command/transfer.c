/* unmask profile transfer: a profile for a GPU that was not measured, and how far off such profiles
 * are. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/command/commands.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/compose.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"
#include "sim/price/transfer.h"

static const struct option own_options[] = {
    {"from", "GPU", "scale this GPU's profile", false},
    {"to", "GPU", "for which GPU (list gpus)", false},
    {"profile", "FILE", "a profile measured on --from, not the shipped one", false},
    {"out", "FILE", "write the profile there (default: standard output)", false},
    {"replace", NULL, "overwrite a profile in --out that was not transferred", false},
    {"check", NULL, "instead: transfer between GPUs that both have profiles, and compare", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_transfer[] = {own_options, json_options, format_option,
                                                           NULL};

/* ---- writing one ---- */

static int open_donor(const struct options *options, const struct gpu *from, struct profile **out,
                      struct err *err) {
    const char *file = options_text(options, "profile");
    int status = compose_open_profile(from, file, out, err);
    if (status == 0 && file != NULL && profile_kind(*out) == PROVENANCE_TRANSFERRED) {
        return err_usage(err, "%s is transferred itself: transfer from what it was scaled from",
                         file);
    }
    return status;
}

/* Whether the comments at the top of a profile say that it was transferred: it can be made again,
 * and overwriting it loses nothing. */
static bool is_transferred(const char *path) {
    char text[32];
    struct err none = {0}; /* what says nothing is not overwritten */
    const char *kind = profile_kind_of_file(path, text, sizeof text, &none);
    return kind != NULL && provenance_find(kind) == PROVENANCE_TRANSFERRED;
}

static int write_out(const struct options *options, const struct profile *profile,
                     struct err *err) {
    const char *path = options_text(options, "out");
    if (path == NULL) {
        return profile_write(profile, stdout, err);
    }
    int status = output_may_replace(path, PROFILE_FILE_HEAD, "a profile", err);
    if (status != 0) {
        return status;
    }
    struct stat found;
    bool exists = stat(path, &found) == 0 && S_ISREG(found.st_mode);
    if (exists && found.st_size > 0 && !options_has(options, "replace") && !is_transferred(path)) {
        return err_usage(
            err, "%s holds a profile that was not transferred; --replace overwrites it", path);
    }
    struct output out;
    status = output_open(path, &out, err);
    if (status != 0) {
        return status;
    }
    status = profile_write(profile, out.file, err);
    int closed = output_close(&out, status == 0, err);
    return status != 0 ? status : closed;
}

static int make(const struct options *options, const struct gpu *from, const struct gpu *to,
                struct err *err) {
    struct profile *donor = NULL, *target = NULL;
    struct transfer_side sides[] = {transfer_side_of(from), transfer_side_of(to)};
    struct transfer_check check;
    int status = open_donor(options, from, &donor, err);
    if (status == 0) {
        status = transfer_check_nearest(from, to, &check, err);
    }
    if (status == 0) {
        target = profile_transfer(donor, &sides[0], &sides[1]);
        transfer_note(target, &check);
        status = write_out(options, target, err);
    }
    profile_close(donor);
    profile_close(target);
    return status;
}

/* ---- checking all ---- */

struct checks {
    struct transfer_check *pairs;
    size_t n, room;
};

static void check_pairs(const struct gpu *const *gpus, struct profile *const *profiles,
                        struct checks *out) {
    for (size_t i = 0; gpus[i] != NULL; i++) {
        for (size_t j = 0; gpus[j] != NULL; j++) {
            if (i == j || profiles[i] == NULL || profiles[j] == NULL) {
                continue;
            }
            out->pairs = mem_grown(out->pairs, out->n, &out->room, sizeof *out->pairs);
            struct transfer_check *check = &out->pairs[out->n];
            *check = transfer_check(profiles[i], gpus[i], profiles[j], gpus[j]);
            out->n += check->n >= TRANSFER_FEWEST_ROWS;
        }
    }
}

static struct table *table_of(const struct checks *checks) {
    struct table *table = table_open("from|to|rows of|n|median_%|p90_%|bias_%");
    for (size_t i = 0; i < checks->n; i++) {
        const struct transfer_check *check = &checks->pairs[i];
        for (size_t c = 0; c < TRANSFER_CLASSES; c++) {
            const struct profile_errors *errors = &check->by_class[c];
            if (errors->n == 0) {
                continue;
            }
            table_add(table, "s s s i %.1f %.1f %+.1f", check->from->name, check->to->name,
                      transfer_class_name(c), (int64_t)errors->n, 100 * errors->median_abs,
                      100 * errors->p90_abs, 100 * errors->median);
        }
    }
    return table;
}

static int check(const struct options *options, struct err *err) {
    struct checks checks = {.n = 0};
    const struct gpu *const *gpus = gpu_all(err);
    int status = gpus == NULL ? err_status(err) : 0;
    size_t n_gpus = 0;
    while (status == 0 && gpus[n_gpus] != NULL) {
        n_gpus++;
    }
    struct profile **profiles = mem_zeroed(n_gpus, sizeof(struct profile *));
    for (size_t i = 0; status == 0 && i < n_gpus; i++) {
        if (gpus[i]->profile != NULL) {
            status = profile_open_shipped(gpus[i], &profiles[i], err);
        }
    }
    if (status == 0) {
        check_pairs(gpus, profiles, &checks);
    }
    if (status == 0) {
        struct table *table = table_of(&checks);
        status = cmd_print_table(options, table, err);
        table_close(table);
    }
    for (size_t i = 0; i < n_gpus; i++) {
        profile_close(profiles[i]);
    }
    free(profiles);
    free(checks.pairs);
    return status;
}

static int run(const struct options *options, struct err *err) {
    const char *from = options_text(options, "from"), *to = options_text(options, "to");
    bool writes = from != NULL || to != NULL || options_has(options, "out") ||
                  options_has(options, "profile") || options_has(options, "replace");
    if (options_has(options, "check")) {
        return writes
                   ? err_usage(err, "profile transfer: --check takes all pairs of shipped profiles")
                   : check(options, err);
    }
    if (from == NULL || to == NULL) {
        return err_usage(err, "profile transfer needs --from GPU and --to GPU, or --check");
    }
    if (options_has(options, "json")) {
        return err_usage(err, "profile transfer: --json is for --check; a profile is a CSV file");
    }
    const struct gpu *donor = gpu_find(from, err);
    const struct gpu *target = donor != NULL ? gpu_find(to, err) : NULL;
    if (target == NULL) {
        return (int)err->kind;
    }
    return donor == target ? err_usage(err, "profile transfer: --from and --to are the same GPU")
                           : make(options, donor, target, err);
}

const struct command command_transfer = {
    .name = "profile transfer",
    .words = "",
    .doc = "scale a profile to a GPU that was not measured; how far off that is",
    .more = "The result is a file for --profile. It says that it is transferred, from what and by\n"
            "which rule, and the errors of the nearest transfer that can be checked.",
    .options = options_of_transfer,
    .run = run,
};
