#include "sim/serve/executor_sim.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"
#include "sim/price/captured.h"
#include "sim/system/system_step.h"

struct flight {
    bool busy;
    uint32_t steps;
    int64_t start_ns, end_ns, stall_ns;
    struct step_price price;
    double host_ns;     /* of one step */
    double work_joules; /* of all of them on one rank's card, idling not counted; 0: not known */
    struct power_state clock; /* of its card, where the profile knows it */
    /* Which of its steps are graphs; owned, NULL: the profile knows no difference. */
    struct captured *captured;
    /* A hash of what it runs, the counts and the members, where time passes between submissions. */
    uint64_t runs;
};

/* What steps in a row take at a clock that follows their power. */
struct course_took {
    double device_ns, work_joules;
    int64_t wall_ns;
    struct power_state to;
};

enum { KNOWN_COURSES = 1 << 13 };

/* The same, remembered. The key is a hash of all that it depends on, which two share as good
 * as never. */
struct known_course {
    uint64_t key; /* 0: free */
    struct course_took took;
};

struct landing {
    int64_t end_ns;
    uint32_t replica;
};

struct executor_sim {
    const struct system *system;
    const struct power *power; /* of its cards; NULL: the profile knows none */
    int64_t now_ns;
    uint32_t n_replicas, n_busy;
    struct pricing pricing;
    struct known_course *courses; /* where cards have a clock */
    struct landing *heap; /* of those in flight: none ends before the one at half its place */
    uint32_t *places;     /* in the heap, of each replica that is busy */
    struct flight flights[];
};

/* ---- the heap ---- */

/* Of equal ends the lower replica is first. */
static bool is_before(struct landing a, struct landing b) {
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.replica < b.replica;
}

static void put_at(struct executor_sim *sim, uint32_t place, struct landing landing) {
    sim->heap[place] = landing;
    sim->places[landing.replica] = place;
}

/* From its place, or nearer to the first one. */
static void rise(struct executor_sim *sim, uint32_t replica) {
    const struct landing landing = {sim->flights[replica].end_ns, replica};
    uint32_t place = sim->places[replica];
    for (; place > 0 && is_before(landing, sim->heap[(place - 1) / 2]); place = (place - 1) / 2) {
        put_at(sim, place, sim->heap[(place - 1) / 2]);
    }
    put_at(sim, place, landing);
}

static void depart(struct executor_sim *sim, uint32_t replica) {
    sim->flights[replica].busy = true;
    sim->places[replica] = sim->n_busy++;
    rise(sim, replica);
}

/* Takes the first one out. */
static struct flight *land(struct executor_sim *sim) {
    struct flight *first = &sim->flights[sim->heap[0].replica];
    const struct landing last = sim->heap[--sim->n_busy];
    uint32_t place = 0;
    for (uint32_t child; (child = 2 * place + 1) < sim->n_busy; place = child) {
        child += child + 1 < sim->n_busy && is_before(sim->heap[child + 1], sim->heap[child]);
        if (!is_before(sim->heap[child], last)) {
            break;
        }
        put_at(sim, place, sim->heap[child]);
    }
    put_at(sim, place, last);
    first->busy = false;
    return first;
}

/* No step is longer than 73 years, and no clock goes beyond 146, so that sums fit. */
static const int64_t longest_step_ns = INT64_C(1) << 61, last_ns = INT64_C(1) << 62;

/* As llround has it, which is a call. */
static int64_t rounded(double ns) {
    const int64_t whole = (int64_t)ns;
    return whole + (ns - (double)whole >= 0.5);
}

static int64_t whole_ns(double ns) {
    return ns < 1 ? 1 : ns < (double)longest_step_ns ? rounded(ns) : longest_step_ns;
}

static int check_clock(const struct executor_sim *sim, int64_t step_ns, int64_t steps,
                       struct err *err) {
    return step_ns < longest_step_ns && steps <= (last_ns - sim->now_ns) / step_ns
               ? 0
               : err_world(err,
                           "%" PRId64 " steps of %.3g s each, %.3g s after the start, go beyond "
                           "the 146 years that a clock counts: the times of the profile, the "
                           "runtime or the host are too long",
                           steps, (double)step_ns / 1e9, (double)sim->now_ns / 1e9);
}

static void price(const struct executor_sim *sim, const struct step_shape *shape,
                  int64_t workspace_bytes, struct step_price *out) {
    struct step_shape padded;
    /* One request is as long as the longest, and its spans need not be known. */
    if (!sim->system->runtime.varlen && shape->sym[SYM_REQUESTS] != 1) {
        padded.n_spans = shape->n_spans;
        padded.spans = shape->spans;
        shape_pad(&padded);
        shape = &padded;
    }
    system_price(sim->system, shape, workspace_bytes, out);
}

/* `steps` steps, which take wall_ns together. */
static void take_off(struct executor_sim *sim, struct flight *flight, uint32_t steps,
                     int64_t wall_ns) {
    flight->steps = steps;
    flight->end_ns = flight->start_ns + wall_ns;
    depart(sim, (uint32_t)(flight - sim->flights));
}

/* Adds up what the steps of a flight that is over took. */
static void account(struct executor_sim *sim, const struct flight *flight) {
    const uint32_t steps = flight->steps;
    sim->pricing.device_ns += (double)steps * flight->price.device_ns;
    sim->pricing.host_ns += (double)steps * flight->host_ns;
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        sim->pricing.lookups[match] += (uint64_t)steps * flight->price.lookups[match];
        sim->pricing.time.match_ns[match] += (double)steps * flight->price.time.match_ns[match];
    }
    sim->pricing.time.behind_ns += (double)steps * flight->price.time.behind_ns;
    sim->pricing.time.link_ns += (double)steps * flight->price.time.link_ns;
    sim->pricing.work_joules += flight->work_joules;
}

/* A host that waits within each step waits once; one that runs ahead of the device launches all the
 * same. */
static void start_unrolled(struct executor_sim *sim, struct flight *flight, uint32_t steps) {
    const struct step_price *price = &flight->price;
    const double visit_ns = price->visit_ns;
    if (sim->system->runtime.host_mode != HOST_SERIAL) {
        flight->host_ns = price->host_ns + visit_ns / steps;
        take_off(sim, flight, steps,
                 steps * whole_ns(price->wall_ns - visit_ns) + (int64_t)llround(visit_ns));
        return;
    }
    const double once_ns = price->host_ns - price->plan_ns + visit_ns;
    flight->host_ns = price->plan_ns + once_ns / steps;
    take_off(sim, flight, steps, whole_ns(steps * (price->device_ns + price->plan_ns) + once_ns));
}

/* ---- a card whose clock follows its power ---- */

/* Of all ranks' cards, idling included; 0 where the profile knows no power. */
static double cards_joules(const struct executor_sim *sim, double work_joules, double wall_ns) {
    const struct power *power = sim->power;
    return power != NULL
               ? model_ranks(sim->system->model) * (work_joules + power->idle_w * wall_ns * 1e-9)
               : 0;
}

static bool is_equal(const double a[POWER_LAGS], const double b[POWER_LAGS]) {
    bool equal = true;
    for (int i = 0; i < POWER_LAGS; i++) {
        equal = equal && !(a[i] < b[i] || a[i] > b[i]);
    }
    return equal;
}

/* Of exact rows, whose launches go by pages. */
static uint32_t page_rows_of(const struct system *system) {
    return system->rows.kind == ROW_EXACT ? system->settings.page_tokens : 0;
}

/* Of one submission at its card's clock. */
struct clocked {
    const struct submission *submission;
    const struct step_price *highest; /* of the next step: the flight's price, or `issued` */
    struct step_price issued;
    struct cost_course course;
    bool issues; /* the next step, or all of those issued at once */
    uint32_t n_unrolled, steps;
    struct course_took took;
};

/* The same for steps that take the same from such a clock on (cost_course_begin). */
static uint64_t course_key(const struct clocked *c) {
    const int64_t *sym = c->submission->step.shape->sym;
    const uint64_t counts[] = {c->submission->repeat, c->n_unrolled, (uint64_t)sym[SYM_REQUESTS],
                               (uint64_t)sym[SYM_REFRESH_N], (uint64_t)sym[SYM_SELECT_N]};
    const uint64_t price = captured_hash(c->highest, offsetof(struct step_price, issued_ns));
    uint64_t key = captured_hash_word(price, captured_hash(&c->took.to, sizeof c->took.to));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        key = captured_hash_word(key, counts[i]);
    }
    return key > 0 ? key : 1;
}

/* Whether the next step is issued operator by operator, and its price then. */
static void begin_steps(const struct executor_sim *sim, const struct flight *flight,
                        struct clocked *c) {
    const struct step_shape *shape = c->submission->step.shape;
    const uint32_t page_rows = page_rows_of(sim->system);
    c->issues = cost_issue(sim->system->cost, shape, page_rows, flight->captured, &flight->price,
                           &c->issued);
    c->highest = c->issues ? &c->issued : &flight->price;
}

/* Step after step, for each leaves the clock to the next; once it is settled, to the last bit, the
 * rest take the same. */
static int run_steps(const struct executor_sim *sim, const struct flight *flight, struct clocked *c,
                     struct err *err) {
    const struct submission *submission = c->submission;
    const struct cost_model *cost = sim->system->cost;
    const bool stops = !submission->unrolled && submission->stop_ns != INT64_MAX;
    struct course_took *took = &c->took;
    cost_course_begin(cost, submission->step.shape, c->n_unrolled, c->highest, &c->course);
    for (uint32_t same = 1; c->steps < submission->repeat; c->steps += same) {
        const struct power_state before = took->to;
        const int64_t room_ns = submission->stop_ns - flight->start_ns - took->wall_ns;
        if (stops && c->steps > 0 && room_ns <= 0) {
            break;
        }
        if (c->issues && c->steps > 0 && !submission->unrolled) {
            begin_steps(sim, flight, c);
            cost_course_begin(cost, submission->step.shape, c->n_unrolled, c->highest, &c->course);
        }
        const struct cost_ran ran = cost_course_run(&c->course, &took->to);
        const int64_t step_ns = whole_ns(ran.wall_ns);
        const int64_t left = submission->repeat - c->steps;
        same = 1;
        if (!c->issues && is_equal(before.behind, took->to.behind)) {
            const int64_t until_stop = stops ? (room_ns + step_ns - 1) / step_ns : left;
            same = (uint32_t)num_smaller(num_larger(until_stop, 1), left);
        }
        const int64_t left_ns = last_ns - flight->start_ns - took->wall_ns;
        if (step_ns > (same > 1 ? left_ns / same : left_ns)) {
            return check_clock(sim, step_ns, last_ns, err);
        }
        took->wall_ns += same * step_ns;
        took->device_ns += same * ran.device_ns;
        took->work_joules += same * ran.work_joules;
    }
    return 0;
}

/* flight->price is the mean step's then. */
static int submit_at_clock(struct executor_sim *sim, struct flight *flight,
                           const struct submission *submission, struct err *err) {
    struct clocked c;
    c.submission = submission;
    c.n_unrolled = submission->unrolled ? submission->repeat : 1;
    c.steps = 0;
    begin_steps(sim, flight, &c);
    power_rest(sim->power, (double)(flight->start_ns - flight->end_ns), &flight->clock);
    c.took = (struct course_took){.to = flight->clock};
    const uint64_t key = c.issues ? 0 : course_key(&c);
    struct known_course *place = &sim->courses[key % KNOWN_COURSES];
    const int64_t stop_ns = submission->unrolled ? last_ns : submission->stop_ns;
    const int64_t room_ns = num_smaller(stop_ns, last_ns) - flight->start_ns;
    if (key > 0 && place->key == key && place->took.wall_ns <= room_ns) {
        c.took = place->took;
        c.steps = submission->repeat;
    } else if (run_steps(sim, flight, &c, err) != 0) {
        return err_status(err);
    } else if (key > 0 && c.steps == submission->repeat) {
        *place = (struct known_course){key, c.took};
    }
    const struct step_price *highest = c.highest;
    flight->host_ns =
        highest->plan_ns + (highest->host_ns - highest->plan_ns + highest->visit_ns) / c.n_unrolled;
    flight->clock = c.took.to;
    flight->price.device_ns = c.took.device_ns / c.steps;
    flight->work_joules = c.took.work_joules;
    take_off(sim, flight, c.steps, c.took.wall_ns);
    return 0;
}

/* How long copies to and from the host's memory put a step off that takes step_ns: they go one
 * after the other over the card's link to its host, before the step or layer by layer during it, as
 * CachedAttention (arXiv 2403.19708, section 3.2) loads and saves keys and values. */
static int64_t stall_ns(const struct executor_sim *sim, const struct swap *swap, int64_t step_ns) {
    const int64_t bytes = swap->out_bytes + swap->in_bytes;
    if (bytes == 0) {
        return 0;
    }
    const int64_t copies_ns = whole_ns(gpu_copy_ns(sim->system->gpu, bytes));
    const int64_t hidden_ns = sim->system->settings.swap_overlaps ? step_ns : 0;
    return copies_ns > hidden_ns ? copies_ns - hidden_ns : 0;
}

/* Starts the submission as long after now. */
static int start(struct executor_sim *sim, const struct submission *submission, int64_t behind_ns,
                 struct err *err) {
    struct flight *flight = &sim->flights[submission->replica];
    ASSERT(submission->replica < sim->n_replicas && !flight->busy && submission->repeat >= 1);
    price(sim, submission->step.shape, submission->step.workspace_bytes, &flight->price);
    if (submission->follows) {
        flight->price.wall_ns -= flight->price.visit_ns;
        flight->price.visit_ns = 0;
    }
    int64_t step_ns = whole_ns(flight->price.wall_ns);
    int64_t steps = submission->repeat;
    flight->stall_ns = stall_ns(sim, &submission->swap, step_ns);
    if (check_clock(sim, flight->stall_ns + 1, 1, err) != 0) {
        return err_status(err);
    }
    flight->start_ns = sim->now_ns + behind_ns + flight->stall_ns;
    flight->host_ns = flight->price.host_ns + flight->price.visit_ns;
    flight->work_joules = 0;
    if (check_clock(sim, step_ns, steps, err) != 0) {
        return err_status(err);
    }
    if (sim->power != NULL) {
        return submit_at_clock(sim, flight, submission, err);
    }
    if (submission->unrolled) {
        start_unrolled(sim, flight, submission->repeat);
        return 0;
    }
    int64_t room_ns = submission->stop_ns - flight->start_ns;
    if (submission->stop_ns != INT64_MAX && room_ns < steps * step_ns) {
        int64_t until_stop = (room_ns + step_ns - 1) / step_ns;
        steps = until_stop < 1 ? 1 : until_stop < steps ? until_stop : steps;
    }
    take_off(sim, flight, (uint32_t)steps, steps * step_ns);
    return 0;
}

/* The same requests' same step once more, at once: as if it had been one submission, so that
 * skipping ahead and going step by step take the same time. */
static bool goes_on(const struct executor_sim *sim, struct flight *flight,
                    const struct submission *submission) {
    const struct planned_step *step = &submission->step;
    const uint64_t members = captured_hash(step->slots, step->n_slots * sizeof *step->slots);
    const uint64_t runs = captured_hash_word(members, captured_sums_hash(step->shape->sym));
    const bool is_same = flight->end_ns == sim->now_ns && flight->runs == runs;
    flight->runs = runs;
    return is_same;
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct executor_sim *sim = state;
    const struct runtime *runtime = &sim->system->runtime;
    int64_t behind_ns = 0;
    if (runtime->between_ns > 0 && !goes_on(sim, &sim->flights[submission->replica], submission)) {
        behind_ns = llround(runtime->host_factor * runtime->between_ns);
    }
    return start(sim, submission, behind_ns, err);
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct executor_sim *sim = state;
    (void)err;
    if (sim->n_busy > 0 && sim->heap[0].end_ns <= until_ns) {
        const struct flight *first = land(sim);
        account(sim, first);
        sim->now_ns = first->end_ns;
        out->kind = COMPLETION_BATCH;
        out->time_ns = first->end_ns;
        out->replica = (uint32_t)(first - sim->flights);
        out->steps = first->steps;
        out->start_ns = first->start_ns;
        out->gpu_ns = whole_ns(first->price.device_ns);
        out->host_ns = (int64_t)first->host_ns;
        out->stall_ns = first->stall_ns;
        out->joules =
            cards_joules(sim, first->work_joules, (double)(first->end_ns - first->start_ns));
        out->decided = (struct decided){NULL, false};
        return 0;
    }
    if (until_ns == INT64_MAX) {
        *out = (struct completion){.kind = COMPLETION_IDLE, .time_ns = sim->now_ns};
        return 0;
    }
    sim->now_ns = until_ns > sim->now_ns ? until_ns : sim->now_ns;
    *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = sim->now_ns};
    return 0;
}

int executor_sim_play(struct executor_sim *sim, const struct submission *submission,
                      int64_t idle_ns, struct completion *out, struct err *err) {
    ASSERT(sim->n_busy == 0 && idle_ns >= 0);
    const int64_t left_ns = last_ns - sim->now_ns;
    if (sim->power != NULL) {
        sim->flights[submission->replica].end_ns = sim->now_ns;
        sim->now_ns += idle_ns < left_ns ? idle_ns : left_ns;
    }
    const int status = start(sim, submission, 0, err);
    return status == 0 ? wait_next(sim, INT64_MAX, out, err) : status;
}

static int64_t flight_step_ns(const void *state, uint32_t replica) {
    const struct flight *flight = &((const struct executor_sim *)state)->flights[replica];
    return (flight->end_ns - flight->start_ns) / flight->steps;
}

static void cut(void *state, uint32_t replica, int64_t now_ns) {
    struct executor_sim *sim = state;
    struct flight *flight = &sim->flights[replica];
    const int64_t step_ns = flight_step_ns(sim, replica);
    const int64_t past_ns = now_ns - flight->start_ns;
    const int64_t begun = past_ns > step_ns ? (past_ns + step_ns - 1) / step_ns : 1;
    if (begun < flight->steps) {
        flight->steps = (uint32_t)begun;
        flight->end_ns = flight->start_ns + begun * step_ns;
        rise(sim, replica);
    }
}

static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct executor_sim *sim = state;
    struct step_price highest;
    price(sim, shape, workspace_bytes, &highest);
    double wall_ns = highest.wall_ns;
    *joules = 0;
    if (sim->power != NULL) {
        const struct flight *flight = &sim->flights[replica];
        struct power_state clock = flight->clock;
        power_rest(sim->power, (double)(sim->now_ns - flight->end_ns), &clock);
        struct cost_course course;
        cost_course_begin(sim->system->cost, shape, 1, &highest, &course);
        const struct cost_ran ran = cost_course_run(&course, &clock);
        wall_ns = ran.wall_ns;
        *joules = cards_joules(sim, ran.work_joules, wall_ns);
    }
    return whole_ns(wall_ns);
}

struct executor_sim *executor_sim_open(const struct system *system, uint32_t n_replicas) {
    struct executor_sim *sim = mem_zeroed(1, sizeof *sim + n_replicas * sizeof sim->flights[0]);
    sim->system = system;
    sim->power = cost_power(system->cost);
    sim->n_replicas = n_replicas;
    sim->heap = mem_zeroed(n_replicas, sizeof *sim->heap);
    sim->places = mem_zeroed(n_replicas, sizeof *sim->places);
    sim->courses = sim->power != NULL ? mem_reserved(KNOWN_COURSES, sizeof *sim->courses) : NULL;
    const bool knows = sim->power != NULL && cost_knows_issued(system->cost);
    for (uint32_t i = 0; knows && i < n_replicas; i++) {
        sim->flights[i].captured = mem_zeroed(1, sizeof *sim->flights[i].captured);
    }
    return sim;
}

int64_t executor_sim_next_ns(const struct executor_sim *sim) {
    return sim->n_busy > 0 ? sim->heap[0].end_ns : INT64_MAX;
}

void executor_sim_close(struct executor_sim *sim) {
    if (sim == NULL) {
        return;
    }
    for (uint32_t i = 0; i < sim->n_replicas; i++) {
        free(sim->flights[i].captured);
    }
    mem_released(sim->courses);
    free(sim->heap);
    free(sim->places);
    free(sim);
}

struct executor executor_sim_interface(struct executor_sim *sim) {
    const bool follows_power = sim->power != NULL; /* then steps differ */
    return (struct executor){
        .state = sim,
        .wants_spans = !sim->system->runtime.varlen || sim->system->runtime.varlen_attention ||
                       (sim->n_replicas > 0 && sim->flights[0].captured != NULL),
        .unrolls = true,
        .shares_prefixes = true,
        .submit = submit,
        .wait = wait_next,
        .step_ns = follows_power ? NULL : flight_step_ns,
        .cut = follows_power ? NULL : cut,
        .estimate_ns = estimate_ns,
    };
}

const struct pricing *executor_sim_pricing(const struct executor_sim *sim) {
    return &sim->pricing;
}
