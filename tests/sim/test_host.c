/* Hosts: whose machine a system's host times are of, and what is said of it. */
#include "kernels/rules/draw.h"
#include "sim/decode/process_file.h"
#include "sim/system/host.h"

#include <string.h>

#include "sim/model/ranks.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

static bool warns(const struct system *system, enum warning_code code) {
    struct warnings warnings = {.n = 0};
    system_warn_of_host(system, &warnings);
    for (unsigned i = 0; i < warnings.n; i++) {
        if (warnings.items[i].code == code) {
            return true;
        }
    }
    return false;
}

static double host_ms(const struct system *system) {
    const struct span block = {
        .phase = PHASE_REUSE, .queries = 32, .first_queries = 32, .context = 480, .logit_rows = 32};
    return rig_price(system, &block, (const uint32_t[]){1}, 1).host_ns * 1e-6;
}

/* One step of `full` refreshing and `reuse` reusing requests, of a host that loops over requests.
 */
static struct step_price looped(const char *factor, const char *launches, uint32_t full,
                                uint32_t reuse) {
    const struct span spans[] = {
        {.phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32},
        {.phase = PHASE_REUSE,
         .queries = 32,
         .first_queries = 32,
         .context = 240,
         .logit_rows = 32}};
    const uint32_t counts[] = {full, reuse};
    const char *const settings[] = {"runtime.host_mode=loops",
                                    factor,
                                    launches,
                                    "runtime.host_layer_reuse_ns=0",
                                    "runtime.host_layer_refresh_ns=0",
                                    "runtime.host_reuse_ns=20ms",
                                    "runtime.host_refresh_ns=20ms",
                                    "runtime.host_layer_request_reuse_ns=0",
                                    "runtime.host_layer_request_refresh_ns=0",
                                    "runtime.host_request_reuse_ns=3ms",
                                    "runtime.host_request_refresh_ns=1ms",
                                    "runtime.launches_request_reuse=1000",
                                    "runtime.small_kernel_ns=1000",
                                    NULL};
    struct system *system = rig_system("dllm-serve-published", "h200", false, settings);
    const struct step_price price = rig_price(system, spans, counts, 2);
    system_close(system);
    return price;
}

/* Launches run ahead of the device; the loop's own kernels, 1 ms a reusing request here, run beside
 * the loop, 3 and 1 ms a request. */
TEST(a_host_that_loops_over_requests_waits_for_them_alone) {
    const char *const none = "runtime.launches_layer_request_reuse=0";
    struct step_price few = looped("host.factor=1", none, 0, 2);
    ck_assert_double_lt(few.device_ns - 2e6, 20e6);
    ck_assert_double_eq_tol(few.wall_ns, 20e6 + 2 * 3e6, 1);
    ck_assert_double_eq_tol(few.host_ns, few.wall_ns, 1);
    struct step_price many = looped("host.factor=1", none, 16, 8);
    ck_assert_double_gt(many.device_ns - 8e6, 20e6);
    ck_assert_double_eq_tol(many.wall_ns, many.device_ns - 8e6 + 8 * 3e6 + 16 * 1e6, 1);
    /* A host that takes no time leaves the device's. */
    struct step_price free = looped("host.factor=0", none, 16, 8);
    ck_assert_double_eq_tol(free.wall_ns, many.device_ns, 1);
    /* The longer of the two, request by request of a kind: 1 ms of kernels, 0.6 of the loop. */
    struct step_price quick = looped("host.factor=0.2", none, 16, 8);
    ck_assert_double_eq_tol(quick.wall_ns, many.device_ns - 8e6 + 8 * 1e6 + 16 * 0.2e6, 1);
}

static int count_host(void *state, const struct host *host, const char *doc) {
    int *n = state;
    ck_assert_msg(host->name[0] != '\0' && host->factor >= 0 && doc[0] != '\0', "%s", host->name);
    ck_assert_msg(host->provenance.source[0] != '\0', "%s has no source", host->name);
    ck_assert_msg((host->provenance.kind == PROVENANCE_CALIBRATED) || host->factor == 1,
                  "%s: a factor that nothing was fitted to", host->name);
    (*n)++;
    return 0;
}

TEST(every_host_has_a_factor_a_kind_and_a_source) {
    int n = 0;
    struct err err = {0};
    ck_assert_msg(host_list(count_host, &n, &err) == 0, "%s", err.text);
    ck_assert_int_ge(n, 6);
}

/* What passes between submissions of Dream-7B nobody has measured. */
TEST(what_a_profile_assumes_of_the_host_is_said) {
    const struct system_request request = {
        .system = "dllm-serve", .model = "dream-7b", .gpu = "h100"};
    struct system *measured = rig_system("dllm-serve", "h100", false, NULL), *assumed = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&request, &assumed, &err) == 0, "%s", err.text);
    ck_assert_str_eq(system_host(measured).provenance.source, "the profile's host rows");
    ck_assert_ptr_nonnull(strstr(system_host(assumed).provenance.source, "submissions is assumed"));
    ck_assert_double_gt(measured->runtime.between_ns, 0);
    ck_assert_double_gt(assumed->runtime.between_ns, 0);
    system_close(measured);
    system_close(assumed);
}

/* It fell back to the reference host in silence, and turned the paper's ranking round. */
TEST(a_published_system_keeps_its_papers_host_on_another_gpu_and_says_so) {
    struct system *there = rig_system("dllm-serve-published", "l40s", false, NULL);
    struct system *elsewhere = rig_system("dllm-serve-published", "a100-80g", false, NULL);
    ck_assert_str_eq(system_host(there).name, "dllm-serve-l40s");
    ck_assert_str_eq(system_host(elsewhere).name, "dllm-serve-l40s");
    ck_assert_double_eq(system_host(elsewhere).factor, system_host(there).factor);
    ck_assert_double_eq_tol(host_ms(elsewhere), host_ms(there), 1e-9);
    ck_assert_int_eq(system_host(elsewhere).provenance.kind, PROVENANCE_CALIBRATED);
    ck_assert(!warns(there, WARNING_HOST_FOREIGN));
    ck_assert(warns(elsewhere, WARNING_HOST_FOREIGN));
    ck_assert(!warns(elsewhere, WARNING_HOST_ASSUMED));
    system_close(there);
    system_close(elsewhere);
}

TEST(on_the_gpu_of_the_reference_runs_it_has_the_host_it_was_timed_on) {
    struct system *system = rig_system("dllm-serve-published", "h200", false, NULL);
    ck_assert_str_eq(system_host(system).name, "reference");
    ck_assert_int_eq(system_host(system).provenance.kind, PROVENANCE_MEASURED);
    ck_assert(!warns(system, WARNING_HOST_FOREIGN) && !warns(system, WARNING_HOST_ASSUMED));
    ck_assert_double_eq_tol(host_ms(system), 25.8064 + 7.19168, 1e-9);
    system_close(system);
}

TEST(a_factor_of_ones_own_scales_host_times_and_is_assumed) {
    static const char *const twice[] = {"host.factor=2", NULL};
    static const char *const other[] = {"host=default", NULL};
    static const char *const same[] = {"host.factor=1", NULL};
    struct system *system = rig_system("dllm-serve-published", "h200", false, twice);
    ck_assert_double_eq_tol(host_ms(system), 2 * (25.8064 + 7.19168), 1e-9);
    ck_assert_double_eq(system_host(system).factor, 2);
    ck_assert_int_eq(system_host(system).provenance.kind, PROVENANCE_ASSUMED);
    ck_assert(warns(system, WARNING_HOST_ASSUMED));
    system_close(system);
    system = rig_system("dllm-serve-published", "l40s", false, other);
    ck_assert_str_eq(system_host(system).name, "default");
    ck_assert_int_eq(system_host(system).provenance.kind, PROVENANCE_ASSUMED);
    ck_assert_uint_eq(system->n_calibrated, 0);
    system_close(system);
    /* The host's own factor, said again, changes nothing. */
    system = rig_system("dllm-serve-published", "h200", false, same);
    ck_assert_int_eq(system_host(system).provenance.kind, PROVENANCE_MEASURED);
    system_close(system);
}

TEST(host_terms_of_another_model_are_transferred) {
    static const char *const settings[] = {"host=reference", NULL};
    struct system *system = rig_system("fast-dllm-moe-published", "h200", false, settings);
    ck_assert_int_eq(system_host(system).provenance.kind, PROVENANCE_TRANSFERRED);
    system_close(system);
}

TEST(an_unknown_host_is_refused_with_the_nearest) {
    struct setting wrong = {.key = "host", .value = "referense", .place = "--host"};
    struct system_request request = {
        .system = "dllm-serve", .gpu = "l40s", .overrides = &wrong, .n_overrides = 1};
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_int_eq(system_open(&request, &system, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "'reference'"));
}

/* A mixture of 16 layers carried what LLaDA-8B's 32 take. */
TEST(host_times_and_launches_are_a_steps_and_each_layers) {
    static const char *const half[] = {"layers=16", NULL};
    struct system *whole = rig_system("fast-dllm-published", "h200", false, NULL);
    struct system *cut = rig_system("fast-dllm-published", "h200", false, half);
    const struct runtime *r = &whole->runtime;
    ck_assert_double_eq_tol(host_ms(whole), 26.0, 1e-9);
    ck_assert_double_eq_tol(host_ms(whole) - host_ms(cut), 16 * r->host_layer_ns[HOST_REUSE] * 1e-6,
                            1e-9);
    ck_assert_double_eq_tol(r->launches_step[HOST_REUSE] + 32 * r->launches_layer[HOST_REUSE], 1994,
                            1e-9);
    system_close(whole);
    system_close(cut);
}

/* wall = max(trunk, host) + head + look: a trunk that the host launches is hidden behind it, the
 * head and the look at the logits are not. */
TEST(launched_by_layers_the_head_and_the_look_come_behind_the_host) {
    static const char *const none[] = {"host.factor=0", NULL};
    static const char *const much[] = {"host.factor=100", NULL};
    const struct span block = {
        .phase = PHASE_REUSE, .queries = 64, .first_queries = 64, .context = 480, .logit_rows = 64};
    struct system *fast = rig_system("fast-dllm-moe-published", "h800", false, none);
    struct system *slow = rig_system("fast-dllm-moe-published", "h800", false, much);
    struct step_shape shape;
    struct step_price without, with;
    struct op_price ops[GRAPH_MAX_OPS];
    shape_clear(&shape);
    shape_add(shape.sym, &block, 1);
    cost_price(fast->cost, &shape, fast->chunks.bound, &without);
    cost_price(slow->cost, &shape, slow->chunks.bound, &with);
    cost_explain(slow->cost, &shape, slow->chunks.bound, ops);
    double head_ns = 0;
    for (uint32_t i = 0; i < slow->graph.n_ops; i++) {
        head_ns += slow->graph.ops[i].rows == SYM_LOGIT_ROWS ? ops[i].ns : 0;
    }
    ck_assert_double_eq_tol(without.wall_ns, without.device_ns, 1);
    ck_assert_double_eq_tol(with.wall_ns, with.host_ns + head_ns, 1e-6 * with.wall_ns);
    ck_assert_double_gt(head_ns, 0);
    ck_assert_double_lt(head_ns, with.device_ns);
    system_close(fast);
    system_close(slow);
}

TEST(ranks_of_dinfer_have_the_whole_head_each) {
    static const char *const divided[] = {"runtime.whole_head=off", NULL};
    struct system *whole = rig_system("dinfer-published", "h800", false, NULL);
    struct system *share = rig_system("dinfer-published", "h800", false, divided);
    ck_assert_uint_eq(whole->settings.tensor_parallel, 4);
    ck_assert_uint_eq(whole->model->vocab, 4 * share->model->vocab);
    ck_assert_uint_eq(model_whole_vocab(whole->model), model_whole_vocab(share->model));
    ck_assert_uint_eq(whole->model->heads, share->model->heads);
    system_close(whole);
    system_close(share);
}

/* How many gatherings a system's head has, and the bytes that a rank sends of a row in them. */
static uint32_t gatherings(const char *const *settings, int64_t *bytes) {
    struct system *system = rig_system("fast-dllm", "h100", true, settings);
    const struct graph *graph = &system->graph;
    uint32_t n = 0;
    *bytes = 0;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        if (graph->ops[op].kind == OP_ALL_GATHER) {
            *bytes += graph->tensors[graph->ops[op].in[0]].bytes.per;
            n++;
        }
    }
    system_close(system);
    return n;
}

/* Candidates of each rank and their logits; of a draw the columns' masses and the token, and in a
 * search a byte of a bf16 logit after another, by top_k and by top_p, and what that leaves. */
TEST(ranks_exchange_sums_of_a_draw_and_no_logits) {
    static const char *const greedy[] = {"runtime.fused_head=off", "tensor_parallel=2", NULL},
                             *const drawn[] = {"runtime.fused_head=off", "tensor_parallel=2",
                                               "sampling=on", NULL},
                             *const cut[] = {"runtime.fused_head=off", "tensor_parallel=2",
                                             "sampling=on", "top_p=0.9", NULL},
                             *const alone[] = {"runtime.fused_head=off", "sampling=on", NULL};
    const int64_t candidate = 3 * F32_BYTES, sums = sizeof(struct draw_sums),
                  bins = sizeof(struct draw_bins), found = sizeof(struct draw_found);
    int64_t bytes;
    ck_assert_uint_eq(gatherings(alone, &bytes), 0);
    ck_assert_uint_eq(gatherings(greedy, &bytes), 1);
    ck_assert_int_eq(bytes, candidate);
    ck_assert_uint_eq(gatherings(drawn, &bytes), 3);
    ck_assert_int_eq(bytes, candidate + sums + found);
    ck_assert_uint_eq(gatherings(cut, &bytes), 8);
    ck_assert_int_eq(bytes, candidate + 2 * sums + 4 * bins + found);
}

/* Fast-dLLM commits 2.28 tokens a pass on GSM8K without a cache and 2.09 with one: what a stale
 * cache takes is taken of systems with one alone. */
TEST(a_cache_makes_the_model_less_sure_and_no_cache_does_not) {
    static const char *const process[] = {"confidence=llada-moe/gsm8k", NULL};
    struct system *cached = rig_system("dinfer-published", "h800", false, process);
    struct system *none = rig_system("dinfer-no-kv-published", "h800", false, process);
    struct decode_process as_read;
    struct err err = {0};
    ck_assert_int_eq(decode_process_find("llada-moe/gsm8k", &as_read, &err), 0);
    ck_assert_double_eq(none->process.location, as_read.location);
    ck_assert_double_lt(cached->process.location, as_read.location);
    ck_assert_double_eq(cached->process.location,
                        as_read.location - cached->settings.confidence_drop);
    system_close(cached);
    system_close(none);
}

/* The wait of a step that evicts is a calibrated constant like the others, listed where it acts. */
TEST(the_wait_of_an_eviction_is_a_calibrated_constant) {
    struct system *evicts = rig_system("focus", "a100-80g", false, NULL);
    struct system *keeps = rig_system("lmdeploy", "a100-80g", false, NULL);
    ck_assert_uint_eq(evicts->n_calibrated, 1);
    ck_assert_str_eq(evicts->calibrated[0].name, "evict_ns");
    ck_assert_double_eq(evicts->settings.evict_wait_ns, evicts->calibrated[0].value);
    ck_assert_double_gt(evicts->settings.evict_wait_ns, 0);
    ck_assert_uint_eq(keeps->n_calibrated, 0);
    system_close(evicts);
    system_close(keeps);
}

/* Of all terms of a runtime each alone is one. */
TEST(a_runtime_has_host_terms_and_launches_where_any_of_them_is_something) {
    static const struct {
        size_t at, n;
        const char *fact;
    } terms[] = {
#define TERMS(field, n, fact) {offsetof(struct runtime, field), n, fact}
        TERMS(host_look_ns, 1, "host_terms"),
        TERMS(host_sync_layer_ns, 1, "host_terms"),
        TERMS(host_step_ns, HOST_KIND_COUNT, "host_terms"),
        TERMS(host_request_ns, HOST_KIND_COUNT, "host_terms"),
        TERMS(host_layer_ns, HOST_KIND_COUNT, "host_terms"),
        TERMS(host_layer_request_ns, HOST_KIND_COUNT, "host_terms"),
        TERMS(host_sync_ns, HOST_KIND_COUNT, "host_terms"),
        TERMS(launches_step, HOST_KIND_COUNT, "launches"),
        TERMS(launches_request, HOST_KIND_COUNT, "launches"),
        TERMS(launches_layer, HOST_KIND_COUNT, "launches"),
        TERMS(launches_layer_request, HOST_KIND_COUNT, "launches"),
    };
    enum { N_TERMS = sizeof terms / sizeof terms[0] };
    struct system *system = rig_system("dllm-serve", "l40s", true, NULL);
    for (size_t t = 0; t < N_TERMS; t++) {
        memset((char *)&system->runtime + terms[t].at, 0, terms[t].n * sizeof(double));
    }
    for (size_t t = 0; t < N_TERMS; t++) {
        for (size_t i = 0; i < terms[t].n; i++) {
            char text[FACT_CHARS];
            double *term = (double *)((char *)&system->runtime + terms[t].at) + i;
            ck_assert_str_eq(system_fact(system, terms[t].fact, text), "off");
            *term = 2;
            ck_assert_str_eq(system_fact(system, terms[t].fact, text), "on");
            *term = 0;
        }
    }
    system_close(system);
}

SUITE("host")
