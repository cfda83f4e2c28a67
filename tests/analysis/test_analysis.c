/* Summaries, the JSON object, timelines and paper tables, on hand-made records. */
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "analysis/caution.h"
#include "analysis/offered.h"
#include "analysis/paper/paper.h"
#include "analysis/plot/timeline.h"
#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "sim/base/output.h"
#include "tests/support/records.h"

static void feed_steps(struct summary *summary) {
    struct sink sink = summary_sink(summary);
    struct err err = {0};
    int64_t sym[SYM_COUNT] = {[SYM_TOKENS] = 264};
    struct step_record refresh = {
        .repeat = 1, .end_ns = second, .gpu_ns = second / 2, .sym = sym, .n = 2, .n_running = 2};
    refresh.n_by_phase[PHASE_REFRESH] = 2;
    refresh.kv_used_bytes = 4096;
    int64_t few[SYM_COUNT] = {[SYM_TOKENS] = 64};
    struct step_record reuse = {
        .index = 1, .repeat = 31, .gpu_ns = second / 62, .sym = few, .n = 2};
    reuse.n_by_phase[PHASE_REUSE] = 2;
    reuse.n_waiting = 3;
    struct step_record mixed = {.index = 2, .repeat = 4, .sym = few, .n = 2, .replica = 1};
    mixed.n_by_phase[PHASE_REUSE] = 1;
    mixed.n_by_phase[PHASE_COMMIT] = 1;
    ck_assert_int_eq(sink.step(sink.state, &refresh, &err), 0);
    ck_assert_int_eq(sink.step(sink.state, &reuse, &err), 0);
    ck_assert_int_eq(sink.step(sink.state, &mixed, &err), 0);
}

TEST(the_distribution_of_one_to_hundred_has_its_closed_form) {
    double values[100];
    for (int i = 0; i < 100; i++) {
        values[i] = (double)((i * 37) % 100) + 1; /* a permutation of 1..100 */
    }
    struct distribution d = distribution_of(values, 100);
    ck_assert_uint_eq(d.n, 100);
    ck_assert_double_eq_tol(d.mean, 50.5, 1e-12);
    ck_assert_double_eq_tol(d.p50, 50.5, 1e-12);
    ck_assert_double_eq_tol(d.p90, 1 + 0.90 * 99, 1e-12);
    ck_assert_double_eq_tol(d.p95, 1 + 0.95 * 99, 1e-12);
    ck_assert_double_eq_tol(d.p99, 1 + 0.99 * 99, 1e-12);
    ck_assert_double_eq_tol(d.std, sqrt(100.0 * 101 / 12), 1e-12); /* n (n + 1) / 12 */
    ck_assert_double_eq(d.min, 1);
    ck_assert_double_eq(d.max, 100);
}

TEST(one_value_is_all_its_quantiles_and_none_is_zero) {
    double value = 3;
    struct distribution d = distribution_of(&value, 1);
    ck_assert(d.mean == 3 && d.p50 == 3 && d.p99 == 3 && d.std == 0 && d.min == 3 && d.max == 3);
    d = distribution_of(NULL, 0);
    ck_assert(d.n == 0 && d.mean == 0);
}

TEST(latency_and_its_parts_follow_their_definitions) {
    struct summary s;
    summary_init(&s, NULL);
    const struct request_record records[] = {done(0, 10, 11, 14, 18), done(1, 12, 15, 17, 30)};
    feed(&s, records, 2);
    summary_finish(&s);
    ck_assert_double_eq_tol(s.latency.mean, (8 + 18) / 2.0, 1e-12);
    ck_assert_double_eq_tol(s.queue.mean, (1 + 3) / 2.0, 1e-12);
    ck_assert_double_eq_tol(s.ttfb.mean, (4 + 5) / 2.0, 1e-12);
    ck_assert_double_eq_tol(s.tpot.mean, (4 / 32.0 + 13 / 32.0) / 2, 1e-12);
    ck_assert_double_eq_tol(s.makespan_s, 20, 1e-12); /* from the first arrival */
    ck_assert_double_eq_tol(s.throughput_tok_s, 128 / 20.0, 1e-12);
    ck_assert_double_eq_tol(s.throughput_req_s, 2 / 20.0, 1e-12);
    summary_fini(&s);
}

TEST(a_request_of_one_block_has_no_time_per_token) {
    struct summary s;
    summary_init(&s, NULL);
    struct request_record record = done(0, 0, 0, 2, 2);
    record.output_tokens = record.first_block_tokens = 32;
    record.answer_tokens = record.committed_tokens = 32;
    feed(&s, &record, 1);
    summary_finish(&s);
    ck_assert_uint_eq(s.tpot.n, 0);
    ck_assert_uint_eq(s.ttfb.n, 1);
    summary_fini(&s);
}

TEST(rejected_requests_are_counted_by_reason_and_add_no_tokens) {
    struct summary s;
    summary_init(&s, NULL);
    struct request_record records[] = {done(0, 0, 0, 1, 2), done(1, 1, -1, -1, 50)};
    records[1].state = REQUEST_REJECTED;
    records[1].reason = REJECT_KV;
    feed(&s, records, 2);
    summary_finish(&s);
    ck_assert_uint_eq(s.requests, 2);
    ck_assert_uint_eq(s.completed, 1);
    ck_assert_uint_eq(s.rejected, 1);
    ck_assert_uint_eq(s.rejected_by_reason[REJECT_KV], 1);
    ck_assert_uint_eq(s.tokens_committed, 64);
    ck_assert_double_eq_tol(s.makespan_s, 2, 1e-12);
    summary_fini(&s);
}

TEST(goodput_counts_requests_within_every_bound) {
    const struct slo slo = {.latency_ns = 20 * second, .ttfb_ns = 4500000000, .tpot_ns = 0};
    struct summary s;
    summary_init(&s, &slo);
    const struct request_record records[] = {done(0, 0, 0, 4, 10),  /* within both */
                                             done(1, 0, 0, 5, 10),  /* its first block is late */
                                             done(2, 0, 0, 4, 21)}; /* it ends late */
    feed(&s, records, 3);
    summary_finish(&s);
    ck_assert_uint_eq(s.met_slo, 1);
    ck_assert_double_eq_tol(s.goodput_req_s, 1 / 21.0, 1e-12);
    summary_fini(&s);
}

/* A missing figure passes no gate: where no answer goes beyond its first block nobody has a time
 * per token, and an objective of it is not met, whatever else is. */
TEST(an_objective_that_no_request_has_a_figure_for_is_not_met) {
    for (int has = 0; has < 2; has++) {
        struct summary s;
        summary_init(&s, &(struct slo){.latency_ns = 20 * second, .tpot_ns = 20 * second});
        struct request_record records[] = {done(0, 0, 0, 4, 10), done(1, 0, 0, 4, 10)};
        records[0].first_block_tokens = records[0].answer_tokens;
        records[1].first_block_tokens = has == 0 ? records[1].answer_tokens : 1;
        feed(&s, records, 2);
        summary_finish(&s);
        ck_assert_uint_eq(s.met_slo, has == 0 ? 0 : 2);
        ck_assert_double_eq(s.attainment, has == 0 ? 0 : 1);
        ck_assert(has == 0 ? s.goodput_req_s == 0 : s.goodput_req_s == s.throughput_req_s);
        struct run_facts facts = run_facts_unknown();
        struct warnings warnings = caution_of(&s, &facts);
        ck_assert_uint_eq(warnings.n, has == 0);
        ck_assert(has == 1 || warnings.items[0].code == WARNING_OBJECTIVE_UNMEASURED);
        summary_fini(&s);
    }
}

/* Latencies of 10 and 30 s: four times their mean is 80 s. */
TEST(a_request_that_pauses_for_far_longer_than_others_take_is_named) {
    static const struct {
        int64_t pause_s;
        uint32_t state;
        bool is_named;
    } cases[] = {{0, REQUEST_DONE, false},
                 {80, REQUEST_DONE, false},
                 {81, REQUEST_DONE, true},
                 {81, REQUEST_REJECTED, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct summary s;
        struct request_record records[] = {done(4, 0, 0, 4, 10), done(5, 0, 0, 4, 30),
                                           done(7, 0, 0, 4, 20)};
        summary_init(&s, NULL);
        records[0].pause_ns = second;
        records[2].pause_ns = cases[i].pause_s * second;
        records[2].state = cases[i].state;
        records[2].reason = REJECT_SHUTDOWN;
        feed(&s, records, 3);
        summary_finish(&s);
        ck_assert_double_eq_tol(s.latency.mean, 20, 1e-12);
        ck_assert_double_eq_tol(
            s.pause.max, cases[i].state == REQUEST_DONE && i > 0 ? (double)cases[i].pause_s : 1,
            1e-12);
        struct run_facts facts = run_facts_unknown();
        const struct warnings warnings = caution_of(&s, &facts);
        unsigned at = 0;
        while (at < warnings.n && warnings.items[at].code != WARNING_STARVED) {
            at++;
        }
        ck_assert_int_eq(at < warnings.n, cases[i].is_named);
        if (cases[i].is_named) {
            ck_assert_str_eq(warnings.items[at].text,
                             "request 7 took no step for 81 s after it had begun, 4.05 times the "
                             "mean latency (20 s)");
        }
        summary_fini(&s);
    }
}

TEST(a_rate_is_met_within_half_a_per_cent_or_the_offered_one_is_shown) {
    char text[RATE_CHARS];
    ck_assert_str_eq(rate_text(1, 1.004, text), "1 req/s");
    ck_assert_str_eq(rate_text(1, 0.9448, text), "0.9448 req/s (1 asked for)");
    ck_assert_str_eq(rate_text(0.5, 0, text), "0.5 req/s asked for");
    ck_assert_str_eq(rate_text(0, 0.3, text), "");
    ck_assert(rate_is_met(2, 2.0099) && rate_is_met(2, 1.9901));
    ck_assert(!rate_is_met(2, 2.011) && !rate_is_met(2, 1.989));
    double rate = 0;
    struct err err = {.kind = ERR_NONE};
    ck_assert(rate_read("--rate", NULL, &rate, &err) == 0 && rate == 0);
    ck_assert(rate_read("--rate", "0.25", &rate, &err) == 0 && rate == 0.25);
    static const char *const bad[] = {"inf", "Infinity", "+INF", "0", "-1", "nan", "fast"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (struct err){.kind = ERR_NONE};
        ck_assert_int_eq(rate_read("--rate", bad[i], &rate, &err), ERR_USAGE);
        ck_assert((strstr(err.text, "all-at-once") != NULL) == (i < 3));
    }
}

TEST(who_was_rejected_missed_the_objective) {
    struct summary s;
    summary_init(&s, &(struct slo){.latency_ns = 20 * second});
    struct request_record records[] = {done(0, 0, 0, 4, 10), done(1, 0, 0, 5, 10),
                                       done(2, 0, -1, -1, 0), done(3, 0, -1, -1, 0)};
    records[2].state = records[3].state = REQUEST_REJECTED;
    records[2].reason = records[3].reason = REJECT_TOKENS;
    feed(&s, records, 4);
    summary_finish(&s);
    ck_assert_uint_eq(s.met_slo, 2);
    ck_assert_double_eq_tol(s.attainment, 0.5, 1e-12);
    struct run_facts facts = run_facts_unknown();
    struct warnings warnings = caution_of(&s, &facts);
    ck_assert_uint_eq(warnings.n, 1);
    ck_assert_int_eq(warnings.items[0].code, WARNING_REJECTED);
    ck_assert_double_eq_tol(warnings.items[0].value, 0.5, 1e-12);
    summary_fini(&s);
}

/* One request a second for 400 s; each takes `service_s` of the one server. */
static struct summary queue_of(double service_s) {
    struct summary s;
    double free_at = 0;
    summary_init(&s, NULL);
    for (int i = 0; i < 400; i++) {
        double start = fmax(free_at, i);
        free_at = start + service_s;
        struct request_record record = done((uint64_t)i, i, start, free_at, free_at);
        feed(&s, &record, 1);
    }
    summary_finish(&s);
    return s;
}

TEST(a_run_that_falls_behind_its_arrivals_says_so) {
    struct run_facts facts = run_facts_unknown();
    struct summary high = queue_of(1.25), low = queue_of(0.8);
    struct warnings warnings = caution_of(&high, &facts);
    ck_assert_uint_eq(warnings.n, 1);
    ck_assert_int_eq(warnings.items[0].code, WARNING_SATURATED);
    ck_assert_double_eq_tol(warnings.items[0].value, 0.8, 0.01);
    ck_assert_uint_eq(caution_of(&low, &facts).n, 0);
    struct err err = {0};
    json_t *object;
    ck_assert_int_eq(summary_json(&high, &facts, &object, &err), 0);
    json_t *offered = json_object_get(object, "offered");
    ck_assert_double_eq_tol(json_number_value(json_object_get(offered, "rate_req_s")), 1, 1e-9);
    ck_assert_double_eq_tol(json_number_value(json_object_get(offered, "served_req_s")), 0.8, 0.01);
    ck_assert(caution_has(object, WARNING_SATURATED) && !caution_has(object, WARNING_REJECTED));
    struct warnings again = caution_read(object);
    ck_assert_uint_eq(again.n, 1);
    ck_assert_str_eq(again.items[0].text, warnings.items[0].text);
    json_decref(object);
    summary_fini(&high);
    summary_fini(&low);
}

TEST(decisions_warn_unless_they_were_calibrated_or_not_drawn) {
    struct summary s;
    summary_init(&s, NULL);
    summary_finish(&s);
    struct run_facts facts = run_facts_unknown();
    facts.decisions = (struct run_decisions){
        .drawn = true, .process = "p", .from = provenance_of(PROVENANCE_ASSUMED, "somebody")};
    struct warnings warnings = caution_of(&s, &facts);
    ck_assert_uint_eq(warnings.n, 1);
    ck_assert_int_eq(warnings.items[0].code, WARNING_DECISIONS_ASSUMED);
    facts.decisions.from.kind = PROVENANCE_TRANSFERRED;
    ck_assert_uint_eq(caution_of(&s, &facts).n, 1);
    facts.decisions.from.kind = PROVENANCE_CALIBRATED;
    ck_assert_uint_eq(caution_of(&s, &facts).n, 0);
    facts.decisions = (struct run_decisions){.from = provenance_of(PROVENANCE_ASSUMED, "")};
    ck_assert_uint_eq(caution_of(&s, &facts).n, 0);
}

TEST(a_run_that_was_cut_short_says_so) {
    struct summary s;
    summary_init(&s, NULL);
    struct request_record records[] = {done(0, 0, 0, 4, 10), done(1, 0, -1, -1, 10)};
    records[1].state = REQUEST_REJECTED;
    records[1].reason = REJECT_SHUTDOWN;
    feed(&s, records, 2);
    summary_finish(&s);
    struct run_facts facts = run_facts_unknown();
    struct warnings warnings = caution_of(&s, &facts);
    ck_assert_uint_eq(warnings.n, 2);
    ck_assert_int_eq(warnings.items[1].code, WARNING_INCOMPLETE);
    summary_fini(&s);
}

TEST(a_step_with_repeat_k_counts_k_times) {
    struct summary s;
    summary_init(&s, NULL);
    const struct request_record records[] = {done(0, 0, 0, 1, 4)};
    feed(&s, records, 1);
    feed_steps(&s);
    summary_finish(&s);
    ck_assert_uint_eq(s.submissions, 3);
    ck_assert_uint_eq(s.steps, 36);
    ck_assert_uint_eq(s.steps_by_phase[PHASE_REFRESH], 1);
    ck_assert_uint_eq(s.steps_by_phase[PHASE_REUSE], 31);
    ck_assert_uint_eq(s.steps_by_phase[SUMMARY_MIXED], 4);
    ck_assert_uint_eq(s.request_steps, 72);
    ck_assert_uint_eq(s.tokens_processed, 264 + 35 * 64);
    ck_assert_double_eq_tol(s.redundancy, (264 + 35 * 64) / 64.0, 1e-12);
    ck_assert_double_eq_tol(s.tpf, 64 / 72.0, 1e-12);
    ck_assert_double_eq_tol(s.mean_batch, 72 / 36.0, 1e-12);
    ck_assert_uint_eq(s.max_waiting, 3);
    ck_assert_int_eq(s.kv_peak_bytes, 4096);
    ck_assert_double_eq_tol(s.gpu_busy, 1.0 / (4 * 2), 1e-6); /* 1 s over 4 s of 2 replicas */
    const struct run_facts unknown = run_facts_unknown(), known = {.kv_peak_bytes = 0};
    ck_assert_int_eq(summary_kv_peak(&s, &unknown), 4096);
    ck_assert_int_eq(summary_kv_peak(&s, &known), 0);
    ck_assert_double_eq(summary_gpu_busy(&s, &unknown), s.gpu_busy);
    summary_fini(&s);
}

/* What a replay reads from a record, and what its own summary says anew. */
TEST(warnings_are_of_the_settings_or_of_the_summary) {
    for (int i = 0; i < WARNING_CODE_COUNT; i++) {
        const enum warning_code code = (enum warning_code)i;
        bool is_of_settings = code == WARNING_DECISIONS_MOVED || code == WARNING_HOST_ASSUMED ||
                              code == WARNING_HOST_FOREIGN || code == WARNING_PRICES_OTHER_BUILD ||
                              code == WARNING_PRICES_DIFFER || code == WARNING_MEMORY_AS_FREE ||
                              code == WARNING_PROFILE_OF_OTHER ||
                              code == WARNING_EXPERTS_BY_CHANCE ||
                              code == WARNING_ARCHITECTURE_UNKNOWN ||
                              code == WARNING_ANSWERS_ASSUMED || code == WARNING_SETTING_ASSUMED ||
                              code == WARNING_SETTING_UNUSED || code == WARNING_TRACE_ASSUMED ||
                              code == WARNING_COLUMNS_UNREAD || code == WARNING_REPEATED ||
                              code == WARNING_FEW_SEEDS || code == WARNING_NOT_DISTINGUISHABLE ||
                              code == WARNING_RUNS_DIFFER || code == WARNING_FEW_REQUESTS ||
                              code == WARNING_DEVICE_SHARED || code == WARNING_DEVICE_SLOWED ||
                              code == WARNING_PROCESS_STOPPED || code == WARNING_CLOCK_UNKNOWN;
        ck_assert_int_eq(caution_is_of_summary(code), !is_of_settings);
    }
}

static const struct run_figure constants[] = {
    {"host_step_us", 812.5, UNIT_NONE, "fitted to Table 4, Sparse-dLLM, LiveBench"}};

static struct run_facts some_facts(void) {
    struct run_facts facts = run_facts_unknown();
    facts.system = "dllm-serve";
    facts.model = "llada-8b";
    facts.gpu = "rtx-3090";
    facts.profile = "rtx-3090";
    facts.profile_kind = "transferred";
    facts.prices.from = provenance_of(PROVENANCE_TRANSFERRED, "rtx4090");
    facts.host = MAKE(struct run_host, .name = "default", .kind = "assumed",
                      .source = "taken to be the reference host", .factor = 1);
    facts.backend = "sim";
    facts.trace = "osc";
    facts.trace_provenance = "assumed lengths";
    facts.decisions = (struct run_decisions){
        true, "sdar-8b/sharegpt", provenance_of(PROVENANCE_CALIBRATED, "FOCUS Table 5"), NULL};
    facts.answers_kind = "assumed";
    facts.answers_source = "assumed to fill the output";
    facts.seed = 7;
    facts.weights_bytes = 16031000000;
    facts.mfu = 0.25;
    facts.price_exact = 3;
    facts.price_interpolated = 2;
    facts.price_shares.by_kind[PROVENANCE_TRANSFERRED] = 0.75;
    facts.price_shares.by_kind[PROVENANCE_ROOFLINE] = 0.25;
    facts.price_shares.by_match[PROFILE_EXACT] = 0.5;
    facts.price_shares.by_match[PROFILE_INTERPOLATED] = 0.25;
    facts.price_shares.by_match[PRICE_ROOFLINE] = 0.25;
    facts.constants = constants;
    facts.n_constants = 1;
    return facts;
}

static struct summary some_summary(void) {
    struct summary s;
    summary_init(&s, &(struct slo){.ttfb_ns = 4500000000});
    struct request_record records[] = {done(0, 10, 11, 14, 18), done(1, 12, 15, 17, 30),
                                       done(2, 12, -1, -1, 12)};
    records[2].state = REQUEST_REJECTED;
    records[2].reason = REJECT_CONTEXT;
    feed(&s, records, 3);
    feed_steps(&s);
    summary_finish(&s);
    return s;
}

/* Outputs of 64 tokens, half a block of which is behind the end of text: the first ran to its end,
 * the second stopped with its block. */
TEST(answers_are_counted_apart_from_what_was_decoded) {
    struct summary s;
    summary_init(&s, NULL);
    struct request_record records[] = {done(0, 0, 0, 2, 4), done(1, 0, 0, 2, 5)};
    records[0].answer_tokens = records[1].answer_tokens = 48;
    records[1].output_tokens = 256;
    records[0].steps_after_end = 7;
    records[0].tokens_after_end = 700;
    feed(&s, records, 2);
    feed_steps(&s);
    summary_finish(&s);
    ck_assert_uint_eq(s.tokens_committed, 128);
    ck_assert_uint_eq(s.answer_tokens, 96);
    ck_assert_double_eq_tol(s.throughput_tok_s, 128 / 5.0, 1e-12);
    ck_assert_double_eq_tol(s.throughput_answer_tok_s, 96 / 5.0, 1e-12);
    ck_assert_double_eq_tol(s.tpf_answer / s.tpf, 96 / 128.0, 1e-12);
    ck_assert_uint_eq(s.steps_after_end, 7);
    ck_assert_uint_eq(s.tokens_after_end, 700);
    /* Behind the first block of 32 a user reads 16 more. */
    ck_assert_double_eq_tol(s.tpot.max, 3.0 / 16, 1e-12);
    summary_fini(&s);
}

static char *read_all(const char *path) {
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot read %s", path);
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return text;
}

/* UNMASK_GOLDEN=write in the environment renews the file (make golden). */
static void same_as_golden(const char *path, const char *text) {
    const char *mode = getenv("UNMASK_GOLDEN");
    if (mode != NULL && strcmp(mode, "write") == 0) {
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(text, file);
        fclose(file);
    }
    ck_assert_str_eq(text, read_all(path));
}

TEST(an_interval_stands_beside_what_transferred_prices_say) {
    struct summary s = {.completed = 1, .throughput_tok_s = 100, .latency = {.n = 1, .mean = 10}};
    struct run_facts facts = run_facts_unknown();
    struct transferred t;
    facts.price_shares.by_kind[PROVENANCE_TRANSFERRED] = 0.04;
    ck_assert(!transferred_interval(&s, &facts, &t));
    facts.price_shares.by_kind[PROVENANCE_TRANSFERRED] = 0.06;
    ck_assert(transferred_interval(&s, &facts, &t));
    ck_assert(t.low_tok_s > 90 && t.low_tok_s < 100 && t.high_tok_s > 100 && t.high_tok_s < 110);
    ck_assert(t.low_latency_s > 8 && t.low_latency_s < 10);
    ck_assert(t.high_latency_s > 10 && t.high_latency_s < 12);
    facts.device = "a device, which measured";
    ck_assert(!transferred_interval(&s, &facts, &t));
}

TEST(the_json_of_a_run_is_the_golden_file_byte_for_byte) {
    struct summary s = some_summary();
    struct run_facts facts = some_facts();
    struct err err = {0};
    json_t *object;
    ck_assert_int_eq(summary_json(&s, &facts, &object, &err), 0);
    char *text = summary_json_text(object, 1);
    same_as_golden("tests/golden/summary.json", text);
    free(text);
    json_decref(object);
    summary_fini(&s);
}

TEST(what_is_not_known_is_null_in_json) {
    struct summary s;
    summary_init(&s, NULL);
    summary_finish(&s);
    struct run_facts facts = run_facts_unknown();
    struct err err = {0};
    json_t *object;
    ck_assert_int_eq(summary_json(&s, &facts, &object, &err), 0);
    ck_assert(json_is_null(json_object_get(object, "mfu")));
    ck_assert(json_is_null(json_object_get(object, "gpu_busy")));
    ck_assert(json_is_null(json_object_get(object, "weights_bytes")));
    ck_assert(json_is_null(json_object_get(object, "goodput_req_s")));
    ck_assert(json_is_null(json_object_get(json_object_get(object, "tpot_s"), "p99")));
    json_decref(object);
}

TEST(a_name_that_is_not_utf8_is_refused) {
    struct summary s;
    summary_init(&s, NULL);
    summary_finish(&s);
    struct run_facts facts = run_facts_unknown();
    facts.trace = "\xff\xfe";
    struct err err = {0};
    json_t *object = NULL;
    ck_assert_int_eq(summary_json(&s, &facts, &object, &err), ERR_WORLD);
    ck_assert_ptr_null(object);
}

TEST(the_printed_summary_carries_the_provenance_words) {
    struct summary s = some_summary();
    struct run_facts facts = some_facts();
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    summary_print(&s, &facts, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "rtx-3090: transferred"));
    ck_assert_ptr_nonnull(strstr(text, "osc: assumed lengths"));
    ck_assert_ptr_nonnull(strstr(text, "host_step_us = 812.5 1 (fitted to Table 4"));
    ck_assert_ptr_nonnull(strstr(text, "2 completed of 3; 1 rejected"));
    ck_assert_ptr_nonnull(strstr(text, "context 1"));
    ck_assert_ptr_null(strstr(text, "times"));
    free(text);
    summary_fini(&s);
}

TEST(times_that_were_measured_name_the_device_itself) {
    struct run_facts facts = some_facts();
    facts.device = "NVIDIA H200";
    facts.emulated = true;
    facts.clock = "real";
    const struct run_figure overhead = {"overhead", 0.125, UNIT_NONE, ""};
    facts.engine = &overhead;
    facts.n_engine = 1;
    struct summary s = some_summary();
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    summary_print(&s, &facts, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "\ntimes        measured on NVIDIA H200, clock real\n"));
    ck_assert_ptr_nonnull(strstr(text, "of it not the device's        12.5 %\n"));
    free(text);
    summary_fini(&s);
}

static const char *temporary(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "/tmp/unmask-test-%d-%s", (int)getpid(), name);
    return path;
}

static void record_timeline(struct timeline *timeline, int n_steps) {
    struct sink sink = timeline_sink(timeline);
    struct err err = {0};
    int64_t sym[SYM_COUNT] = {[SYM_TOKENS] = 64, [SYM_LOGIT_ROWS] = 32};
    for (int i = 0; i < n_steps; i++) {
        struct step_record step =
            MAKE(struct step_record, .index = (uint64_t)i, .replica = (uint32_t)i % 2, .repeat = 3,
                 .start_ns = 1001 * (i / 2), .end_ns = 1001 * (i / 2) + 1001, .sym = sym, .n = 2,
                 .kv_used_bytes = 4096, .n_running = 2, .n_waiting = 1);
        step.n_by_phase[PHASE_REUSE] = 1;
        step.n_by_phase[i % 3 == 0 ? PHASE_REFRESH : PHASE_REUSE] += 1;
        ck_assert_int_eq(sink.step(sink.state, &step, &err), 0);
    }
    struct event_record reject = {
        .time_ns = 5, .request = 9, .kind = EVENT_REJECT, .detail = REJECT_QUEUE};
    ck_assert_int_eq(sink.event(sink.state, &reject, &err), 0);
    struct event_record arrival = {.time_ns = 5, .request = 9, .kind = EVENT_ARRIVAL};
    ck_assert_int_eq(sink.event(sink.state, &arrival, &err), 0);
}

TEST(a_timeline_parses_and_its_slices_never_overlap_on_a_track) {
    const char *path = temporary("timeline.json");
    struct timeline *timeline;
    struct err err = {0};
    ck_assert_int_eq(timeline_open(path, "a \"quoted\" title\\", &timeline, &err), 0);
    record_timeline(timeline, 3000); /* more than one buffer */
    ck_assert_int_eq(timeline_close(timeline, &err), 0);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
    double end_us[3] = {0};
    int n_slices = 0, n_instants = 0, n_counters = 0;
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "traceEvents"), i, entry) {
        const char *kind = json_string_value(json_object_get(entry, "ph"));
        json_int_t track = json_integer_value(json_object_get(entry, "tid"));
        double at = json_number_value(json_object_get(entry, "ts"));
        n_instants += kind[0] == 'i';
        n_counters += kind[0] == 'C';
        if (kind[0] == 'X' && json_integer_value(json_object_get(entry, "pid")) == 1) {
            ck_assert(track == 1 || track == 2);
            ck_assert_double_ge(at, end_us[track] - 1e-6);
            end_us[track] = at + json_number_value(json_object_get(entry, "dur"));
            n_slices++;
        }
    }
    ck_assert_int_eq(n_slices, 3000);
    ck_assert_int_eq(n_counters, 9000);
    ck_assert_int_eq(n_instants, 1);
    ck_assert_double_eq_tol(end_us[2], 1500 * 1.001, 1e-6);
    json_decref(root);
    unlink(path);
}

TEST(a_timeline_is_whole_json_even_while_it_is_being_written) {
    const char *path = temporary("early.json");
    struct timeline *timeline;
    struct err err = {0};
    ck_assert_int_eq(timeline_open(path, "early", &timeline, &err), 0);
    record_timeline(timeline, 3000);
    json_error_t error;
    char beside[512];
    glob_t found;
    snprintf(beside, sizeof beside, "%s.part-*", path);
    ck_assert_int_eq(glob(beside, 0, NULL, &found), 0);
    json_t *root = json_load_file(found.gl_pathv[0], 0, &error); /* as a killed run leaves it */
    ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
    ck_assert_uint_gt(json_array_size(json_object_get(root, "traceEvents")), 100);
    json_decref(root);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(timeline_close(timeline, &err), 0);
    ck_assert_int_ne(access(found.gl_pathv[0], F_OK), 0);
    globfree(&found);
    ck_assert_int_eq(unlink(path), 0);
}

TEST(a_timeline_that_cannot_be_written_says_why_and_leaves_the_old_one) {
    struct timeline *timeline;
    struct err err = {0};
    ck_assert_int_eq(timeline_open("/nowhere/at/all.json", "x", &timeline, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/at/all.json"));

    const char *path = temporary("full.json");
    err = (struct err){0};
    ck_assert_int_eq(timeline_open(path, "full", &timeline, &err), 0);
    ck_assert_int_eq(timeline_close(timeline, &err), 0);
    ck_assert_int_eq(timeline_open(path, "full", &timeline, &err), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 100000;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    record_timeline(timeline, 300);
    ck_assert_int_eq(timeline_close(timeline, &err), ERR_WORLD);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_ptr_nonnull(strstr(err.text, "full.json"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "traceEvents")), 1);
    json_decref(root);
    unlink(path);
}

TEST(the_numbers_of_the_papers_load) {
    struct paper paper;
    struct err err = {0};
    ck_assert_int_eq(paper_load("experiments/study/paper/dllm_serve.csv", &paper, &err), 0);
    ck_assert_uint_eq(paper.n_rows, 83);
    const struct paper_row *row = &paper.rows[0];
    while (strcmp(row->gpu, "L40S") != 0 || strcmp(row->dataset, "Burst") != 0 ||
           strcmp(row->system, "dLLM-Serve") != 0 || strcmp(row->setting, "1.0") != 0 ||
           strcmp(row->quantity, "throughput") != 0) {
        ck_assert_ptr_ne(++row, &paper.rows[paper.n_rows]);
    }
    ck_assert_double_eq(row->value, 106.95);
    ck_assert_str_eq(row->unit, "tok/s");
    paper_fini(&paper);
    ck_assert_int_eq(paper_load("experiments/study/paper/mosaic.csv", &paper, &err), 0);
    paper_fini(&paper);
    ck_assert_int_eq(paper_load("experiments/study/paper/focus.csv", &paper, &err), 0);
    ck_assert_str_eq(paper.rows[0].setting, "batch 32-256 B=32");
    paper_fini(&paper);
    ck_assert_int_eq(paper_load("experiments/study/paper/dinfer_quality.csv", &paper, &err),
                     ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "dinfer_quality.csv:1: column 'system' is missing"));
}

static int load_text(const char *text, struct paper *paper, struct err *err) {
    const char *path = temporary("paper.csv");
    FILE *out = fopen(path, "w");
    fputs(text, out);
    fclose(out);
    *err = (struct err){0};
    int failed = paper_load(path, paper, err);
    unlink(path);
    return failed;
}

TEST(a_bad_row_of_a_paper_is_named_by_its_line) {
    struct paper paper;
    struct err err;
#define HEADER "source,system,quantity,value,unit\n"
    ck_assert_int_eq(load_text(HEADER "T,s,q,1,x\nT,s,q,one,x\n", &paper, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "paper.csv:3: value 'one' is not a number"));
    ck_assert_int_eq(load_text(HEADER "T,s,q,1\n", &paper, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "paper.csv:2:"));
    ck_assert_int_eq(load_text(HEADER "T,\"s,q,1,x\n", &paper, &err), ERR_WORLD);
    ck_assert_int_eq(load_text("", &paper, &err), ERR_WORLD);
    ck_assert_int_eq(load_text(HEADER "\"T, \"\"4\"\"\",s,q,1,x\r\n", &paper, &err), 0);
    ck_assert_str_eq(paper.rows[0].source, "T, \"4\"");
    ck_assert_str_eq(paper.rows[0].unit, "x");
    paper_fini(&paper);
}

TEST(a_papers_rows_say_their_role_and_how_they_compare) {
    struct paper paper;
    struct err err;
#define ROLES "source,system,quantity,value,unit,role,compare\n"
    ck_assert_int_eq(load_text(ROLES "T,s,q,1,x,,\nT,s,q,1,x,derived,at-most\n", &paper, &err), 0);
    ck_assert_int_eq(paper.rows[0].role, PAPER_COUNTED);
    ck_assert_int_eq(paper.rows[0].compare, PAPER_EQUAL);
    ck_assert_int_eq(paper.rows[1].role, PAPER_DERIVED);
    ck_assert_int_eq(paper.rows[1].compare, PAPER_AT_MOST);
    paper_fini(&paper);
    ck_assert_int_eq(load_text(ROLES "T,s,q,1,x,guess,\n", &paper, &err), ERR_WORLD);
    ck_assert_int_eq(load_text(ROLES "T,s,q,1,x,,about\n", &paper, &err), ERR_WORLD);
}

/* A bound, and what no effect at all would meet. */
TEST(a_row_that_cannot_be_missed_on_both_sides_is_a_bound) {
    static const struct {
        const char *unit;
        double value;
        enum paper_compare compare;
        enum paper_role role;
    } cases[] = {{"x", 1, PAPER_EQUAL, PAPER_BOUND},      {"x", 1.17, PAPER_EQUAL, PAPER_BOUND},
                 {"x", 1.18, PAPER_EQUAL, PAPER_COUNTED}, {"x", 0.86, PAPER_EQUAL, PAPER_COUNTED},
                 {"x", 0.88, PAPER_EQUAL, PAPER_BOUND},   {"s", 1, PAPER_EQUAL, PAPER_COUNTED},
                 {"s", 9, PAPER_AT_MOST, PAPER_BOUND},    {"s", 9, PAPER_AT_LEAST, PAPER_BOUND},
                 {"%", 15, PAPER_POINTS, PAPER_BOUND},    {"%", 16, PAPER_POINTS, PAPER_COUNTED},
                 {"%", 9, PAPER_EQUAL, PAPER_COUNTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct paper_row row = {
            .unit = cases[i].unit, .value = cases[i].value, .compare = cases[i].compare};
        struct paper_result result = {.row = &row, .ours = cases[i].value};
        paper_settle(&result, 1, "", PAPER_COUNTED);
        ck_assert_msg(result.role == cases[i].role, "%zu", i);
        ck_assert_int_eq(paper_judge(&result), PAPER_WITHIN);
    }
    const struct paper_row share = {.unit = "%", .value = 50, .compare = PAPER_POINTS};
    const struct paper_result on = {.row = &share, .ours = 65}, off = {.row = &share, .ours = 65.1};
    ck_assert_int_eq(paper_judge(&on), PAPER_WITHIN);
    ck_assert_int_eq(paper_judge(&off), PAPER_BEYOND);
    ck_assert_double_eq_tol(paper_distance(&on), 1, 1e-9);
}

TEST(one_reading_of_a_printed_number_stands_for_it) {
    const struct paper_row a = {.quantity = "a", .value = 1, .unit = "s"},
                           b = {.quantity = "b", .value = 1, .unit = "s", .role = PAPER_DERIVED};
    const struct paper_result given[] = {{.row = &a, .reading = "of the output"},
                                         {.row = &a, .reading = "of the canvas"},
                                         {.row = &b},
                                         {.row = &a, .role = PAPER_CALIBRATION}};
    struct paper_result results[4];
    memcpy(results, given, sizeof given);
    paper_settle(results, 4, "", PAPER_COUNTED); /* the first */
    ck_assert_int_eq(results[0].role, PAPER_COUNTED);
    ck_assert_int_eq(results[1].role, PAPER_APPENDIX);
    ck_assert_int_eq(results[2].role, PAPER_DERIVED);
    ck_assert_int_eq(results[3].role, PAPER_CALIBRATION);
    memcpy(results, given, sizeof given);
    paper_settle(results, 4, "canvas", PAPER_COUNTED);
    ck_assert_int_eq(results[0].role, PAPER_APPENDIX);
    ck_assert_int_eq(results[1].role, PAPER_COUNTED);
    memcpy(results, given, sizeof given);
    paper_settle(results, 4, "canvas", PAPER_APPENDIX);
    ck_assert_uint_eq(paper_tally(results, 4).appendix, 3);
    ck_assert_int_eq(results[3].role, PAPER_CALIBRATION);
}

TEST(paper_rows_are_judged_by_their_ratio_and_calibration_points_apart) {
    const struct paper_row tokens = {"T4",          "L40S",       "m",     "d", "s",
                                     "1.0",         "throughput", "tok/s", 100, 2,
                                     PAPER_COUNTED, PAPER_EQUAL,  ""};
    const struct paper_row bound = {.quantity = "l", .value = 4000, .compare = PAPER_AT_LEAST};
    const struct paper_row share = {"F5", "-", "m", "d",           "s",         "-", "reduction",
                                    "%",  56,  3,   PAPER_COUNTED, PAPER_EQUAL, ""};
    const struct paper_row most = {.quantity = "l", .value = 0.5, .compare = PAPER_AT_MOST};
    const struct paper_result results[] = {
        {.row = &tokens, .ours = 115},
        {.row = &tokens, .ours = 85},
        {.row = &tokens, .ours = 115.1},
        {.row = &tokens, .ours = 84},
        {.row = &tokens, .ours = 100, .role = PAPER_CALIBRATION},
        {.row = &tokens, .ours = NAN},
        {.row = &share, .ours = 60},
        {.row = &bound, .ours = 12000},
        {.row = &bound, .ours = 3900},
        {.row = &most, .ours = 0.1},
        {.row = &most, .ours = 0.51},
        {.row = &tokens, .ours = 100, .role = PAPER_DERIVED},
        {.row = &tokens, .ours = 100, .role = PAPER_APPENDIX},
    };
    enum { N_RESULTS = sizeof results / sizeof results[0] };
    const enum paper_verdict expected[N_RESULTS] = {
        PAPER_WITHIN,  PAPER_WITHIN, PAPER_BEYOND, PAPER_BEYOND, PAPER_WITHIN,
        PAPER_MISSING, PAPER_WITHIN, PAPER_WITHIN, PAPER_BEYOND, PAPER_WITHIN,
        PAPER_BEYOND,  PAPER_WITHIN, PAPER_WITHIN};
    for (size_t i = 0; i < N_RESULTS; i++) {
        ck_assert_int_eq(paper_judge(&results[i]), expected[i]);
    }
    struct paper_tally tally = paper_tally(results, N_RESULTS);
    ck_assert_uint_eq(tally.counted, 9);
    ck_assert_uint_eq(tally.within, 5);
    ck_assert_uint_eq(tally.missing, 1);
    ck_assert_uint_eq(tally.calibration, 1);
    ck_assert_uint_eq(tally.derived, 1);
    ck_assert_uint_eq(tally.appendix, 1);
    char text[64];
    ck_assert_str_eq(paper_ratio_text(&results[0], text, sizeof text), "1.150");
    ck_assert_str_eq(paper_ratio_text(&results[6], text, sizeof text), "+4.0 points");
    ck_assert_str_eq(paper_ratio_text(&results[5], text, sizeof text), "-");
}

static char *print_table(const struct paper_result *results, size_t n, enum paper_format format) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    paper_print(results, n, format, out);
    fclose(out);
    return text;
}

TEST(a_paper_table_reads_the_same_as_text_markdown_and_csv) {
    const struct paper_row row = {"T|4",         "L40S",       "m",     "Burst", "dLLM-Serve",
                                  "1.0",         "throughput", "tok/s", 100,     2,
                                  PAPER_COUNTED, PAPER_EQUAL,  "why"};
    const struct paper_result results[] = {{.row = &row, .ours = 90, .reading = "with pad, of two"},
                                           {.row = &row, .ours = 100, .role = PAPER_CALIBRATION}};
    char *text = print_table(results, 2, PAPER_TEXT);
    ck_assert_ptr_nonnull(strstr(text, "100 tok/s"));
    ck_assert_ptr_nonnull(strstr(text, "0.900"));
    ck_assert_ptr_nonnull(strstr(text, "1 of 1 rows within 15 %; not counted: 1 calibration\n"));
    free(text);
    text = print_table(results, 2, PAPER_MARKDOWN);
    ck_assert_ptr_nonnull(strstr(
        text, "| T\\|4 | L40S, m, Burst, dLLM-Serve, 1.0, throughput "
              "(with pad, of two) | 100 tok/s | 90 tok/s | 0.900 | counted (why) | yes |\n"));
    free(text);
    text = print_table(results, 2, PAPER_CSV);
    ck_assert_ptr_nonnull(strstr(
        text, "T|4,L40S,m,Burst,dLLM-Serve,1.0,throughput,tok/s,100,90,0.9,-10,counted,equal,yes,"
              "\"with pad, of two\",why\n"));
    ck_assert_ptr_nonnull(strstr(text, "tok/s,100,100,1,0,calibration,equal,yes,,why\n"));
    free(text);
}

TEST(an_output_replaces_its_own_kind_only) {
    char path[] = "/tmp/unmask-output-XXXXXX";
    struct err err = {0};
    int fd = mkstemp(path);
    ck_assert_int_eq(output_may_replace(path, "<!DOCTYPE", "a page", &err), 0); /* empty */
    ck_assert_int_eq(write(fd, "<!DOCTYPE html>", 15), 15);
    ck_assert_int_eq(output_may_replace(path, "<!DOCTYPE", "a page", &err), 0);
    ck_assert_int_eq(output_may_replace(path, "{", "a timeline", &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "exists and is not a timeline: it is not overwritten"));
    close(fd);
    unlink(path);
    err = (struct err){0};
    ck_assert_int_eq(output_may_replace(path, "{", "a timeline", &err), 0);
    ck_assert_int_eq(output_may_replace("", "{", "a timeline", &err), ERR_USAGE);
}

SUITE("analysis")
