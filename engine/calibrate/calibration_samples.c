#include "engine/calibrate/calibration_samples.h"

#include <errno.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

#define MARK " #"
enum { LINE_CHARS = 640, CHECK_DIGITS = 8 };
static const char head[] = "# a calibration in progress: ";

static int cannot(const struct calibration_samples *samples, const char *what, struct err *err) {
    return err_world(err, "cannot %s %s: %s", what, samples->path, strerror(errno));
}

/* The point of this text: most often the one after the last one found. */
static bool find_point(const struct calibration_grid *grid, const char *text, size_t *point) {
    char candidate[POINT_TEXT_CHARS];
    for (size_t i = 1; i <= grid->n; i++) {
        size_t at = (*point + i) % grid->n;
        if (strcmp(calibration_point_text(&grid->points[at], candidate), text) == 0) {
            *point = at;
            return true;
        }
    }
    return false;
}

/* "ROUND ROW,us", in place. */
static bool take_sample(struct calibration_samples *samples, char *line, size_t *point) {
    char *row = strchr(line, ' '), *us = strrchr(line, ',');
    uint64_t round;
    double time_us;
    if (row == NULL || us == NULL || us < row) {
        return false;
    }
    *row++ = '\0';
    *us++ = '\0';
    if (!num_u64(line, CALIBRATION_MAX_ROUNDS - 1, &round) || !num_f64(us, &time_us) ||
        time_us <= 0 || !find_point(samples->grid, row, point)) {
        return false;
    }
    double *sample = samples_at(samples, (uint32_t)round, *point);
    samples->n_found += isnan(*sample);
    *sample = time_us;
    return true;
}

static bool take_line(struct calibration_samples *samples, char *line, size_t *point) {
    if (strncmp(line, STEP_LINE, strlen(STEP_LINE)) != 0) {
        return take_sample(samples, line, point);
    }
    samples->lines =
        mem_grown(samples->lines, samples->n_lines, &samples->room_lines, sizeof *samples->lines);
    samples->lines[samples->n_lines++] = mem_text(line);
    return true;
}

/* FNV-1a, stored after every sample: a power cut may leave anything. */
static uint32_t check_of(const char *text) {
    uint32_t check = UINT32_C(0x811c9dc5);
    for (; *text != '\0'; text++) {
        check = (check ^ (unsigned char)*text) * UINT32_C(0x01000193);
    }
    return check;
}

/* Takes the check off the line's end; false where it is another's. Lines of versions before it have
 * none. */
static bool take_check(char *line) {
    char *mark = strstr(line, MARK), *end;
    if (mark == NULL) {
        return true;
    }
    *mark = '\0';
    mark += strlen(MARK);
    unsigned long check = strtoul(mark, &end, 16);
    return end == mark + CHECK_DIGITS && *end == '\0' && check == check_of(line);
}

static int foreign(const struct calibration_samples *samples, const char *subject,
                   struct err *err) {
    return err_usage(err,
                     "%s holds the samples of something else, not of %s: remove it or choose "
                     "another --out",
                     samples->path, subject);
}

/* Whether the file's first line is ours: all of it, or as much as a power cut left of one. */
static bool is_ours(const char *line, size_t length, bool is_whole, const char *subject) {
    char ours[LINE_CHARS];
    const size_t whole = (size_t)snprintf(ours, sizeof ours, "%s%s", head, subject);
    return length > 0 && length <= whole && memcmp(line, ours, length) == 0 &&
           (!is_whole || length == whole);
}

/* Reads what stands there; `end` is where the last whole and sound line ends. */
static int read_samples(struct calibration_samples *samples, FILE *file, const char *subject,
                        long *end, struct err *err) {
    char line[LINE_CHARS];
    size_t point = samples->grid->n - 1;
    *end = 0;
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        size_t length = strlen(line);
        const bool is_whole = length > 0 && line[length - 1] == '\n';
        if (number == 1 && !is_ours(line, length - is_whole, is_whole, subject)) {
            return foreign(samples, subject, err);
        }
        if (!is_whole) { /* a power cut may leave NULs */
            break;
        }
        line[length - 1] = '\0';
        if (number > 1 && !take_check(line)) {
            break;
        }
        if (number > 1 && !take_line(samples, line, &point)) {
            return err_world(err, "%s:%d: this is no sample of the calibration; remove the file",
                             samples->path, number);
        }
        *end = ftell(file);
    }
    return ferror(file) ? cannot(samples, "read", err) : 0;
}

bool samples_subject(const char *path, char *subject, size_t size) {
    char line[LINE_CHARS] = "";
    FILE *file = fopen(path, "r");
    bool is_read = file != NULL && fgets(line, sizeof line, file) != NULL &&
                   strncmp(line, head, strlen(head)) == 0;
    if (file != NULL) {
        fclose(file);
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(subject, size, "%s", is_read ? line + strlen(head) : "");
    return is_read;
}

static int open_file(struct calibration_samples *samples, const char *subject, struct err *err) {
    long end = 0;
    int status = output_grow(samples->path, "calibration: two at once would time each other",
                             &samples->file, err);
    if (status != 0) {
        return status;
    }
    rewind(samples->file);
    status = read_samples(samples, samples->file, subject, &end, err);
    if (status != 0) {
        return status;
    }
    if (fflush(samples->file) != 0 || ftruncate(fileno(samples->file), end) != 0 ||
        fseek(samples->file, 0, SEEK_END) != 0 ||
        (end == 0 && fprintf(samples->file, "%s%s\n", head, subject) < 0) ||
        fflush(samples->file) != 0) {
        return cannot(samples, "write", err);
    }
    return 0;
}

int samples_open(struct calibration_samples *samples, const struct calibration_grid *grid,
                 const char *path, const char *subject, struct err *err) {
    *samples = (struct calibration_samples){.grid = grid};
    samples->us = mem_unwritten(CALIBRATION_MAX_ROUNDS * grid->n, sizeof *samples->us);
    samples->path = mem_text(path);
    for (size_t i = 0; i < CALIBRATION_MAX_ROUNDS * grid->n; i++) {
        samples->us[i] = NAN;
    }
    int status = open_file(samples, subject, err);
    if (status != 0) {
        samples_close(samples);
    }
    return status;
}

void samples_close(struct calibration_samples *samples) {
    if (samples->file != NULL) {
        fclose(samples->file);
    }
    for (size_t i = 0; i < samples->n_lines; i++) {
        free(samples->lines[i]);
    }
    free(samples->lines);
    free(samples->us);
    free(samples->path);
    *samples = (struct calibration_samples){0};
}

static bool put_line(const struct calibration_samples *samples, const char *line) {
    return fprintf(samples->file, "%s" MARK "%0*" PRIx32 "\n", line, CHECK_DIGITS, check_of(line)) >
           0;
}

int samples_sync(struct calibration_samples *samples, struct err *err) {
    bool fine = fflush(samples->file) == 0 && fsync(fileno(samples->file)) == 0;
    return fine ? 0 : cannot(samples, "write", err);
}

int samples_keep(struct calibration_samples *samples, const char *line, struct err *err) {
    return put_line(samples, line) ? 0 : cannot(samples, "write", err);
}

int samples_append(struct calibration_samples *samples, uint32_t round, size_t first, size_t last,
                   struct err *err) {
    char text[POINT_TEXT_CHARS], line[LINE_CHARS];
    bool fine = true;
    for (size_t i = first; fine && i < last; i++) {
        double us = *samples_at(samples, round, i);
        snprintf(line, sizeof line, "%" PRIu32 " %s,%.6g", round,
                 calibration_point_text(&samples->grid->points[i], text), us);
        fine = isnan(us) || put_line(samples, line);
    }
    return fine ? samples_sync(samples, err) : cannot(samples, "write", err);
}

uint32_t samples_summarise(const struct calibration_samples *samples, size_t point,
                           double *median_us, double *spread) {
    double taken[CALIBRATION_MAX_ROUNDS];
    uint32_t n = 0;
    for (uint32_t round = 0; round < CALIBRATION_MAX_ROUNDS; round++) {
        double us = *samples_at(samples, round, point);
        if (!isnan(us)) {
            taken[n++] = us;
        }
    }
    *median_us = *spread = NAN;
    if (n > 0) {
        gsl_sort(taken, 1, n);
        *median_us = gsl_stats_median_from_sorted_data(taken, 1, n);
        *spread = (taken[n - 1] - taken[0]) / *median_us;
    }
    return n;
}
