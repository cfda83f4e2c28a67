#include "traces/generate.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* Later arrivals are an error: 146 years. */
static const int64_t max_arrival_ns = INT64_C(1) << 62;

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Add a gap in seconds; a gap beyond the clock leaves a time that is refused later. */
static enum source_reply add_gap(int64_t *at_ns, double gap_s) {
    double gap_ns = gap_s * 1e9;
    *at_ns += gap_ns < (double)max_arrival_ns ? llround(gap_ns) : max_arrival_ns;
    return SOURCE_ROW;
}

/* ---- poisson ---- */

struct poisson {
    double rate_per_s;
};

static int poisson_start(void *state, double rate_per_s, struct err *err) {
    (void)err;
    ((struct poisson *)state)->rate_per_s = rate_per_s;
    return 0;
}

static enum source_reply poisson_next(void *state, struct rng *rng, int64_t *at_ns) {
    const struct poisson *poisson = state;
    return add_gap(at_ns, -log(rng_uniform(rng)) / poisson->rate_per_s);
}

/* ---- renewal processes: independent gaps of a given mean and coefficient of variation ---- */

struct renewal {
    double cv;
    double shape, scale_s;
};

/* Beyond 10 one gap in thousands carries the mean; below 0.05 the gaps are constant. */
static const struct param renewal_params[] = {
    PARAM("cv", PARAM_F64, struct renewal, cv, "1", "1", 0.05, 10,
          "standard deviation of the gaps over their mean"),
};

static int gamma_start(void *state, double rate_per_s, struct err *err) {
    (void)err;
    struct renewal *renewal = state;
    renewal->shape = 1 / (renewal->cv * renewal->cv);
    renewal->scale_s = 1 / (rate_per_s * renewal->shape);
    return 0;
}

/* The inverse distribution function for unit scale. GSL's iteration finds no root far down the
 * lower tail of small shapes; there P(x) = x^k / Gamma(k + 1) (1 + O(x)) is inverted instead
 * (Abramowitz and Stegun 6.5.29), exact to 1e-7 where it is used. */
static double gamma_inverse(double u, double shape) {
    double tail = exp((log(u) + lgamma(shape + 1)) / shape);
    return tail < 1e-7 ? tail : gsl_cdf_gamma_Pinv(u, shape, 1);
}

static enum source_reply gamma_next(void *state, struct rng *rng, int64_t *at_ns) {
    const struct renewal *renewal = state;
    return add_gap(at_ns, gamma_inverse(rng_uniform(rng), renewal->shape) * renewal->scale_s);
}

/* The squared coefficient of variation of a Weibull distribution falls with its shape. */
static double weibull_cv2(double shape) {
    return expm1(lgamma(1 + 2 / shape) - 2 * lgamma(1 + 1 / shape));
}

static int weibull_start(void *state, double rate_per_s, struct err *err) {
    (void)err;
    struct renewal *renewal = state;
    /* cv 10 is shape 0.22 and cv 0.05 is shape 25. */
    double low = 0.1, high = 100;
    for (int i = 0; i < 200; i++) {
        double middle = sqrt(low * high);
        *(weibull_cv2(middle) > renewal->cv * renewal->cv ? &low : &high) = middle;
    }
    renewal->shape = low;
    renewal->scale_s = 1 / (rate_per_s * tgamma(1 + 1 / low));
    return 0;
}

static enum source_reply weibull_next(void *state, struct rng *rng, int64_t *at_ns) {
    const struct renewal *renewal = state;
    double gap = gsl_cdf_weibull_Qinv(rng_uniform(rng), renewal->scale_s, renewal->shape);
    return add_gap(at_ns, gap);
}

/* ---- bursts: a Poisson process whose rate alternates between two values ---- */

struct bursts {
    int64_t on_ns, off_ns;
    double burst;
    double on_per_ns, off_per_ns; /* rates */
    double passed;                /* expected arrivals up to the last one, within its period */
    int64_t n_periods;            /* periods before that */
};

static const struct param bursts_params[] = {
    PARAM("on_ns", PARAM_I64, struct bursts, on_ns, "ns", "10s", 1, 1e15,
          "length of a burst; the run starts with one [workload.arrivals.burst > 1]"),
    PARAM("off_ns", PARAM_I64, struct bursts, off_ns, "ns", "30s", 0, 1e15,
          "length of the quiet time between bursts [workload.arrivals.burst > 1]"),
    PARAM("burst", PARAM_F64, struct bursts, burst, "1", "3", 1, 1e6,
          "rate within a burst over the mean rate; the quiet rate keeps the mean"),
};

static int bursts_start(void *state, double rate_per_s, struct err *err) {
    struct bursts *bursts = state;
    double on = (double)bursts->on_ns, off = (double)bursts->off_ns;
    double most = (on + off) / on;
    if (bursts->burst > most * (1 + 1e-12)) {
        return err_usage(err,
                         "bursts of %g times the mean rate cannot fill %g of the time: expected "
                         "burst up to %g, where nothing arrives between bursts",
                         bursts->burst, 1 / most, most);
    }
    bursts->on_per_ns = rate_per_s * 1e-9 * bursts->burst;
    bursts->off_per_ns =
        off > 0 ? fmax(0, (rate_per_s * 1e-9 * (on + off) - bursts->on_per_ns * on) / off) : 0;
    return 0;
}

/* The time at which the expected number of arrivals has grown by one exponential draw. */
static enum source_reply bursts_next(void *state, struct rng *rng, int64_t *at_ns) {
    struct bursts *bursts = state;
    double on = bursts->on_per_ns * (double)bursts->on_ns;
    double period = on + bursts->off_per_ns * (double)bursts->off_ns;
    double passed = bursts->passed - log(rng_uniform(rng));
    double whole = floor(passed / period);
    bursts->passed = passed - whole * period;
    bursts->n_periods += (int64_t)fmin(whole, 1e18);
    double within_ns = bursts->passed < on || bursts->off_per_ns == 0
                           ? bursts->passed / bursts->on_per_ns
                           : (double)bursts->on_ns + (bursts->passed - on) / bursts->off_per_ns;
    int64_t period_ns = bursts->on_ns + bursts->off_ns;
    if (bursts->n_periods >= max_arrival_ns / period_ns) {
        *at_ns = max_arrival_ns;
        return SOURCE_ROW;
    }
    int64_t next_ns = bursts->n_periods * period_ns + llround(within_ns);
    *at_ns = next_ns > *at_ns ? next_ns : *at_ns;
    return SOURCE_ROW;
}

/* ---- ramps and stages: Poisson processes whose rate changes once, steadily or in steps ---- */

struct rise {
    double from, to; /* times the rate */
    int64_t over_ns, stage_ns;
    uint32_t stages;
    double rate_per_ns;
    double
        passed; /* expected arrivals up to the last one, over rate_per_ns: ns at the rate itself */
};

#define FROM_PARAM                                                                                 \
    PARAM("from", PARAM_F64, struct rise, from, "1", "0", 0, 1000,                                 \
          "rate at the beginning, times the rate asked for")
#define TO_PARAM                                                                                   \
    PARAM("to", PARAM_F64, struct rise, to, "1", "2", 0.001, 1000,                                 \
          "rate at the end, and from then on, times the rate asked for")

static const struct param ramp_params[] = {
    FROM_PARAM,
    TO_PARAM,
    PARAM("over_ns", PARAM_I64, struct rise, over_ns, "ns", "300s", 1, 1e15,
          "how long it takes from the one to the other"),
};

static const struct param stages_params[] = {
    PARAM("from", PARAM_F64, struct rise, from, "1", "0.5", 0, 1000,
          "rate of the first stage, times the rate asked for"),
    PARAM("to", PARAM_F64, struct rise, to, "1", "1.5", 0.001, 1000,
          "rate of the last stage, which does not end, times the rate asked for"),
    PARAM("stages", PARAM_U32, struct rise, stages, "1", "4", 2, 1000,
          "how many there are, at even distances"),
    PARAM("stage_ns", PARAM_I64, struct rise, stage_ns, "ns", "60s", 1, 1e15, "length of each"),
};

static int rise_start(void *state, double rate_per_s, struct err *err) {
    (void)err;
    ((struct rise *)state)->rate_per_ns = rate_per_s * 1e-9;
    return 0;
}

/* One exponential draw more is expected to have arrived; `ns` of that time, never before the last.
 */
static double rise_passed(struct rise *rise, struct rng *rng) {
    rise->passed -= log(rng_uniform(rng)) / rise->rate_per_ns;
    return rise->passed;
}

static enum source_reply rise_to(int64_t *at_ns, double ns) {
    const int64_t next_ns = ns < (double)max_arrival_ns ? llround(ns) : max_arrival_ns;
    *at_ns = next_ns > *at_ns ? next_ns : *at_ns;
    return SOURCE_ROW;
}

/* Where from t + (to - from) t^2 / (2 over) is what is expected to have passed. */
static enum source_reply ramp_next(void *state, struct rng *rng, int64_t *at_ns) {
    struct rise *rise = state;
    const double over = (double)rise->over_ns, passed = rise_passed(rise, rng);
    const double whole = (rise->from + rise->to) / 2 * over;
    if (passed >= whole) {
        return rise_to(at_ns, over + (passed - whole) / rise->to);
    }
    const double slope = (rise->to - rise->from) / over;
    const double root = sqrt(fmax(0, rise->from * rise->from + 2 * slope * passed));
    return rise_to(at_ns, 2 * passed / (rise->from + root));
}

static enum source_reply stages_next(void *state, struct rng *rng, int64_t *at_ns) {
    struct rise *rise = state;
    double left = rise_passed(rise, rng), begin = 0;
    const double step = (rise->to - rise->from) / (rise->stages - 1);
    for (uint32_t i = 0; i + 1 < rise->stages; i++) {
        const double rate = rise->from + step * i, whole = rate * (double)rise->stage_ns;
        if (left < whole) {
            return rise_to(at_ns, begin + left / rate);
        }
        left -= whole;
        begin += (double)rise->stage_ns;
    }
    return rise_to(at_ns, begin + left / rise->to);
}

/* ---- all at once ---- */

static enum source_reply all_at_once_next(void *state, struct rng *rng, int64_t *at_ns) {
    (void)state, (void)rng;
    *at_ns = 0;
    return SOURCE_ROW;
}

/* ---- closed loop ---- */

struct ready {
    int64_t at_ns;
    uint64_t follows; /* as struct arrival has it */
};

struct closed_loop {
    uint32_t clients;
    int64_t think_ns;
    struct ready *ready; /* when the idle clients send, a ring of `clients` in rising order */
    uint32_t head, n_ready;
    uint64_t follows; /* of the last row */
};

static const struct param closed_loop_params[] = {
    PARAM("clients", PARAM_U32, struct closed_loop, clients, "1", "8", 1, 1 << 20,
          "clients, each with one request in flight"),
    PARAM("think_ns", PARAM_I64, struct closed_loop, think_ns, "ns", "0", 0, 1e15,
          "time from a completion to the same client's next request"),
};

static int closed_loop_start(void *state, double rate_per_s, struct err *err) {
    (void)rate_per_s;
    (void)err;
    struct closed_loop *loop = state;
    loop->ready = mem_zeroed(loop->clients, sizeof *loop->ready);
    loop->n_ready = loop->clients;
    return 0;
}

static void closed_loop_stop(void *state) {
    free(((struct closed_loop *)state)->ready);
}

static enum source_reply closed_loop_next(void *state, struct rng *rng, int64_t *at_ns) {
    (void)rng;
    struct closed_loop *loop = state;
    if (loop->n_ready == 0) {
        return SOURCE_WAIT;
    }
    *at_ns = loop->ready[loop->head].at_ns;
    loop->follows = loop->ready[loop->head].follows;
    loop->head = (loop->head + 1) % loop->clients;
    loop->n_ready--;
    return SOURCE_ROW;
}

/* Constant think time and a clock that never goes back keep the ring in rising order. */
static void closed_loop_completed(void *state, uint64_t id, int64_t now_ns) {
    struct closed_loop *loop = state;
    ASSERT(loop->n_ready < loop->clients);
    uint32_t tail = (uint32_t)(((uint64_t)loop->head + loop->n_ready) % loop->clients);
    loop->ready[tail] = (struct ready){now_ns + loop->think_ns, id + 1};
    loop->n_ready++;
}

static uint64_t closed_loop_follows(const void *state) {
    return ((const struct closed_loop *)state)->follows;
}

/* ---- conversations: independent begins, each with turns ---- */

struct talks {
    double turns, begins_per_s;
    int64_t think_ns;
};

static const struct param talks_params[] = {
    PARAM("turns", PARAM_F64, struct talks, turns, "1", "4", 1, 1e6,
          "mean number of turns, geometrically distributed"),
    PARAM("think_ns", PARAM_I64, struct talks, think_ns, "ns", "10s", 0, 1e15,
          "mean time from a turn's end to the next turn, exponentially distributed"),
};

static int talks_start(void *state, double rate_per_s, struct err *err) {
    (void)err;
    struct talks *talks = state;
    talks->begins_per_s = rate_per_s / talks->turns;
    return 0;
}

static enum source_reply talks_next(void *state, struct rng *rng, int64_t *at_ns) {
    const struct talks *talks = state;
    return add_gap(at_ns, -log(rng_uniform(rng)) / talks->begins_per_s);
}

/* Whether another turn follows, and when. One draw each, whatever the parameters. */
static bool talks_again(void *state, struct rng *rng, int64_t *think_ns) {
    const struct talks *talks = state;
    bool again = rng_uniform(rng) >= 1 / talks->turns;
    *think_ns = llround(-log(rng_uniform(rng)) * (double)talks->think_ns);
    return again;
}

/* ---- the table ---- */

static const struct process processes[] = {
    {.name = "poisson",
     .doc = "independent arrivals at a mean rate",
     .has_rate = true,
     .state_bytes = sizeof(struct poisson),
     .start = poisson_start,
     .next = poisson_next},
    {.name = "gamma",
     .doc = "gamma-distributed gaps: cv above 1 clusters, below 1 spaces out",
     .has_rate = true,
     .params = renewal_params,
     .n_params = COUNT(renewal_params),
     .state_bytes = sizeof(struct renewal),
     .start = gamma_start,
     .next = gamma_next},
    {.name = "weibull",
     .doc = "Weibull-distributed gaps: a heavier tail than gamma at the same cv above 1",
     .has_rate = true,
     .params = renewal_params,
     .n_params = COUNT(renewal_params),
     .state_bytes = sizeof(struct renewal),
     .start = weibull_start,
     .next = weibull_next},
    {.name = "bursts",
     .doc = "Poisson arrivals whose rate alternates between bursts and quiet times",
     .has_rate = true,
     .params = bursts_params,
     .n_params = COUNT(bursts_params),
     .state_bytes = sizeof(struct bursts),
     .start = bursts_start,
     .next = bursts_next},
    {.name = "ramp",
     .doc = "Poisson arrivals whose rate rises steadily, or falls, and then stays",
     .has_rate = true,
     .params = ramp_params,
     .n_params = COUNT(ramp_params),
     .state_bytes = sizeof(struct rise),
     .start = rise_start,
     .next = ramp_next},
    {.name = "stages",
     .doc = "Poisson arrivals whose rate rises in steps, or falls; the last stays",
     .has_rate = true,
     .params = stages_params,
     .n_params = COUNT(stages_params),
     .state_bytes = sizeof(struct rise),
     .start = rise_start,
     .next = stages_next},
    {.name = "all-at-once", .doc = "every request is there at the start", .next = all_at_once_next},
    {.name = "closed-loop",
     .doc = "a number of clients, each sending its next request after its last one's completion",
     .params = closed_loop_params,
     .n_params = COUNT(closed_loop_params),
     .state_bytes = sizeof(struct closed_loop),
     .start = closed_loop_start,
     .stop = closed_loop_stop,
     .next = closed_loop_next,
     .completed = closed_loop_completed,
     .follows = closed_loop_follows},
    {.name = "sessions",
     .doc = "conversations that begin independently; a turn follows some time after the previous "
            "one ended, and its prompt begins with the conversation so far",
     .has_rate = true,
     .params = talks_params,
     .n_params = COUNT(talks_params),
     .state_bytes = sizeof(struct talks),
     .start = talks_start,
     .next = talks_next,
     .again = talks_again},
};

const struct process *process_at(size_t i) {
    return i < COUNT(processes) ? &processes[i] : NULL;
}

const struct process *process_find(const char *name) {
    for (size_t i = 0; i < COUNT(processes); i++) {
        if (strcmp(processes[i].name, name) == 0) {
            return &processes[i];
        }
    }
    return NULL;
}

/* ---- the generator ---- */

struct generator {
    const struct process *process;
    void *state;
    struct rng rng;
    struct arrival_source rows;
    int64_t last_ns;
    /* Of conversations: the one that is going on, what was said in it, and when it goes on. */
    uint64_t n_sessions;
    uint32_t context_tokens;
    uint64_t said_tokens;
    int64_t think_ns;
    bool goes_on;
};

struct generator *generator_open(const struct process *process) {
    struct generator *generator = mem_zeroed(1, sizeof *generator);
    generator->process = process;
    generator->state = mem_zeroed(1, process->state_bytes > 0 ? process->state_bytes : 1);
    param_defaults(process->params, process->n_params, generator->state);
    return generator;
}

void generator_close(struct generator *generator) {
    if (generator != NULL) {
        if (generator->process->stop != NULL) {
            generator->process->stop(generator->state);
        }
        free(generator->state);
        free(generator);
    }
}

const struct process *generator_process(const struct generator *generator) {
    return generator->process;
}

int generator_set(struct generator *generator, const char *place, const char *name,
                  const char *text, struct err *err) {
    const struct process *process = generator->process;
    return param_set(process->params, process->n_params, generator->state, process->name, place,
                     name, text, err);
}

const char *generator_text(const struct generator *generator, const char *name, char *text,
                           size_t size) {
    const struct process *process = generator->process;
    const struct param *param = param_find(process->params, process->n_params, name);
    return param != NULL ? param_text(param, generator->state, text, size) : NULL;
}

const char *generator_doc(const struct generator *generator, const char *name) {
    const struct process *process = generator->process;
    const struct param *param = param_find(process->params, process->n_params, name);
    return param != NULL ? param->doc : NULL;
}

int generator_start(struct generator *generator, double rate_per_s, uint64_t seed,
                    uint32_t context_tokens, struct arrival_source rows, struct err *err) {
    ASSERT(!generator->process->has_rate || rate_per_s > 0);
    generator->context_tokens = context_tokens;
    generator->rng = rng_stream(seed, "arrivals");
    generator->rows = rows;
    const struct process *process = generator->process;
    return process->start != NULL ? process->start(generator->state, rate_per_s, err) : 0;
}

static enum source_reply too_late(const struct process *process, struct err *err) {
    err_usage(err,
              "arrivals by %s reach beyond 146 years: expected fewer requests or a higher rate",
              process->name);
    return SOURCE_BAD;
}

/* The drawn row as the next turn: false where it would not fit after the conversation so far. */
static bool say(struct generator *generator, struct arrival *row) {
    uint32_t answer = row->answer_tokens > 0 ? row->answer_tokens : row->output_tokens;
    uint64_t prompt = generator->said_tokens + row->prompt_tokens;
    uint64_t most = generator->context_tokens > 0 ? generator->context_tokens : UINT32_MAX;
    if (prompt + row->output_tokens > most && generator->said_tokens > 0) {
        return false;
    }
    row->prompt_tokens = (uint32_t)prompt;
    generator->said_tokens = prompt + answer;
    return true;
}

/* A row of a conversation: the next turn of the one that is going on, or another one's first. */
static enum source_reply give_turn(void *state, struct arrival *out, struct err *err) {
    struct generator *generator = state;
    const struct process *process = generator->process;
    enum source_reply reply = generator->rows.next(generator->rows.state, out, err);
    if (reply != SOURCE_ROW) {
        return reply;
    }
    if (!generator->goes_on || !say(generator, out)) {
        generator->n_sessions++;
        generator->said_tokens = 0;
        generator->think_ns = 0;
        process->next(generator->state, &generator->rng, &generator->last_ns);
        (void)say(generator, out);
    }
    if (generator->last_ns >= max_arrival_ns) {
        return too_late(process, err);
    }
    out->session = generator->n_sessions;
    out->arrival_ns = generator->last_ns;
    out->think_ns = generator->think_ns;
    out->prefix_tokens = 0;
    out->shares = out->leaves = 0;
    generator->goes_on = process->again(generator->state, &generator->rng, &generator->think_ns);
    return SOURCE_ROW;
}

static enum source_reply give_row(void *state, struct arrival *out, struct err *err) {
    struct generator *generator = state;
    int64_t at_ns = generator->last_ns;
    /* A row is drawn only when it has a time to go with. */
    enum source_reply reply = generator->process->next(generator->state, &generator->rng, &at_ns);
    if (reply != SOURCE_ROW) {
        return reply;
    }
    if (at_ns >= max_arrival_ns) {
        return too_late(generator->process, err);
    }
    reply = generator->rows.next(generator->rows.state, out, err);
    if (reply == SOURCE_ROW) {
        out->arrival_ns = at_ns;
        out->session = 0; /* whose turn it was when it was logged */
        out->follows =
            generator->process->follows != NULL ? generator->process->follows(generator->state) : 0;
        generator->last_ns = at_ns;
    }
    return reply;
}

static void pass_completion(void *state, uint64_t id, int64_t now_ns) {
    struct generator *generator = state;
    generator->process->completed(generator->state, id, now_ns);
}

struct arrival_source generator_source(struct generator *generator) {
    return (struct arrival_source){
        .state = generator,
        .next = generator->process->again != NULL ? give_turn : give_row,
        .completed = generator->process->completed != NULL ? pass_completion : NULL,
    };
}
