#include "engine/calibrate/hold.h"

#include <math.h>
#include <stdlib.h>

#include "engine/calibrate/cool.h"
#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"

/* A card's clock follows its work within a tenth of a second; its energy counter moves about every
 * tenth. The first steps after idling run before firmware reacts. It then lets the card draw
 * some 5 % more than its limit until the mean of a second has come up to that, lowers the clock for
 * two tenths of a second by as much as it was too high, and keeps to the mean from then on (H200,
 * 2026-11-23): the steady value is the mean over all of that, and the lag that of the first fall. A
 * rise that is less, or of steps that are longer, does not tell how long it took. */
static const double rest_ns = 1.2e8, first_ns = 12e6, fallen_ns = 2e8, settled_ns = 4e8,
                    held_ns = 2.5e9, rises = 1.04, lag_step_ns = 30e6;
static const double billion = 1e9;

/* Device time of each step, and when it had ended, from the beginning on. */
struct trace {
    double *device_ns, *end_ns;
    size_t n, room_device, room_end;
};

static double energy_j(const struct engine_device *device) {
    struct device_vitals vitals = {0};
    device->table->vitals(device->device, &vitals);
    return vitals.energy_j;
}

static double now_ns(const struct hold_request *request) {
    return (double)request->now_ns(request->clock_state);
}

/* A rest as long as the counter takes to move. */
static void rest(const struct hold_request *request) {
    const struct timespec span = {.tv_nsec = (long)rest_ns};
    if (request->device->counts_energy) {
        nanosleep(&span, NULL);
    }
}

double hold_idle_w(const struct hold_request *request) {
    enum { RESTS = 5 };
    rest(request);
    const double start_ns = now_ns(request), start_j = energy_j(request->device);
    for (int i = 0; i < RESTS; i++) {
        rest(request);
    }
    const double ns = now_ns(request) - start_ns;
    return start_j > 0 ? (energy_j(request->device) - start_j) / (ns / billion) : 0;
}

static void trace_add(struct trace *trace, double device_ns, double end_ns) {
    trace->device_ns =
        mem_grown(trace->device_ns, trace->n, &trace->room_device, sizeof *trace->device_ns);
    trace->end_ns = mem_grown(trace->end_ns, trace->n, &trace->room_end, sizeof *trace->end_ns);
    trace->device_ns[trace->n] = device_ns;
    trace->end_ns[trace->n++] = end_ns;
}

/* Nothing is asked of the device meanwhile: looking takes milliseconds, in which it rests. */
static int run(const struct hold_request *request, struct trace *trace, struct err *err) {
    const double start_ns = now_ns(request);
    double spent_ns = 0;
    while (spent_ns < held_ns) {
        double device_ns;
        int status = request->run(request->state, &device_ns, err);
        if (status != 0) {
            return status;
        }
        spent_ns = now_ns(request) - start_ns;
        trace_add(trace, device_ns, spent_ns);
    }
    return 0;
}

/* The mean of the device times whose steps ended between two moments, and their number. */
static double mean_between(const struct trace *trace, double from_ns, double to_ns, size_t *n) {
    double sum = 0;
    *n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        if (trace->end_ns[i] > from_ns && trace->end_ns[i] <= to_ns) {
            sum += trace->device_ns[i];
            *n += 1;
        }
    }
    return *n > 0 ? sum / (double)*n : 0;
}

/* How long it lasts, on average, until a step takes what it takes once the clock has first fallen:
 * what is missing of the rise, added up until then. */
static double lag_of(const struct trace *trace, double from, double to) {
    double lag_ns = 0, last = 0;
    for (size_t i = 0; i < trace->n && trace->end_ns[i] < fallen_ns; i++) {
        lag_ns += (trace->end_ns[i] - last) * (to - trace->device_ns[i]) / (to - from);
        last = trace->end_ns[i];
    }
    return lag_ns * 1e-6;
}

static void summarise(const struct trace *trace, struct power_sample *out) {
    size_t n_first, n_settled, n_fallen, n;
    const double span_ns = trace->end_ns[trace->n - 1],
                 mean = mean_between(trace, -1, INFINITY, &n),
                 fallen = mean_between(trace, fallen_ns, 3 * fallen_ns, &n_fallen);
    *out =
        (struct power_sample){.first_ns = mean_between(trace, 0, first_ns, &n_first),
                              .settled_ns = mean_between(trace, settled_ns, INFINITY, &n_settled),
                              .late_ns = mean_between(trace, span_ns / 2, INFINITY, &n),
                              .gap_ns = fmax(span_ns / (double)trace->n - mean, 0),
                              .held_ns = span_ns};
    out->first_ns = n_first > 0 ? out->first_ns : trace->device_ns[0];
    out->settled_ns = n_settled > 0 ? out->settled_ns : out->first_ns;
    if (fallen > rises * out->first_ns && out->first_ns < lag_step_ns) {
        out->lag_ms = lag_of(trace, out->first_ns, fallen);
    }
}

double hold_takes_ns(void) {
    enum { RESTS = 4 + 1 };
    return held_ns + RESTS * rest_ns;
}

/* The counter lags by up to a tenth of a second: it is read while idle, before and after. */
int hold_step(const struct hold_request *request, double idle_w, struct power_sample *out,
              struct err *err) {
    struct trace trace = {0};
    rest(request);
    rest(request);
    const double before_ns = now_ns(request), before_j = energy_j(request->device);
    int status = run(request, &trace, err);
    if (status == 0) {
        ASSERT(trace.n > 0); /* at least one run was made */
        rest(request);
        rest(request);
        const double span_ns = trace.end_ns[trace.n - 1];
        const double rested_s = (now_ns(request) - before_ns - span_ns) / billion;
        summarise(&trace, out);
        out->watts =
            (energy_j(request->device) - before_j - idle_w * rested_s) / (span_ns / billion);
    }
    free(trace.device_ns);
    free(trace.end_ns);
    return status;
}
