#include "engine/calibrate/calibration_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/output.h"

enum { VITALS = 4 };

struct calibration_log {
    char path[CALIBRATION_LOG_PATH_CHARS];
    FILE *file;
    int64_t start_ns;
    double least[VITALS], most[VITALS];
};

static int cannot_write(const struct calibration_log *log, struct err *err) {
    return err_world(err, "cannot write %s: %s", log->path, strerror(errno));
}

const char *calibration_log_path(const char *profile_path, char path[CALIBRATION_LOG_PATH_CHARS]) {
    static const char ending[] = ".csv";
    size_t stem = strlen(profile_path) - (name_ends(profile_path, ending) ? strlen(ending) : 0);
    snprintf(path, CALIBRATION_LOG_PATH_CHARS, "%.*s.log.csv", (int)stem, profile_path);
    return path;
}

/* Only a log grows or begins anew, and only while it is ours: profiles p and p.csv have one. */
static int open_file(struct calibration_log *log, bool continues, struct err *err) {
    char start[sizeof CALIBRATION_LOG_HEAD] = "";
    if (output_grow(log->path, "calibration", &log->file, err) != 0) {
        return err_status(err);
    }
    const size_t n = fread(start, 1, sizeof start - 1, log->file);
    if (n > 0 && strcmp(start, CALIBRATION_LOG_HEAD) != 0) {
        return err_usage(err,
                         "'%s' exists and is not the log of a calibration: it is not overwritten",
                         log->path);
    }
    if (fseek(log->file, 0, SEEK_END) != 0 ||
        (!continues && ftruncate(fileno(log->file), 0) != 0)) {
        return cannot_write(log, err);
    }
    if (n == 0 || !continues) {
        fprintf(log->file,
                CALIBRATION_LOG_HEAD "sm_clock_mhz,memory_clock_mhz,power_w,temperature_c\n");
    }
    return 0;
}

int calibration_log_open(struct calibration_log **out, const char *profile_path, bool continues,
                         int64_t start_ns, struct err *err) {
    struct calibration_log *log = mem_zeroed(1, sizeof *log);
    calibration_log_path(profile_path, log->path);
    log->start_ns = start_ns;
    for (int i = 0; i < VITALS; i++) {
        log->least[i] = INFINITY;
    }
    *out = NULL;
    if (open_file(log, continues, err) != 0) {
        calibration_log_close(log);
        return err_status(err);
    }
    *out = log;
    return 0;
}

void calibration_log_close(struct calibration_log *log) {
    if (log != NULL && log->file != NULL) {
        fclose(log->file);
    }
    free(log);
}

/* Nothing is written where the device does not say. */
static void write_vital(FILE *file, double value) {
    if (value > 0) {
        fprintf(file, ",%.6g", value);
    } else {
        fputc(',', file);
    }
}

int calibration_log_line(struct calibration_log *log, int64_t now_ns, uint32_t round,
                         const char *group, double reference_us, const struct device_vitals *vitals,
                         struct err *err) {
    const double values[VITALS] = {vitals->sm_clock_mhz, vitals->memory_clock_mhz, vitals->power_w,
                                   vitals->temperature_c};
    for (int i = 0; i < VITALS; i++) {
        log->least[i] = fmin(log->least[i], values[i]);
        log->most[i] = fmax(log->most[i], values[i]);
    }
    fprintf(log->file, "%.3f,%" PRIu32 ",\"%s\",%.6g", (double)(now_ns - log->start_ns) * 1e-9,
            round, group, reference_us);
    for (int i = 0; i < VITALS; i++) {
        write_vital(log->file, values[i]);
    }
    fputc('\n', log->file);
    return fflush(log->file) == 0 && !ferror(log->file) ? 0 : cannot_write(log, err);
}

void calibration_log_summary(const struct calibration_log *log, FILE *profile) {
    if (log->most[0] > 0) {
        fprintf(profile,
                "# clocks: multiprocessors %.0f to %.0f MHz, memory %.0f to %.0f MHz, power %.0f "
                "to %.0f W, %.0f to %.0f C, as read between groups\n",
                log->least[0], log->most[0], log->least[1], log->most[1], log->least[2],
                log->most[2], log->least[3], log->most[3]);
    }
}
