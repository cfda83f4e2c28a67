#include "engine/calibrate/calibration_kept.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"

/* Words of a line, and their order; numbers follow the step's name and the word of what they are.
 */
enum { LINE_CHARS = 320, MOST_WORDS = 12 };
static const char all[] = "-"; /* in a name's place: of no one step */

const char *step_name(const struct calibration_step *step, char text[STEP_NAME_CHARS]) {
    int at = 0;
    for (uint32_t i = 0; i < step->n_sides; i++) {
        const struct step_side *side = &step->sides[i];
        at += snprintf(text + at, (size_t)(STEP_NAME_CHARS - at), "%s%s:%" PRIu32 "x%" PRIu32,
                       i > 0 ? "+" : "", step_kind_names[side->kind], side->n_requests,
                       side->canvas_tokens);
    }
    snprintf(text + at, (size_t)(STEP_NAME_CHARS - at), "%s", step->is_fused ? ",fused" : "");
    return text;
}

/* ---- reading ---- */

struct words {
    char *list[MOST_WORDS];
    size_t n;
};

static void split(char *line, struct words *out) {
    char *rest = line, *word;
    out->n = 0;
    while (out->n < MOST_WORDS && (word = strsep(&rest, " ")) != NULL) {
        out->list[out->n++] = word;
    }
}

/* The word as a number; NAN where it is none. */
static double number(const struct words *words, size_t i) {
    double value;
    return i < words->n && num_f64(words->list[i], &value) ? value : NAN;
}

static void take_round(struct step_times *times, const struct words *w) {
    const double round = number(w, 3), wall_ns = number(w, 4), device_ns = number(w, 5);
    if (!(round >= 0 && round < STEP_MOST_ROUNDS && wall_ns > 0 && device_ns > 0)) {
        return;
    }
    times->wall_ns[(size_t)round] = wall_ns;
    times->device_ns[(size_t)round] = device_ns;
}

static void take_operator(struct calibration_step *step, const struct words *w) {
    const double i = number(w, 3), kind = number(w, 4), rows = number(w, 6);
    if (!(w->n == 9 && i >= 0 && i < GRAPH_MAX_OPS && kind >= 0 && kind < OP_KIND_COUNT &&
          rows >= 0)) {
        return;
    }
    struct step_operator *op = &step->operators[(size_t)i];
    *op = (struct step_operator){.kind = (enum op_kind)kind,
                                 .rows = (int64_t)rows,
                                 .between_ns = number(w, 7),
                                 .experts_hit = number(w, 8)};
    snprintf(op->key.text, sizeof op->key.text, "%s", w->list[5]);
}

static void take_whole(struct calibration_step *step, const struct words *w) {
    const double wall_ns = number(w, 3), device_ns = number(w, 4), n = number(w, 6);
    if (!(wall_ns > 0 && device_ns > 0 && n > 0 && n <= GRAPH_MAX_OPS)) {
        return;
    }
    step->wall_ns = wall_ns;
    step->device_ns = device_ns;
    step->is_cut = number(w, 5) > 0;
    step->n_operators = (uint32_t)n;
}

static void take_held(struct calibration_step *step, const struct words *w) {
    if (isnan(number(w, 9))) {
        return;
    }
    step->held = (struct power_sample){.watts = number(w, 3),
                                       .first_ns = number(w, 4),
                                       .settled_ns = number(w, 5),
                                       .late_ns = number(w, 6),
                                       .gap_ns = number(w, 7),
                                       .held_ns = number(w, 8),
                                       .lag_ms = number(w, 9)};
}

static void take_of_step(struct calibration_step *step, struct step_times *times,
                         const struct words *w) {
    const char *what = w->list[2];
    if (strcmp(what, "round") == 0) {
        take_round(times, w);
    } else if (strcmp(what, "operator") == 0) {
        take_operator(step, w);
    } else if (strcmp(what, "whole") == 0) {
        take_whole(step, w);
    } else if (strcmp(what, "held") == 0) {
        take_held(step, w);
    } else if (number(w, 3) > 0) {
        step->issued_ns = number(w, 3);
    }
}

static void take_of_all(struct steps_kept *kept, struct calibration_steps *steps,
                        const struct words *w) {
    const double first = number(w, 3);
    if (strcmp(w->list[2], "idle") == 0 && first > 0) {
        steps->idle_w = first;
        return;
    }
    const double peak = number(w, 4), planned = number(w, 5);
    if (!(first >= 0 && first < CALIBRATION_STEP_VARIANTS && peak > 0 && planned > 0)) {
        return;
    }
    kept->planned_bytes[(size_t)first] = (int64_t)planned;
    steps->activation_peak_bytes = num_larger(steps->activation_peak_bytes, (int64_t)peak);
    steps->activation_planned_bytes = num_larger(steps->activation_planned_bytes, (int64_t)planned);
}

static void take(struct steps_kept *kept, struct calibration_steps *steps, const char *line) {
    char copy[LINE_CHARS], name[STEP_NAME_CHARS];
    struct words words;
    snprintf(copy, sizeof copy, "%s", line);
    split(copy, &words);
    if (words.n < 4) {
        return;
    }
    if (strcmp(words.list[1], all) == 0) {
        take_of_all(kept, steps, &words);
        return;
    }
    for (size_t i = 0; i < steps->n; i++) {
        if (strcmp(step_name(&steps->list[i], name), words.list[1]) == 0) {
            take_of_step(&steps->list[i], &kept->times[i], &words);
            return;
        }
    }
}

void steps_kept_open(struct steps_kept *kept, struct calibration_samples *samples,
                     struct calibration_steps *steps) {
    *kept = (struct steps_kept){.samples = samples};
    kept->times = mem_unwritten(steps->n, sizeof *kept->times);
    for (size_t i = 0; i < steps->n; i++) {
        for (size_t round = 0; round < STEP_MOST_ROUNDS; round++) {
            kept->times[i].wall_ns[round] = kept->times[i].device_ns[round] = NAN;
        }
    }
    for (size_t i = 0; i < samples->n_lines; i++) {
        take(kept, steps, samples->lines[i]);
    }
    for (size_t i = 0; i < steps->n; i++) {
        kept->n_found += steps->list[i].n_operators > 0;
    }
}

void steps_kept_close(struct steps_kept *kept) {
    free(kept->times);
    *kept = (struct steps_kept){0};
}

/* ---- writing ---- */

/* "step NAME " before what the format says; of no one step where `step` is NULL. */
__attribute__((format(printf, 4, 5))) static int keep(struct steps_kept *kept,
                                                      const struct calibration_step *step,
                                                      struct err *err, const char *format, ...) {
    char line[LINE_CHARS], name[STEP_NAME_CHARS];
    int at =
        snprintf(line, sizeof line, STEP_LINE "%s ", step != NULL ? step_name(step, name) : all);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + at, sizeof line - (size_t)at, format, arguments);
    va_end(arguments);
    return samples_keep(kept->samples, line, err);
}

int steps_keep_round(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                     size_t round, struct err *err) {
    const struct step_times *times = &kept->times[i];
    return keep(kept, &steps->list[i], err, "round %zu %.17g %.17g", round, times->wall_ns[round],
                times->device_ns[round]);
}

int steps_keep_whole(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                     struct err *err) {
    const struct calibration_step *step = &steps->list[i];
    int status = 0;
    for (uint32_t k = 0; status == 0 && k < step->n_operators; k++) {
        const struct step_operator *op = &step->operators[k];
        status = keep(kept, step, err, "operator %" PRIu32 " %d %s %" PRId64 " %.17g %.17g", k,
                      (int)op->kind, op->key.text, op->rows, op->between_ns, op->experts_hit);
    }
    status = status == 0 ? keep(kept, step, err, "whole %.17g %.17g %d %" PRIu32, step->wall_ns,
                                step->device_ns, step->is_cut, step->n_operators)
                         : status;
    return status == 0 ? samples_sync(kept->samples, err) : status;
}

int steps_keep_issued(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                      struct err *err) {
    return keep(kept, &steps->list[i], err, "issued %.17g", steps->list[i].issued_ns);
}

int steps_keep_held(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                    struct err *err) {
    const struct power_sample *held = &steps->list[i].held;
    int status = keep(kept, &steps->list[i], err, "held %.17g %.17g %.17g %.17g %.17g %.17g %.17g",
                      held->watts, held->first_ns, held->settled_ns, held->late_ns, held->gap_ns,
                      held->held_ns, held->lag_ms);
    return status == 0 ? samples_sync(kept->samples, err) : status;
}

int steps_keep_idle(struct steps_kept *kept, const struct calibration_steps *steps,
                    struct err *err) {
    return keep(kept, NULL, err, "idle %.17g", steps->idle_w);
}

int steps_keep_stage(struct steps_kept *kept, int variant, int64_t peak_bytes,
                     int64_t planned_bytes, struct err *err) {
    int status =
        keep(kept, NULL, err, "stage %d %" PRId64 " %" PRId64, variant, peak_bytes, planned_bytes);
    return status == 0 ? samples_sync(kept->samples, err) : status;
}
