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

/* False unless these are 101 rising numbers >= 0. */
static bool take_percentiles(char *const fields[], int n, struct quantiles *out) {
    for (int i = 0; i < n && i < N_PERCENTILES; i++) {
        if (!num_f64(fields[i], &out->tokens[i]) || out->tokens[i] < 0 ||
            (i > 0 && out->tokens[i] < out->tokens[i - 1])) {
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
        int n = csv_cut(&csv, err);
        if (csv.line.number == 1 || csv.text[0] == '#' || n < 3) {
            continue;
        }
        const char *name = csv.fields[0];
        found = strcmp(name, set) == 0 && strcmp(csv.fields[1], field) == 0;
        if (found && !take_percentiles(csv.fields + 2, n - 2, out)) {
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
