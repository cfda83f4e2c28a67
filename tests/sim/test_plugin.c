/* Plug-ins: which files and descriptors are refused, and what check-plugin says of samples. The
 * shared objects are built from tests/plugins; UNMASK_PLUGINS names their folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/check_plugin.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

#ifdef __SANITIZE_ADDRESS__
/* A plug-in that calls exit() in the child would be asked there for leaks of ours. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void) {
    return "detect_leaks=0";
}
#endif

static void no_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state, (void)view, (void)batch;
}

static const char *const words[] = {"fast", "slow", NULL};

/* A valid descriptor that each case spoils in one place. */
struct sample {
    struct scheduler scheduler;
    struct param params[2];
};

static void sample_init(struct sample *sample) {
    *sample = (struct sample){
        .scheduler = {.policy = {.abi = POLICY_ABI,
                                 .kind = POLICY_SCHEDULER,
                                 .size = sizeof(struct scheduler),
                                 .state_bytes = 16,
                                 .name = "sample",
                                 .doc = "does nothing",
                                 .n_params = 2},
                      .schedule = no_schedule},
        .params = {{"limit", PARAM_U32, 0, "tokens", "8", 1, 100, NULL, 0, "a limit"},
                   {"mode", PARAM_WORD, 0, "1", "slow", 0, 0, words, 4, "a mode"}}};
    sample->scheduler.policy.params = sample->params;
}

static void assert_refused(const struct sample *sample, const char *sentence) {
    struct err err = {0};
    ck_assert_int_eq(plugin_validate(&sample->scheduler.policy, "./x.so", &err), ERR_WORLD);
    ASSERT_SAYS(err.text, sentence);
}

#define REFUSED(spoil, sentence)                                                                   \
    do {                                                                                           \
        struct sample s;                                                                           \
        sample_init(&s);                                                                           \
        struct policy *p = &s.scheduler.policy;                                                    \
        (void)p;                                                                                   \
        spoil;                                                                                     \
        assert_refused(&s, sentence);                                                              \
    } while (0)

TEST(a_descriptor_is_refused_with_one_sentence_for_each_fault) {
    struct sample valid;
    sample_init(&valid);
    struct err err = {0};
    ck_assert_int_eq(plugin_validate(&valid.scheduler.policy, "./x.so", &err), 0);
    REFUSED(p->abi = POLICY_ABI + 1,
            "./x.so: the plug-in is made for ABI 24, this program has ABI 23");
    REFUSED(p->kind = 0, "./x.so: kind 0 is neither scheduler (1), cache (2), decoder (3) nor "
                         "router (4)");
    REFUSED(p->size = 8, "./x.so: the scheduler descriptor says 8 bytes, this program's has 96");
    REFUSED(p->name = NULL, "./x.so: the scheduler has no name");
    REFUSED(p->name = "", "./x.so: the scheduler has no name");
    REFUSED(p->name = "a-name-of-more-than-thirty-two-chars",
            "./x.so: the scheduler's name 'a-name-of-more-than-thirty-two-c...' is longer than 32 "
            "characters");
    REFUSED(p->name = "My_policy",
            "./x.so: the scheduler's name 'My_policy' may hold a-z, 0-9 and - only");
    REFUSED(p->doc = NULL, "./x.so: scheduler sample has no doc of one line");
    REFUSED(p->doc = "two\nlines", "./x.so: scheduler sample has no doc of one line");
    REFUSED(s.scheduler.schedule = NULL, "./x.so: scheduler sample lacks the callback schedule");
    REFUSED(s.scheduler.grows = 2, "./x.so: scheduler sample has a flag that is neither 0 nor 1");
    REFUSED(p->state_bytes = UINT32_MAX,
            "./x.so: scheduler sample asks for 4294967295 bytes of state, at most 4293918719 "
            "are allowed");
}

TEST(a_parameter_table_is_refused_with_one_sentence_for_each_fault) {
    REFUSED(p->n_params = 65, "./x.so: scheduler sample has 65 parameters, at most 64 are allowed");
    REFUSED(p->params = NULL, "./x.so: scheduler sample has 2 parameters but no table of them");
    REFUSED(s.params[1].name = NULL, "./x.so: parameter 1 of scheduler sample has no name of a-z, "
                                     "0-9 and _ with at most 32 characters");
    REFUSED(s.params[0].name = "a-b", "./x.so: parameter 0 of scheduler sample has no name of a-z, "
                                      "0-9 and _ with at most 32 characters");
    REFUSED(s.params[1].name = "limit", "./x.so: scheduler sample has two parameters named limit");
    REFUSED(s.params[0].type = (enum param_type)9,
            "./x.so: parameter limit of scheduler sample has an unknown type");
    REFUSED(s.params[0].initial = NULL, "./x.so: parameter limit of scheduler sample lacks its "
                                        "unit, initial value or doc");
    REFUSED(s.params[1].words = NULL, "./x.so: parameter mode of scheduler sample lacks its words");
    REFUSED(s.params[1].offset = 14,
            "./x.so: parameter mode of scheduler sample lies outside the state");
    REFUSED(s.params[1].offset = SIZE_MAX,
            "./x.so: parameter mode of scheduler sample lies outside the state");
    REFUSED(s.params[1].offset = 2,
            "./x.so: parameters limit and mode of scheduler sample share bytes of the state");
    REFUSED(s.params[0].min = 101,
            "./x.so: parameter limit of scheduler sample has a minimum above its maximum");
    REFUSED(s.params[0].max = 1e10,
            "./x.so: parameter limit of scheduler sample has a range that a uint32_t cannot hold");
    REFUSED((s.params[1].type = PARAM_I64, s.params[1].offset = 8, s.params[1].max = 1e19),
            "./x.so: parameter mode of scheduler sample has a range that an int64_t cannot hold");
    REFUSED(s.params[0].initial = "101",
            "./x.so: the initial value '101' of parameter limit of scheduler sample is not one "
            "that the parameter allows");
    REFUSED(s.params[0].initial = "many",
            "./x.so: the initial value 'many' of parameter limit of scheduler sample is not one "
            "that the parameter allows");
    REFUSED(s.params[1].initial = "medium",
            "./x.so: the initial value 'medium' of parameter mode of scheduler sample is not one "
            "that the parameter allows");
}

static void assert_policy_refused(const struct policy *policy, const char *sentence) {
    struct err err = {0};
    ck_assert_int_eq(plugin_validate(policy, "./x.so", &err), ERR_WORLD);
    ASSERT_SAYS(err.text, sentence);
}

TEST(every_kind_is_refused_without_its_callbacks) {
    struct err err = {0};
    struct cache_policy cache = *cache_table[0];
    cache.plan = NULL;
    assert_policy_refused(&cache.policy, "./x.so: cache none lacks the callback plan");
    cache = *cache_table[0];
    cache.memory_bytes = 12;
    assert_policy_refused(&cache.policy, "./x.so: cache none asks for 12 bytes of memory of a "
                                         "request; expected a multiple of 8 up to 4096");
    const struct decoder *fixed =
        (const struct decoder *)policy_find(POLICY_DECODER, "fixed", &err);
    const struct decoder *threshold =
        (const struct decoder *)policy_find(POLICY_DECODER, "threshold", &err);
    const struct decoder *small_blocks =
        (const struct decoder *)policy_find(POLICY_DECODER, "small-blocks", &err);
    const struct decoder *credit =
        (const struct decoder *)policy_find(POLICY_DECODER, "credit", &err);
    struct decoder decoder = *fixed;
    decoder.choose = small_blocks->choose;
    assert_policy_refused(&decoder.policy,
                          "./x.so: decoder fixed has both count and choose, of which one is used");
    decoder.count = NULL;
    decoder.rule = threshold->rule;
    assert_policy_refused(&decoder.policy,
                          "./x.so: decoder fixed has both rule and choose, of which one is used");
    decoder = *fixed;
    decoder.credit = credit->credit;
    assert_policy_refused(&decoder.policy,
                          "./x.so: decoder fixed counts, so that its credit changes nothing");
    decoder.credit = NULL;
    decoder.reads_statistics = 2;
    assert_policy_refused(&decoder.policy,
                          "./x.so: decoder fixed has a flag that is neither 0 nor 1");
    decoder.count = NULL;
    decoder.reads_statistics = 0;
    assert_policy_refused(&decoder.policy, "./x.so: decoder fixed lacks the callback count, choose "
                                           "or rule");
    struct router router = *router_table[0];
    router.route = NULL;
    assert_policy_refused(&router.policy, "./x.so: router round-robin lacks the callback route");
}

/* `format` holds one %s for the path. */
static void assert_file_refused(const char *name, enum policy_kind kind, int status,
                                const char *format) {
    const char *path = suite_plugin(name);
    char sentence[1024];
    size_t prefix = strcspn(format, "%");
    snprintf(sentence, sizeof sentence, "%.*s%s%s", (int)prefix, format, path, format + prefix + 2);
    const struct policy *policy = NULL;
    struct err err = {0};
    ck_assert_int_eq(plugin_load(path, kind, &policy, &err), status);
    ASSERT_SAYS(err.text, sentence);
    ck_assert_ptr_null(policy);
}

TEST(a_file_that_is_no_plug_in_is_refused) {
    assert_file_refused("missing", POLICY_SCHEDULER, ERR_WORLD, "cannot load the plug-in: %s");
    assert_file_refused("bad_no_symbol", POLICY_ROUTER, ERR_WORLD,
                        "%s: no symbol 'unmask_policy' is exported");
    assert_file_refused("bad_pointer", POLICY_ROUTER, ERR_WORLD,
                        "%s: 'unmask_policy' has 8 bytes, which is no descriptor; export the "
                        "struct itself, not a pointer to it");
    assert_file_refused("bad_wrong_abi", POLICY_SCHEDULER, ERR_WORLD,
                        "%s: the plug-in is made for ABI 24, this program has ABI 23");
    assert_file_refused("bad_wrong_kind", POLICY_SCHEDULER, ERR_WORLD,
                        "%s: kind 5 is neither scheduler (1), cache (2), decoder (3) nor router "
                        "(4)");
    assert_file_refused("bad_way", POLICY_DECODER, ERR_WORLD,
                        "%s: decoder of-noise has way = 1, which is for built-in ones: leave it 0");
    assert_file_refused("bad_leading", POLICY_CACHE, ERR_WORLD,
                        "%s: cache of-prefixes has way = 2, which is for built-in ones: leave it "
                        "0");
    assert_file_refused("template_decoder", POLICY_SCHEDULER, ERR_USAGE,
                        "%s: near-best is a decoder, but a scheduler is wanted here");
    const struct policy *policy = NULL;
    struct err err = {0};
    ck_assert_int_eq(plugin_load("mine.so", POLICY_SCHEDULER, &policy, &err), ERR_USAGE);
    ASSERT_SAYS(err.text,
                "'mine.so' names no file: a plug-in's path holds a slash, as in ./mine.so");
}

TEST(a_valid_file_is_found_through_the_registry_with_its_parameters) {
    struct err err = {0};
    const struct policy *policy =
        policy_find(POLICY_SCHEDULER, suite_plugin("template_scheduler"), &err);
    ck_assert_msg(policy != NULL, "%s", err.text);
    ck_assert_str_eq(policy->name, "shortest-first");
    void *state = policy_state(policy);
    char text[64];
    ck_assert_str_eq(param_text(param_find(policy->params, policy->n_params, "patience"), state,
                                text, sizeof text),
                     "30000000000");
    free(state);
}

/* Runs check-plugin; the report goes to `text`, `sentence` follows the path. */
static void assert_checked(const char *name, const char *sentence, char *text, size_t size) {
    struct err err = {0};
    char expected[1024];
    const char *path = suite_plugin(name);
    FILE *report = tmpfile();
    ck_assert_ptr_nonnull(report);
    int status = check_plugin(path, report, NULL, &err);
    ck_assert_int_eq(status, sentence[0] == '\0' ? 0 : ERR_WORLD);
    snprintf(expected, sizeof expected, "%s%s", sentence[0] == '\0' ? "" : path, sentence);
    ASSERT_SAYS(err.text, expected);
    rewind(report);
    text[fread(text, 1, size - 1, report)] = '\0';
    fclose(report);
}

TEST(the_templates_pass_and_their_reports_are_the_same_every_time) {
    static const char *const templates[] = {
        "template_scheduler", "template_cache",    "template_decoder", "template_rule",
        "taking_decoder",     "wording_scheduler", "seeing_scheduler", "loaded_decoder",
        "loaded_cache",       "swapping_scheduler"};
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        char first[4096], second[4096];
        assert_checked(templates[i], "", first, sizeof first);
        assert_checked(templates[i], "", second, sizeof second);
        ck_assert_str_eq(first, second);
        ck_assert_ptr_nonnull(strstr(first, "  ok     one request alone ("));
        ck_assert_ptr_nonnull(strstr(first, "  every promise kept in "));
        ck_assert_ptr_null(strstr(first, "BROKEN"));
    }
}

/* What happens to authors of good will: each found, with the callback and what to do instead. */
TEST(check_plugin_finds_accidents) {
    static const struct {
        const char *name, *says, *advice;
    } cases[] = {
        {"kept_request", "a pointer that it kept from an earlier call", "(copy what it needs"},
        {"kept_list", "a pointer that it kept from an earlier call", "in callback schedule"},
        {"kept_seen", "a pointer that it kept from an earlier call", "in callback choose"},
        {"seen_beyond", "chooses differently when asked the same again", ""},
        {"clock", "it calls clock_gettime", "decide by the time in the view"},
        {"random", "it calls rand", "draw from the state"},
        {"file", "it calls fopen", "in callback plan"},
        {"thread", "it calls pthread_create", "decide in the callback itself"},
        {"threads_at_load", "it starts a thread when it is loaded", "decide in the callbacks"},
        {"divides", "crashed with signal FPE in callback schedule", "with share = 0"},
        {"closed_range", "starves at ", "with share = 0"},
        {"tenants", "crashed with signal SEGV in callback schedule", ""},
        {"ids", "crashed with signal SEGV in callback schedule", ""},
        {"passing_over", "passes over request", "let what has waited longest take part"},
        {"preempting", "requests preempted though their cached state is not exact", ""},
#ifndef __SANITIZE_ADDRESS__ /* which has a heap of its own, and ends who fills beyond it */
        {"wide_range", "in callback schedule", "with classes = 100000"},
        {"leak", "never gave back", "is its state (state_bytes)"},
        {"leaking_router", "never gave back", "in callback route"},
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[64];
        struct err err = {0};
        FILE *nowhere = fopen("/dev/null", "w");
        ck_assert_ptr_nonnull(nowhere);
        snprintf(name, sizeof name, "accident_%s", cases[i].name);
        ck_assert_msg(check_plugin(suite_plugin(name), nowhere, NULL, &err) == ERR_WORLD, "%s",
                      name);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL &&
                          strstr(err.text, cases[i].advice) != NULL,
                      "%s: %s", name, err.text);
        fclose(nowhere);
    }
}

TEST(check_plugin_names_what_each_bad_sample_does) {
    static const struct {
        const char *name, *sentence;
    } bad[] = {
        {"bad_starving", ": scheduler starving starves at 0.000 s: it selects nothing and names no "
                         "later time although slot 0 could run (call 2, one request alone)"},
        {"bad_postponing",
         ": scheduler postponing starves at s: it selected nothing 1051 times in a row, and named "
         "a "
         "later time, while 1 requests wait and 0 hold memory (call 2102, one request alone)"},
        {"bad_over_selecting", ": scheduler over-selecting broke its promise at s: requests "
                               "running at once of at most, one place)"},
        {"bad_double_selecting", ": scheduler double-selecting broke its promise at 0.000 s: it "
                                 "listed request 0 twice (call 2, one request alone)"},
        {"bad_unchunked",
         ": scheduler unchunked starves at 0.000 s: it selects nothing and names no later time "
         "although slot 0 could run in chunks (chunk_tokens), which a scheduler that grows has to "
         "take of a prefill wider than a step (call 16, one request alone, its prompt in chunks)"},
        {"bad_refusing", ": scheduler refusing starves at s: it selects nothing and names no later "
                         "time although slot could run, hundreds at once, memory for some, slow)"},
        {"bad_crowded", ": scheduler crowded starves at s: it selects nothing and names no later "
                        "time although slot could run, a thousand at once)"},
        {"bad_view_writing", ": it wrote to the requests of the view, which it may only read, in "
                             "callback schedule (call 3)"},
        {"bad_forgetful", ": scheduler forgetful decides differently when asked the same again: "
                          "wake_ns is 1, then 2 (call 2, one request alone)"},
        {"bad_impure_cache", ": cache impure plans differently when asked the same again: "
                             "rows.run.first 0, then 4194304 (call 2, one request alone)"},
        {"bad_greedy_decoder", ": it commits 0 of 1 masked positions in callback choose (call 9)"},
        {"bad_taking_decoder",
         ": decoder taking-all broke its promise at s: the passes that a block "
         "takes is expected 1 to one request alone)"},
        {"bad_back_count", ": it marks 1 of 1 decided positions and says another number in "
                           "callback take_back (call 7)"},
        {"bad_overgrowing", ": scheduler overgrowing broke its promise at s: bytes of cached state "
                            "admitted and grown by (2359296 of at most 0)"},
        {"bad_chunking", ": scheduler chunking broke its promise at s: tokens of a chunk (2 of at "
                         "most 0), one request alone, its prompt in chunks)"},
        {"bad_stray_chunk", ": it sets chunk_tokens[1] but lists only 1 requests, in callback "
                            "schedule (call 3)"},
        {"bad_wide",
         ": scheduler wide broke its promise at 0.000 s: positions of a window (33 of at "
         "most 32) (call 2, one request alone)"},
        {"bad_stray_word", ": it sets width_tokens[1] but lists only 1 requests, in callback "
                           "schedule (call 3)"},
        {"bad_rejecting",
         ": scheduler rejecting broke its promise at s: schedule rejects request 0, which runs: "
         "reject it while it waits, or preempt it first (call 4, one request alone)"},
        {"bad_waking",
         ": scheduler waking broke its promise at s: schedule asks to be called again at 0 ns, "
         "which is not after now (0): name a later time, or leave wake_ns as it is"},
        {"bad_putting_off",
         ": scheduler putting-off broke its promise at s: schedule puts a refresh of request 0 off "
         "that cannot wait (it was due 0 steps ago): say puts_off only where refresh_waits is "
         "above 0"},
        {"bad_moving", ": router moving broke its promise at s: move names request 0, which runs: "
                       "only waiting requests move, to another replica"},
        {"bad_holding",
         ": router holding broke its promise at s: route holds request 0 back until 0 ns, which is "
         "not after now (0): name a later time in until_ns, or leave it as it is"},
        {"bad_forgetting_cache",
         ": cache forgetting lets a refresh wait in put_off, but plan answers none at the step "
         "after (overdue_steps is 1)"},
        {"bad_turning", ": scheduler turning starves: 3 of 3 requests are not done after 7040 "
                        "decisions, growing: memory and steps for one, exactly)"},
        {"bad_crashing", " crashed with signal SEGV in callback schedule (call 3)"},
        {"bad_crashing_load", " crashed with signal ABRT while it was loaded"},
        {"bad_exiting", " ended the program in callback schedule (call 3)"},
        {"bad_wrong_abi", ": the plug-in is made for ABI 24, this program has ABI 23"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[4096];
        assert_checked(bad[i].name, bad[i].sentence, text, sizeof text);
        bool loaded = strstr(bad[i].name, "_load") == NULL && strstr(bad[i].name, "abi") == NULL;
        ck_assert(loaded ? strstr(text, "  BROKEN ") != NULL : text[0] == '\0');
    }
}

TEST(a_report_tells_what_was_served_before_a_promise_was_broken) {
    char text[4096];
    assert_checked("bad_crowded",
                   ": scheduler crowded starves at s: it selects nothing and names no later time "
                   "although slot could run, a thousand at once)",
                   text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "  ok     one request alone ("));
    ck_assert_ptr_nonnull(strstr(text, "  BROKEN a thousand at once\n"));
}

TEST(check_plugin_ends_an_endless_callback) {
    char text[4096];
    assert_checked("bad_endless", " did not return from schedule within 2 s", text, sizeof text);
}

SUITE("plugin")
