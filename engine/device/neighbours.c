#include "engine/device/neighbours.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/monotonic.h"
#include "sim/base/system.h"
#include "sim/price/captured.h"

/* A step is slow from this many times the shortest of its shape on (assumed): experts, a card's
 * clock and the first launches change them by less. */
static const double slow = 1.25;
/* This share of slow steps, of as many that came again, is no accident. */
enum { LEAST_STEPS = 20 };
static const double slow_share = 0.2;
/* Drivers average their utilization over a second at most; the display takes a few per cent. */
static const int64_t averaged_ns = 1200000000;
enum { BUSY_PERCENT = 10 };
/* Under load a card that is not slowed keeps more of its highest clock than this. */
static const double fallen_clock = 0.6;
/* After the last step the clock stays for this long. */
static const int64_t clock_stays_ns = 100000000;
/* A process that computes alone has its core but for interrupts. */
static const double own_core = 0.9, others_cores = 0.5, least_busy_ns = 2e8;
/* A machine that slept did so for more than clocks are apart. */
static const int64_t least_slept_ns = 100000000;

/* ---- stopped ---- */

static volatile sig_atomic_t n_continued;
static struct sigaction before;

static void count_continued(int number) {
    (void)number;
    n_continued++;
}

static void catch_continue(void) {
    struct sigaction action = {.sa_handler = count_continued, .sa_flags = SA_RESTART};
    n_continued = 0;
    (void)sigaction(SIGCONT, &action, &before);
}

/* ---- the machine ---- */

static int64_t own_ns(void) {
    struct timespec now;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0
               ? (int64_t)now.tv_sec * 1000000000 + now.tv_nsec
               : 0;
}

/* Jiffies of all cores since the machine started: those that computed, and all (Linux's proc(5)).
 */
static bool read_machine(const char *root, int64_t *busy, int64_t *all) {
    char path[512];
    int64_t of[8] = {0};
    snprintf(path, sizeof path, "%s/proc/stat", root);
    FILE *file = fopen(path, "r");
    const int n = file == NULL
                      ? 0
                      : fscanf(file,
                               "cpu %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                               " %" SCNd64 " %" SCNd64 " %" SCNd64,
                               &of[0], &of[1], &of[2], &of[3], &of[4], &of[5], &of[6], &of[7]);
    if (file != NULL) {
        fclose(file);
    }
    *all = 0;
    for (int i = 0; i < 8; i++) {
        *all += of[i];
    }
    *busy = *all - of[3] - of[4]; /* idle, and waiting for disks */
    return n == 8;
}

/* ---- the cards ---- */

static struct nvml_look look_at_all(const struct neighbours *s) {
    struct nvml_look all = {.n_programs = -1, .busy_percent = -1};
    for (uint32_t i = 0; i < s->n_devices; i++) {
        const struct nvml_look one = nvml_card_look(s->cards[i]);
        all.n_programs = one.n_programs > all.n_programs ? one.n_programs : all.n_programs;
        all.busy_percent =
            one.busy_percent > all.busy_percent ? one.busy_percent : all.busy_percent;
        all.is_slowed = all.is_slowed || one.is_slowed;
        const bool is_lower = all.most_clock_mhz <= 0 || one.clock_mhz < all.clock_mhz;
        if (one.most_clock_mhz > 0 && is_lower) {
            all.clock_mhz = one.clock_mhz;
            all.most_clock_mhz = one.most_clock_mhz;
        }
    }
    return all;
}

/* Of the programs on a card one is this one, which a container may list by a number that is not its
 * own. */
static int32_t others_of(int32_t n_programs) {
    return n_programs > 0 ? n_programs - 1 : 0;
}

/* ---- a run ---- */

void neighbours_begin(struct neighbours *s, const struct neighbours_request *request) {
    *s = (struct neighbours){.n_devices = request->n_devices,
                             .root = request->root,
                             .own_share = -1,
                             .others_share = -1};
    s->n_devices = s->n_devices < NEIGHBOURS_CARDS ? s->n_devices : NEIGHBOURS_CARDS;
    for (uint32_t i = 0; i < s->n_devices; i++) {
        s->is_gpu = s->is_gpu || request->facts[i]->capability > 0;
        s->cards[i] = nvml_card_open(request->nvml, request->facts[i]->bus);
    }
    const struct nvml_look look = look_at_all(s);
    s->n_others_before = others_of(look.n_programs);
    s->is_slowed = look.is_slowed;
    if (!read_machine(s->root, &s->machine_busy, &s->machine_all)) {
        s->machine_all = 0;
    }
    catch_continue();
    s->slept_ns = system_slept_ns();
    s->own_begin_ns = own_ns();
    s->begin_ns = monotonic_ns();
}

void neighbours_step(struct neighbours *s, const int64_t *shape, uint32_t n, double device_ns) {
    if (device_ns <= 0) {
        return; /* it failed, or clocks do not tell */
    }
    const uint64_t hash = captured_hash(shape, n * sizeof *shape), key = hash != 0 ? hash : 1;
    uint32_t at = (uint32_t)(key % NEIGHBOURS_SHAPES), tries = 0;
    s->busy_ns += device_ns;
    s->last_step_ns = monotonic_ns();
    while (s->shapes[at].key != key && s->shapes[at].key != 0 && tries++ < NEIGHBOURS_SHAPES) {
        at = (at + 1) % NEIGHBOURS_SHAPES;
    }
    struct neighbours_shape *of = &s->shapes[at];
    if (of->key != key && of->key != 0) {
        return; /* there are no more places */
    }
    if (of->n == 0 || device_ns < of->least_ns) {
        /* Steps before it are not judged anew by a shorter one. */
        of->key = key;
        of->least_ns = device_ns;
    }
    const bool is_slow = of->n > 0 && device_ns > slow * of->least_ns;
    of->n++;
    of->n_slow += is_slow;
    s->n_steps += of->n > 1;
    s->n_slow += is_slow;
}

void neighbours_idle(struct neighbours *s, int64_t idle_ns) {
    if (idle_ns < averaged_ns || !s->is_gpu) {
        return;
    }
    const struct nvml_look look = look_at_all(s);
    if (look.busy_percent < 0) {
        return;
    }
    s->n_idle++;
    s->n_idle_busy += look.busy_percent >= BUSY_PERCENT;
    s->most_busy_percent =
        look.busy_percent > s->most_busy_percent ? look.busy_percent : s->most_busy_percent;
}

void neighbours_end(struct neighbours *s) {
    const int64_t own = own_ns() - s->own_begin_ns, now = monotonic_ns();
    const struct nvml_look look = look_at_all(s);
    int64_t busy, all;
    s->n_others_after = others_of(look.n_programs);
    s->is_slowed = s->is_slowed || look.is_slowed;
    if (s->last_step_ns > 0 && now - s->last_step_ns < clock_stays_ns) {
        s->clock_mhz = look.clock_mhz;
        s->most_clock_mhz = look.most_clock_mhz;
    }
    if (s->busy_ns >= least_busy_ns) {
        s->own_share = (double)own / s->busy_ns;
    }
    if (s->machine_all > 0 && read_machine(s->root, &busy, &all) && all > s->machine_all) {
        const double n_cores = (double)system_cores();
        const double own_part = (double)own / ((double)(now - s->begin_ns) * n_cores);
        const double part = (double)(busy - s->machine_busy) / (double)(all - s->machine_all);
        s->others_share = fmax(0, part - own_part);
    }
    s->n_stopped = (uint32_t)n_continued;
    s->stopped_ns = (double)(system_slept_ns() - s->slept_ns);
    (void)sigaction(SIGCONT, &before, NULL);
    for (uint32_t i = 0; i < s->n_devices; i++) {
        nvml_card_close(s->cards[i]);
        s->cards[i] = NULL;
    }
}

/* ---- what to beware of ---- */

static void warn_of_card(const struct neighbours *s, struct warnings *out) {
    const int32_t most =
        s->n_others_before > s->n_others_after ? s->n_others_before : s->n_others_after;
    if (most > 0) {
        warnings_add(out, WARNING_DEVICE_SHARED, most,
                     "%" PRId32 " other program%s computed on this card, at the start %" PRId32
                     " and at the end %" PRId32 ": what they did is in the times",
                     most, most == 1 ? "" : "s", s->n_others_before, s->n_others_after);
    }
    if (s->n_idle_busy > 0) {
        warnings_add(out, WARNING_DEVICE_SHARED, (double)s->most_busy_percent / 100,
                     "the card was up to %" PRId32 " %% busy while nothing of this run ran on it "
                     "(%" PRIu32 " of %" PRIu32 " looks): others compute there",
                     s->most_busy_percent, s->n_idle_busy, s->n_idle);
    }
    if (s->n_steps >= LEAST_STEPS && s->n_slow > slow_share * s->n_steps) {
        warnings_add(out, WARNING_DEVICE_SHARED, (double)s->n_slow / s->n_steps,
                     "%" PRIu32 " of %" PRIu32 " steps took over %.2f times as long as the "
                     "shortest of their shape: others compute on this card, or its clock moves",
                     s->n_slow, s->n_steps, slow);
    }
    if (s->is_slowed) {
        warnings_add(out, WARNING_DEVICE_SLOWED, (double)NAN,
                     "the driver slowed this card because of heat or its power supply");
    } else if (s->most_clock_mhz > 0 && s->clock_mhz < fallen_clock * s->most_clock_mhz) {
        warnings_add(out, WARNING_DEVICE_SLOWED, s->clock_mhz / s->most_clock_mhz,
                     "after its last step the card ran at %.0f MHz, of %.0f at the most: its clock "
                     "fell",
                     s->clock_mhz, s->most_clock_mhz);
    }
}

static void warn_of_cores(const struct neighbours *s, struct warnings *out) {
    const bool lacks = s->own_share >= 0 && s->own_share < own_core;
    if (lacks && s->others_share >= 0) {
        warnings_add(out, WARNING_DEVICE_SHARED, s->own_share,
                     "while its steps ran this process had %.0f %% of a core; others took %.0f %% "
                     "of the machine's",
                     100 * s->own_share, 100 * s->others_share);
    } else if (lacks) {
        warnings_add(out, WARNING_DEVICE_SHARED, s->own_share,
                     "while its steps ran this process had %.0f %% of a core", 100 * s->own_share);
    } else if (s->others_share >= others_cores && s->busy_ns >= least_busy_ns) {
        warnings_add(out, WARNING_DEVICE_SHARED, s->others_share,
                     "other programs took %.0f %% of the machine's cores", 100 * s->others_share);
    }
}

void neighbours_warn(const struct neighbours *s, struct warnings *out) {
    if (s->is_gpu) {
        warn_of_card(s, out);
    } else {
        warn_of_cores(s, out);
    }
    if (s->n_stopped > 0) {
        warnings_add(out, WARNING_PROCESS_STOPPED, s->n_stopped,
                     "this process was stopped and continued %" PRIu32
                     " time%s: as long as that lasted is in the times",
                     s->n_stopped, s->n_stopped == 1 ? "" : "s");
    } else if (s->stopped_ns >= (double)least_slept_ns) {
        warnings_add(out, WARNING_PROCESS_STOPPED, s->stopped_ns * 1e-9,
                     "the machine slept for %.3g s during the run", s->stopped_ns * 1e-9);
    }
}

int neighbours_set_aside(const struct neighbours *s, const char *path, struct err *err) {
    struct warnings warnings = {.n = 0};
    char aside[4096];
    neighbours_warn(s, &warnings);
    if (warnings.n == 0) {
        return 0;
    }
    snprintf(aside, sizeof aside, "%s.shared", path);
    return rename(path, aside) == 0
               ? err_world(err, "%s; what was measured is in %s, and --shared keeps it in %s",
                           warnings.items[0].text, aside, path)
               : err_world(err, "%s cannot be renamed to %s: %s", path, aside, strerror(errno));
}
