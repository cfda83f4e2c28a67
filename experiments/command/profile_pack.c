/* unmask profile pack and profile add: a calibration handed to others, and taken in. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/command/commands.h"
#include "sim/base/output.h"
#include "sim/model/model.h"
#include "sim/price/profile/profile.h"
#include "sim/price/profile/profile_pack.h"

static const char replace_doc[] = "overwrite the profile that is there";

static int write_text(const char *path, const char *text, struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    (void)fputs(text, out.file);
    return output_close(&out, true, err);
}

/* What stands at a path and is not this text stays, unless it is to be replaced. */
static int check_place(const char *path, const char *text, bool replaces, struct err *err) {
    struct stat found;
    if (stat(path, &found) != 0 || found.st_size == 0 || !S_ISREG(found.st_mode)) {
        return 0;
    }
    int status = output_may_replace(path, PROFILE_FILE_HEAD, "a profile", err);
    if (status != 0 || replaces) {
        return status;
    }
    size_t size;
    char *there = profile_read(path, &size, err);
    bool is_same = there != NULL && strcmp(there, text) == 0;
    free(there);
    return is_same
               ? 0
               : err_usage(err, "%s holds another profile already; --replace overwrites it", path);
}

/* ---- pack ---- */

static const struct option pack_options[] = {
    {"out", "FILE", "write the pack there (default: standard output)", false},
    {"replace", NULL, replace_doc, false},
    {NULL, NULL, NULL, false},
};
static const struct option *const options_of_pack[] = {pack_options, NULL};

static int pack(const struct options *options, struct err *err) {
    if (options->n_words != 1) {
        return err_usage(err, "profile pack: expected the file of a calibration");
    }
    size_t size;
    const char *path = options->words[0], *out = options_text(options, "out");
    char *text = profile_read(path, &size, err);
    char *packed = text != NULL ? profile_pack(path, text, err) : NULL;
    int status = packed != NULL ? 0 : err_status(err);
    if (status == 0 && out == NULL) {
        fputs(packed, stdout);
    } else if (status == 0) {
        status = check_place(out, packed, options_has(options, "replace"), err);
        status = status == 0 ? write_text(out, packed, err) : status;
    }
    free(packed);
    free(text);
    return status;
}

const struct command command_profile_pack = {
    .name = "profile pack",
    .words = "FILE",
    .doc = "a calibration as one file to hand to others",
    .more = "The pack has the times, the card and what else calibrate recorded of the machine, and "
            "the held-out errors; paths and what could name somebody stay out of it.",
    .options = options_of_pack,
    .max_words = 1,
    .run = pack,
};

/* ---- add ---- */

static const struct option add_options[] = {
    {"gpu", "NAME",
     "the card, such as ./mine.ini (default: that of list gpus with the pack's title)", false},
    {"replace", NULL, replace_doc, false},
    {NULL, NULL, NULL, false},
};
static const struct option *const options_of_add[] = {add_options, json_options, NULL};

/* The card that is asked for, else the one that the pack names. */
static const struct gpu *find_card(const struct options *options, const char *path,
                                   const char *text, struct err *err) {
    char title[256];
    const char *name = options_text(options, "gpu");
    if (name != NULL) {
        return gpu_find(name, err);
    }
    if (!profile_pack_says(text, "gpu", title, sizeof title)) {
        err_usage(err, "%s is no pack: `unmask profile pack` makes one of a calibration", path);
        return NULL;
    }
    const struct gpu *const *gpus = gpu_all(err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        if (strcmp(gpus[i]->title, title) == 0) {
            return gpus[i];
        }
    }
    if (gpus != NULL) {
        err_usage(err,
                  "%s is of '%s', which is none of `unmask list gpus`: name a file that describes "
                  "it, --gpu ./mine.ini",
                  path, title);
    }
    return NULL;
}

/* NAME/MODEL.csv next to the card's own file, else among those that are shipped; the folder is
 * made.
 */
static int find_place(const struct gpu *gpu, const char *text, const char *path, char *place,
                      size_t size, struct err *err) {
    char model[128] = "";
    if (!profile_pack_says(text, "model", model, sizeof model) || strchr(model, '/') != NULL ||
        model_find(model, err) == NULL) {
        return err->kind != ERR_NONE ? err_status(err) : err_usage(err, "%s names no model", path);
    }
    gpu_model_profile_place(gpu, model, place, size);
    char *end = strrchr(place, '/');
    *end = '\0';
    int failed = mkdir(place, 0777) != 0 && errno != EEXIST ? errno : 0;
    int status = failed == 0
                     ? 0
                     : err_world(err, "cannot make the folder '%s': %s", place, strerror(failed));
    *end = '/';
    return status;
}

static int say_added(const struct options *options, const struct gpu *gpu, const char *text,
                     const char *place, struct err *err) {
    char model[256] = "", device[256] = "", held_out[256] = "", source[512] = "";
    (void)profile_pack_says(text, "model", model, sizeof model);
    (void)profile_pack_says(text, "device", device, sizeof device);
    (void)profile_pack_says(text, "source", source, sizeof source);
    (void)profile_pack_says(text, "held_out", held_out, sizeof held_out);
    if (options_has(options, "json")) {
        return cmd_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "gpu", gpu->name, "model",
                                        model, "file", place, "source", source, "device", device,
                                        "held_out", held_out),
                              err);
    }
    printf("added        %s on %s\nfile         %s\nsource       %s\ndevice       %s\n"
           "held out     %s\n",
           model, gpu->name, place, source, device, held_out);
    return 0;
}

static int add_text(const struct options *options, const char *path, const char *text,
                    struct err *err) {
    char place[4096];
    const struct gpu *gpu = find_card(options, path, text, err);
    if (gpu == NULL || profile_pack_check(path, text, gpu, err) != 0 ||
        find_place(gpu, text, path, place, sizeof place, err) != 0 ||
        check_place(place, text, options_has(options, "replace"), err) != 0 ||
        write_text(place, text, err) != 0) {
        return err_status(err);
    }
    return say_added(options, gpu, text, place, err);
}

static int add(const struct options *options, struct err *err) {
    if (options->n_words != 1) {
        return err_usage(err, "profile add: expected the file of a pack");
    }
    size_t size;
    char *text = profile_read(options->words[0], &size, err);
    int status = text != NULL ? add_text(options, options->words[0], text, err) : err_status(err);
    free(text);
    return status;
}

const struct command command_profile_add = {
    .name = "profile add",
    .words = "FILE",
    .doc = "take in a pack: from then on it prices its model on its card",
    .more = "It is checked first: whole, of that card, times that the card can have. It is stored "
            "next to the card's own file, else among the shipped profiles.",
    .options = options_of_add,
    .max_words = 1,
    .run = add,
};
