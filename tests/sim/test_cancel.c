/* Cancellation: a request that is taken out leaves at the next step, gives back what it held, and
 * changes nothing of who comes after it but the room that it leaves. */
#include "tests/support/rig.h"
#include "tests/support/says.h"

enum { MOST = 200 };

/* Arrivals of a list, of which a client's word comes while steps run. */
struct live_source {
    struct list_source list;
    const struct executor_sim *sim;
    const int64_t *leaves_ns; /* [n] by id; 0: it stays */
    int64_t now_ns;
    uint64_t told[MOST];
    size_t n_told;
};

static enum source_reply live_next(void *state, struct arrival *out, struct err *err) {
    return list_next(&((struct live_source *)state)->list, out, err);
}

static bool live_cancelled(void *state, uint64_t *id) {
    struct live_source *live = state;
    for (uint64_t i = 0; i < live->list.n; i++) {
        bool is_told = false;
        for (size_t k = 0; k < live->n_told; k++) {
            is_told = is_told || live->told[k] == i;
        }
        if (!is_told && live->leaves_ns[i] > 0 && live->leaves_ns[i] <= live->now_ns) {
            live->told[live->n_told++] = i;
            *id = i;
            return true;
        }
    }
    return false;
}

/* A clock that ticks, so that the source's word comes at its time. */
struct ticking {
    struct executor inner;
    struct live_source *live;
};

static int ticking_submit(void *state, const struct submission *submission, struct err *err) {
    struct ticking *ticking = state;
    return ticking->inner.submit(ticking->inner.state, submission, err);
}

static int ticking_wait(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct ticking *ticking = state;
    struct live_source *live = ticking->live;
    for (size_t i = 0; i < live->list.n; i++) {
        const int64_t at = live->leaves_ns[i];
        until_ns = at > live->now_ns && at < until_ns ? at : until_ns;
    }
    int status = ticking->inner.wait(ticking->inner.state, until_ns, out, err);
    live->now_ns = out->time_ns;
    return status;
}

static int64_t ticking_step_ns(const void *state, uint32_t replica) {
    const struct ticking *ticking = state;
    return ticking->inner.step_ns(ticking->inner.state, replica);
}

static void ticking_cut(void *state, uint32_t replica, int64_t now_ns) {
    struct ticking *ticking = state;
    ticking->inner.cut(ticking->inner.state, replica, now_ns);
}

static int64_t ticking_estimate(const void *state, uint32_t replica, const struct step_shape *shape,
                                int64_t workspace_bytes, double *joules) {
    const struct ticking *ticking = state;
    return ticking->inner.estimate_ns(ticking->inner.state, replica, shape, workspace_bytes,
                                      joules);
}

static size_t draw(struct arrival *arrivals, int64_t *leaves_ns, size_t n, uint64_t seed) {
    struct rng rng = rng_stream(seed, "cancel");
    int64_t now_ns = 0;
    for (size_t i = 0; i < n; i++) {
        now_ns += (int64_t)(-log(rng_uniform(&rng)) * 4e8);
        arrivals[i] = MAKE(struct arrival, .arrival_ns = now_ns, .id = i,
                           .prompt_tokens = rig_between(&rng, 10, 700),
                           .output_tokens = rig_between(&rng, 8, 300));
        leaves_ns[i] =
            rng_next(&rng) % 3 == 0 ? now_ns + 1 + (int64_t)(rng_uniform(&rng) * 6e9) : 0;
    }
    return n;
}

static struct loop_result run(struct system *system, struct arrival *arrivals, size_t n,
                              const int64_t *leaves_ns, bool is_live, struct keeper *keeper) {
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    struct live_source live = {.list = {arrivals, n, 0}, .leaves_ns = leaves_ns};
    struct ticking ticking = {executor_sim_interface(sim), &live};
    for (size_t i = 0; i < n; i++) {
        arrivals[i].cancel_ns = is_live ? 0 : leaves_ns[i];
    }
    struct executor around = ticking.inner;
    around.state = &ticking;
    around.submit = ticking_submit;
    around.wait = ticking_wait;
    around.estimate_ns = ticking_estimate;
    around.step_ns = around.step_ns != NULL ? ticking_step_ns : NULL;
    around.cut = around.cut != NULL ? ticking_cut : NULL;
    const struct sink sink = keeper_sink(keeper);
    const struct loop_request request =
        MAKE(struct loop_request, .system = system,
             .executor = is_live ? around : executor_sim_interface(sim),
             .source = MAKE(struct arrival_source, .state = &live, .next = live_next,
                            .cancelled = is_live ? live_cancelled : NULL),
             .sinks = &sink, .n_sinks = 1, .records_members = true, .seed = 3);
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    executor_sim_close(sim);
    return result;
}

static const struct {
    const char *system, *settings[5];
} kinds[] = {
    {"dllm-serve", {NULL}},
    {"dllm-serve", {"skip_ahead=off", NULL}},
    {"dllm-serve", {"replicas=3", NULL}},
    {"fast-dllm", {NULL}},
    {"sdar", {"early_stop=block", NULL}},
    {"focus", {NULL}},
    {"vllm-ar", {NULL}},
    {"vllm-ar", {"replicas=2", "prefix_caching=on", NULL}},
    {"dllm-cache-published", {NULL}},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

TEST(a_cancelled_request_leaves_at_the_end_of_its_step) {
    for (size_t j = 0; j < 2 * N_KINDS; j++) {
        const size_t k = j / 2;
        struct arrival arrivals[MOST];
        int64_t leaves_ns[MOST];
        struct keeper keeper = {0};
        struct system *system = rig_system(kinds[k].system, "l40s", true, kinds[k].settings);
        const size_t n = draw(arrivals, leaves_ns, 60, 5 + (uint64_t)k);
        struct loop_result result = run(system, arrivals, n, leaves_ns, j % 2 == 1, &keeper);
        uint32_t n_cancelled = 0;
        ck_assert_uint_eq(keeper.n_requests, n);
        for (size_t i = 0; i < n; i++) {
            const struct request_record *r = &keeper.requests[i];
            if (r->reason != REJECT_CANCELLED) {
                ck_assert(leaves_ns[r->id] == 0 || r->finished_ns <= leaves_ns[r->id] ||
                          r->state == REQUEST_DONE);
                continue;
            }
            n_cancelled++;
            ck_assert_int_ge(r->finished_ns, leaves_ns[r->id]);
            /* It was in no step that began after its time, and left when the one under way ended.
             */
            int64_t end_ns = leaves_ns[r->id];
            for (size_t s = 0; s < keeper.n_steps; s++) {
                const struct kept_step *step = &keeper.steps[s];
                for (uint32_t m = 0; m < step->record.n && m < 64; m++) {
                    if (step->ids[m] == r->id) {
                        ck_assert_int_lt(step->record.start_ns, r->finished_ns);
                        end_ns = step->record.end_ns > end_ns ? step->record.end_ns : end_ns;
                        const int64_t wall_ns = step->record.end_ns - step->record.start_ns;
                        ck_assert_int_lt(step->record.end_ns - wall_ns / step->record.repeat,
                                         leaves_ns[r->id] + 1);
                    }
                }
            }
            ck_assert_int_eq(r->finished_ns, end_ns);
        }
        ck_assert_uint_gt(n_cancelled, 3);
        ck_assert_uint_eq(result.rejected, n_cancelled);
        keeper_fini(&keeper);
        system_close(system);
    }
}

/* Steps one by one, as submissions of several may be cut otherwise. */
static size_t unfold(const struct keeper *keeper, int64_t *out, size_t room) {
    size_t n = 0;
    for (size_t s = 0; s < keeper->n_steps; s++) {
        const struct step_record *r = &keeper->steps[s].record;
        const int64_t step_ns = (r->end_ns - r->start_ns) / r->repeat;
        for (uint32_t k = 0; k < r->repeat && n + 3 <= room; k++) {
            out[n++] = r->start_ns + k * step_ns;
            out[n++] = r->n;
            out[n++] = r->n > 0 ? (int64_t)keeper->steps[s].ids[0] : -1;
        }
    }
    return n;
}

TEST(words_that_come_while_steps_run_give_the_steps_of_the_same_words_on_record) {
    for (size_t k = 0; k < N_KINDS; k++) {
        enum { ROOM = 60000 };
        static int64_t a[ROOM], b[ROOM];
        struct arrival arrivals[MOST];
        int64_t leaves_ns[MOST];
        struct keeper live = {0}, filed = {0};
        struct system *system = rig_system(kinds[k].system, "l40s", true, kinds[k].settings);
        const size_t n = draw(arrivals, leaves_ns, 40, 50 + (uint64_t)k);
        run(system, arrivals, n, leaves_ns, true, &live);
        /* What is on record is when each left. */
        memset(leaves_ns, 0, sizeof leaves_ns);
        for (size_t i = 0; i < live.n_requests; i++) {
            const struct request_record *r = &live.requests[i];
            leaves_ns[r->id] = r->reason == REJECT_CANCELLED ? r->finished_ns : 0;
        }
        run(system, arrivals, n, leaves_ns, false, &filed);
        const size_t n_a = unfold(&live, a, ROOM), n_b = unfold(&filed, b, ROOM);
        ck_assert_uint_eq(n_a, n_b);
        ck_assert_uint_gt(n_a, 100);
        ck_assert_mem_eq(a, b, n_a * sizeof *a);
        ck_assert_uint_eq(live.n_requests, filed.n_requests);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_eq(live.requests[i].id, filed.requests[i].id);
            ck_assert_int_eq(live.requests[i].finished_ns, filed.requests[i].finished_ns);
        }
        keeper_fini(&live);
        keeper_fini(&filed);
        system_close(system);
    }
}

SUITE("cancel")
