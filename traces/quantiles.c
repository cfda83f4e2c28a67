#include "traces/quantiles.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/input/csv.h"
#include "sim/input/datadir.h"

enum { MAX_SETS = 64, MAX_PATH_CHARS = 4096 };

/* Takes the percentiles behind the two names; false unless they are 101 rising numbers >= 0. */
static bool read_percentiles(char *rest, struct quantiles *out) {
    int n = 0;
    for (char *field; (field = strsep(&rest, ",\n")) != NULL && field[0] != '\0'; n++) {
        if (n == N_PERCENTILES || !num_f64(field, &out->tokens[n]) || out->tokens[n] < 0 ||
            (n > 0 && out->tokens[n] < out->tokens[n - 1])) {
            return false;
        }
    }
    return n == N_PERCENTILES;
}

static int no_such_set(const char *path, const char *set, char *const *sets, struct err *err) {
    char hint[NAME_HINT_CHARS];
    name_hint(set, (const char *const *)sets, hint);
    return err_usage(err, "%s has no set '%s'%s", path, set, hint);
}

int quantiles_read(const char *set, const char *field, struct quantiles *out, struct err *err) {
    char path[MAX_PATH_CHARS];
    data_path(path, sizeof path, "traces/quantiles.csv");
    struct csv csv;
    if (csv_open(&csv, path, "quantiles", err) != 0) {
        return (int)err->kind;
    }
    char *sets[MAX_SETS + 1] = {NULL};
    int n_sets = 0;
    bool found = false, more;
    while (!found && csv_line(&csv, &more, err) == 0 && more) {
        char *rest = csv.text;
        const char *name = strsep(&rest, ","), *side = strsep(&rest, ",");
        if (csv.line.number == 1 || csv.text[0] == '#' || rest == NULL) {
            continue;
        }
        found = strcmp(name, set) == 0 && strcmp(side, field) == 0;
        if (found && !read_percentiles(rest, out)) {
            err_world(err, "%s:%" PRIu64 ": found no rising percentiles, expected p0 to p100", path,
                      csv.line.number);
        }
        if (n_sets < MAX_SETS) {
            sets[n_sets] = mem_text(name);
            n_sets++;
        }
    }
    if (!found) {
        no_such_set(path, set, sets, err);
    }
    for (int i = 0; i < n_sets; i++) {
        free(sets[i]);
    }
    csv_close(&csv);
    return (int)err->kind;
}

double quantiles_at(const struct quantiles *quantiles, double u) {
    double x = u * (N_PERCENTILES - 1);
    int i = (int)fmin(floor(x), N_PERCENTILES - 2);
    double low = quantiles->tokens[i], high = quantiles->tokens[i + 1];
    return low + (x - i) * (high - low);
}
