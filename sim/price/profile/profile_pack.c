#include "sim/price/profile/profile_pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/sha256.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/provenance.h"
#include "sim/price/profile/profile.h"

enum { NEEDED_CHARS = 256 }; /* that a line of those has at most */

/* Provenance lines of a calibration that a pack keeps, in addition to covariance_KIND. */
static const char *const kept_keys[] = {
    "kind",         "gpu",      "source",      "date",
    "backend",      "device",   "kernels",     "dtype",
    "model",        "weights",  "ranks",       "max_tokens",
    "rounds",       "method",   "spread",      "reference_product",
    "clocks",       "rates",    "experts_hit", "free_bytes_after_weights",
    "kv_pages",     "steps",    "beware",      "activation_peak_bytes",
    "fitted",       "held_out", "mixed",       "additivity",
    "calibrations", "refitted", "power",       "between",
    NULL,
};

static const char digest_head[] = "# pack: sha256 ";

/* ---- lines ---- */

/* A "# key: value" line at `line`: its key's length, and where its value begins; 0: another. */
static size_t key_length(const char *line, const char **value) {
    static const char key_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strncmp(line, "# ", 2) == 0 ? strspn(line + 2, key_chars) : 0;
    *value = line + 2 + n + 2;
    return n > 0 && strncmp(line + 2 + n, ": ", 2) == 0 ? n : 0;
}

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return *line == '\n' ? line + 1 : line;
}

bool profile_pack_says(const char *text, const char *key, char *out, size_t size) {
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        const char *value;
        size_t n = key_length(line, &value);
        if (n == strlen(key) && strncmp(line + 2, key, n) == 0) {
            size_t length = strcspn(value, "\r\n");
            snprintf(out, size, "%.*s", (int)(length < size ? length : 0), value);
            return length > 0 && length < size;
        }
    }
    return false;
}

/* ---- packing ---- */

static bool is_kept(const char *key, size_t n) {
    static const char covariance[] = "covariance_";
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    return strncmp(name, covariance, strlen(covariance)) == 0 || name_find(kept_keys, name) >= 0;
}

/* A value without paths: a word that begins as one does is "a file". */
static void write_value(const char *value, FILE *out) {
    while (*value != '\n' && *value != '\0') {
        size_t gap = strspn(value, " ("), word = strcspn(value + gap, " \n");
        bool is_path = memchr(value + gap, '/', word) != NULL && strchr("/.~'", value[gap]) != NULL;
        fprintf(out, "%.*s%.*s", (int)gap, value, is_path ? 6 : (int)word,
                is_path ? "a file" : value + gap);
        value += gap + word;
    }
}

static void write_line(const char *line, FILE *out) {
    const char *value;
    size_t n = key_length(line, &value), length = strcspn(line, "\n");
    if (line[0] != '#') {
        fprintf(out, "%.*s\n", (int)length, line);
    } else if (n > 0 && is_kept(line + 2, n)) {
        bool is_weights = strncmp(line + 2, "weights: ", 9) == 0;
        fprintf(out, "# %.*s: ", (int)n, line + 2);
        if (is_weights && strncmp(value, "random:", 7) != 0) {
            fputs("a checkpoint", out);
        } else {
            write_value(value, out);
        }
        fputc('\n', out);
    }
}

/* Of a text without its second line, which names it. */
static void digest(const char *text, const char *rest, char hex[SHA256_HEX_CHARS]) {
    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, text, (size_t)(next_line(text) - text));
    sha256_add(&sha, rest, strlen(rest));
    sha256_hex(&sha, hex);
}

static char *with_rows(const char *text) {
    char *out = NULL, *lines = NULL;
    size_t size;
    FILE *file = mem_stream(&lines, &size);
    fputs(PROFILE_FILE_HEAD " one device, packed to be handed on.\n", file);
    for (const char *line = next_line(text); *line != '\0'; line = next_line(line)) {
        write_line(line, file);
    }
    mem_stream_close(file);
    file = mem_stream(&out, &size);
    (void)profile_put(lines, file);
    mem_stream_close(file);
    free(lines);
    return out;
}

/* The first line that a text lacks and that judging a calibration needs; NULL: none. */
static const char *missing_key(const char *text) {
    static const char *const needed_keys[] = {"gpu",   "backend",  "device",
                                              "model", "held_out", NULL};
    char said[NEEDED_CHARS];
    size_t i = 0;
    while (needed_keys[i] != NULL && profile_pack_says(text, needed_keys[i], said, sizeof said)) {
        i++;
    }
    return needed_keys[i];
}

static bool is_measured(const char *text) {
    char kind[32];
    return strncmp(text, PROFILE_FILE_HEAD, strlen(PROFILE_FILE_HEAD)) == 0 &&
           profile_pack_says(text, "kind", kind, sizeof kind) &&
           provenance_find(kind) == PROVENANCE_MEASURED;
}

char *profile_pack(const char *path, const char *text, struct err *err) {
    /* Whether a file is whole does not depend on its card. */
    static const struct profile_peaks any_card = {
        .flops = 1e14, .bandwidth = 1e12, .sms = 100, .is_assumed = true};
    char hex[SHA256_HEX_CHARS], *out = NULL;
    struct profile *profile = NULL;
    size_t size;
    const char *missing = missing_key(text);
    if (!is_measured(text) || missing != NULL) {
        err_usage(err,
                  "%s has no line '# %s: %s': it is no calibration that `unmask calibrate` wrote "
                  "to its end",
                  path, is_measured(text) ? missing : "kind",
                  is_measured(text) ? "..." : "measured");
        return NULL;
    }
    if (profile_parse(path, text, strlen(text), &any_card, &profile, err) != 0) {
        return NULL; /* cut off, or changed by hand */
    }
    profile_close(profile);
    char *body = with_rows(text);
    const char *rest = next_line(body);
    digest(body, rest, hex);
    FILE *file = mem_stream(&out, &size);
    fprintf(file, "%.*s%s%s\n%s", (int)(rest - body), body, digest_head, hex, rest);
    mem_stream_close(file);
    free(body);
    return out;
}

/* ---- checking ---- */

static int check_digest(const char *path, const char *text, struct err *err) {
    char hex[SHA256_HEX_CHARS];
    const char *second = next_line(text), *rest = next_line(second);
    size_t n = strlen(digest_head);
    if (strncmp(text, PROFILE_FILE_HEAD, strlen(PROFILE_FILE_HEAD)) != 0 ||
        strncmp(second, digest_head, n) != 0) {
        return err_usage(err, "%s is no pack: `unmask profile pack` makes one of a calibration",
                         path);
    }
    digest(text, rest, hex);
    return strncmp(second + n, hex, strlen(hex)) == 0 && second[n + strlen(hex)] == '\n'
               ? 0
               : err_world(err,
                           "%s was changed or cut off after it was packed: its digest is not "
                           "the one in its second line",
                           path);
}

static int check_card(const char *path, const char *text, const struct gpu *gpu, struct err *err) {
    char title[NEEDED_CHARS] = "", device[NEEDED_CHARS] = "";
    (void)profile_pack_says(text, "gpu", title, sizeof title);
    (void)profile_pack_says(text, "device", device, sizeof device);
    if (strcmp(title, gpu->title) != 0) {
        return err_usage(err, "%s is of '%s', but %s is '%s'", path, title, gpu->name, gpu->title);
    }
    unsigned sms = 0;
    char *comma = strchr(device, ',');
    if (comma == NULL || sscanf(comma, ", %u multiprocessors", &sms) != 1) {
        return err_world(err, "%s: device is '%.80s', expected NAME, N multiprocessors", path,
                         device);
    }
    *comma = '\0';
    bool is_card = gpu->compute_capability == 0 ||
                   ((gpu->device == NULL || gpu_is_called(gpu, device)) && sms == gpu->sms);
    return is_card ? 0
                   : err_usage(err,
                               "%s was measured on '%.80s' of %u multiprocessors, a %s is '%s' of "
                               "%" PRIu32,
                               path, device, sms, gpu->name,
                               gpu->device != NULL ? gpu->device : gpu->title, gpu->sms);
}

/* A card may be faster than its file says, but not by this much; a product that reaches this little
 * of it was written in another unit, or on another card. */
static const double most_of_peak = 2, least_of_peak = 0.02;

static int check_times(const char *path, const char *text, const struct gpu *gpu, struct err *err) {
    double best = 0;
    size_t line_number = 0, best_line = 0;
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        double m, k, n, us;
        line_number++;
        if (sscanf(line, "gemm,%lf,%lf,%lf,%lf", &m, &k, &n, &us) == 4 &&
            2 * m * k * n / (us * 1e-6) > best) {
            best = 2 * m * k * n / (us * 1e-6);
            best_line = line_number;
        }
    }
    const double peak = gpu_roof_flops(gpu);
    if (gpu->compute_capability == 0 ||
        (best >= least_of_peak * peak && best <= most_of_peak * peak)) {
        return 0;
    }
    return best == 0 ? err_world(err, "%s holds no product's time", path)
                     : err_world(err,
                                 "%s:%zu: its fastest product makes %.3g TFLOP/s, and a %s %.3g: "
                                 "these are not its times in microseconds",
                                 path, best_line, best * 1e-12, gpu->name, peak * 1e-12);
}

int profile_pack_check(const char *path, const char *text, const struct gpu *gpu, struct err *err) {
    struct profile *profile = NULL;
    const struct profile_peaks peaks = profile_peaks_of(gpu);
    if (check_digest(path, text, err) != 0) {
        return err_status(err);
    }
    if (!is_measured(text) || missing_key(text) != NULL) {
        return err_world(err, "%s has no line '# %s: ': it is of no calibration", path,
                         is_measured(text) ? missing_key(text) : "kind");
    }
    char ranks[NEEDED_CHARS];
    if (profile_pack_says(text, "ranks", ranks, sizeof ranks)) {
        return err_usage(err,
                         "%s is of several GPUs (%.40s): --profile names it, what is found by "
                         "itself is of one",
                         path, ranks);
    }
    if (check_card(path, text, gpu, err) != 0 ||
        profile_parse(path, text, strlen(text), &peaks, &profile, err) != 0) {
        return err_status(err);
    }
    profile_close(profile);
    return check_times(path, text, gpu, err);
}
