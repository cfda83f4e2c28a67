/* Decode traces on the command line: written by any run, played by simulated ones. */
#include <jansson.h>
#include <math.h>

#include "tests/support/cli.h"
#include "tests/support/decode_text.h"
#include "tests/support/scratch.h"

/* A summary without what says where its decisions are from, or follows from it. */
static json_t *summary_of(const char *text) {
    json_t *summary = json_loads(text, 0, NULL);
    ck_assert_msg(summary != NULL, "%s", text);
    ck_assert_int_eq(json_object_del(summary, "trace_provenance"), 0);
    ck_assert_int_eq(json_object_del(summary, "decisions"), 0);
    ck_assert_int_eq(json_object_del(summary, "is_drawn"), 0);
    ck_assert_int_eq(json_object_del(summary, "identity"), 0);
    ck_assert_int_eq(json_object_del(summary, "warnings"), 0); /* one of them is of the decisions */
    return summary;
}

static void check_same_summary(const char *recorded, const char *played) {
    json_t *first = summary_of(recorded), *second = summary_of(played);
    ck_assert_msg(json_equal(first, second), "%s\n%s", recorded, played);
    json_decref(first);
    json_decref(second);
}

/* The value of a number in what --json printed. */
static double number(const char *text, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(text, quoted);
    ck_assert_msg(at != NULL, "%s in %s", key, text);
    return strtod(at + strlen(quoted), NULL);
}

/* The header and the rows, which say nothing of how they came about. */
static char *rows_of(const char *path) {
    char *text = decode_text(path), *header = strstr(text, "\nrequest,");
    ck_assert_msg(strncmp(text, "# unmask decode trace\n", 22) == 0 && header != NULL, "%s", text);
    memmove(text, header, strlen(header) + 1);
    return text;
}

static void check_same_rows(const char *a, const char *b) {
    char *one = rows_of(a), *other = rows_of(b);
    ck_assert_str_eq(one, other);
    free(one);
    free(other);
}

#define REQUESTS 40
#define MANY     "--requests", "40"

/* One system with one setting (KEY=VALUE), recorded and played. */
struct line_up {
    const char *system, *setting;
};

static const struct line_up line_ups[] = {
    {"lmdeploy", "block_tokens=4"},
    {"lmdeploy", "block_tokens=32"},
    {"dc", "block_tokens=4"},
    {"dc+", "block_tokens=32"},
    {"focus", "block_tokens=4"},
    {"focus", "block_tokens=32"},
    {"focus", "cache.history=ema"},
    {"focus", "scheduler.multi_loop=on"},
    {"fast-dllm-v2", "runtime.varlen=on"},
    {"fast-dllm", "decoder=threshold"},
    {"dllm-serve", "decoder=threshold"},
};

TEST(a_run_is_played_again_to_the_same_bytes) {
    const char *first = scratch_path("first.csv"), *second = scratch_path("second.csv");
    for (size_t i = 0; i < sizeof line_ups / sizeof line_ups[0]; i++) {
        const struct line_up *l = &line_ups[i];
        char *recorded = PRINTS("run", "--system", l->system, "--set", l->setting, MANY, "--json",
                                "--decode-out", first);
        char *plain = PRINTS("run", "--system", l->system, "--set", l->setting, MANY, "--json");
        ck_assert_str_eq(recorded, plain);
        char *played = PRINTS("run", "--system", l->system, "--set", l->setting, MANY, "--json",
                              "--decode", first, "--decode-out", second);
        check_same_summary(recorded, played);
        check_same_rows(first, second);
        free(recorded);
        free(plain);
        free(played);
    }
}

#define TOGETHER                                                                                   \
    "--system", "sdar", "--gpu", "h200", "--requests", "4", "--rate", "5", "--set",                \
        "decoder=threshold", "--set", "decoder.threshold=0.3", "--set",                            \
        "confidence=sdar-8b/sharegpt", "--set", "block_tokens=32", "--set", "unroll.maximum=4",    \
        "--set", "unroll.expected_tpf=1", "--json"

/* What starts before its block is known to be done may find it done: it is the block's commit pass,
 * in a trace as without one. */
TEST(steps_started_together_are_played_as_they_ran) {
    const char *first = scratch_path("first.csv"), *second = scratch_path("second.csv");
    char *recorded = PRINTS("run", TOGETHER, "--decode-out", first);
    ck_assert_double_gt(number(recorded, "wasted_request_steps"), 0);
    char *played = PRINTS("run", TOGETHER, "--decode", first, "--decode-out", second);
    check_same_summary(recorded, played);
    check_same_rows(first, second);
    free(recorded);
    free(played);
}

/* Tokens committed and passes of all requests, from a trace's rows. */
static void add_rows(const char *path, double *tokens, double *passes) {
    char *text = rows_of(path);
    *tokens = *passes = 0;
    for (const char *line = strchr(text + 1, '\n') + 1; *line != '\0';
         line = strchr(line, '\n') + 1) {
        unsigned committed, n;
        ck_assert_int_eq(sscanf(line, "%*u,%u,%*u,%*u,%*u,%u", &committed, &n), 2);
        *tokens += (double)committed * n;
        *passes += n;
    }
    free(text);
}

/* Many requests at once; some are preempted where memory is little. */
#define CROWD                                                                                      \
    "--system", "focus", "--set", "block_tokens=32", "--set", "max_requests=300", "--rate", "20",  \
        "--requests", "150", "--json"
#define LITTLE_MEMORY "--set", "memory_utilization=0.55"

TEST(preempted_requests_are_played_as_well) {
    const char *first = scratch_path("first.csv"), *second = scratch_path("second.csv");
    char *recorded = PRINTS("run", CROWD, LITTLE_MEMORY, "--decode-out", first);
    ck_assert_double_gt(number(recorded, "preemptions"), 0);
    char *played = PRINTS("run", CROWD, LITTLE_MEMORY, "--decode", first, "--decode-out", second);
    check_same_summary(recorded, played);
    check_same_rows(first, second);
    free(recorded);
    free(played);
}

TEST(who_is_preempted_in_a_play_alone_runs_his_block_once_more) {
    const char *first = scratch_path("first.csv"), *second = scratch_path("second.csv");
    double tokens[2], passes[2];
    char *recorded = PRINTS("run", CROWD, "--decode-out", first);
    ck_assert_double_eq(number(recorded, "preemptions"), 0);
    char *played = PRINTS("run", CROWD, LITTLE_MEMORY, "--decode", first, "--decode-out", second);
    ck_assert_double_gt(number(played, "preemptions"), 0);
    ck_assert_double_gt(number(played, "block_redundancy"), number(recorded, "block_redundancy"));
    add_rows(first, &tokens[0], &passes[0]);
    add_rows(second, &tokens[1], &passes[1]);
    ck_assert_double_eq(tokens[0], tokens[1]);
    ck_assert_double_eq(passes[0], passes[1]);
    free(recorded);
    free(played);
}

TEST(another_scheduler_or_gpu_changes_times_and_no_decision) {
    const char *trace = scratch_path("first.csv"), *again = scratch_path("second.csv");
    static const char *const other[][2] = {{"--scheduler", "chunked"},
                                           {"--scheduler", "sglang"},
                                           {"--gpu", "a100-40g"},
                                           {"--rate", "7"}};
    char *recorded = PRINTS("run", "--system", "dc+", MANY, "--json", "--decode-out", trace);
    double tokens, passes;
    add_rows(trace, &tokens, &passes);
    ck_assert_double_eq(tokens, number(recorded, "tokens_committed"));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        char *played = PRINTS("run", "--system", "dc+", MANY, "--json", other[i][0], other[i][1],
                              "--decode", trace, "--decode-out", again);
        check_same_rows(trace, again);
        ck_assert_double_ne(number(recorded, "makespan_s"), number(played, "makespan_s"));
        ck_assert_double_eq(number(recorded, "tokens_committed"),
                            number(played, "tokens_committed"));
        free(played);
    }
    /* Drawn anew, other decisions come out. */
    char *drawn = PRINTS("run", "--system", "dc+", MANY, "--json", "--seed", "9");
    ck_assert_double_ne(number(recorded, "request_steps"), number(drawn, "request_steps"));
    free(drawn);
    free(recorded);
}

TEST(requests_that_were_rejected_are_missed_by_nobody) {
    const char *trace = scratch_path("first.csv");
    const char *arrivals = scratch_write("long.csv", "arrival_us,input_tokens,output_tokens\n"
                                                     "0,64,32\n1,40000,32\n2,64,40\n");
    char *recorded =
        PRINTS("run", "--system", "lmdeploy", "--trace", arrivals, "--json", "--decode-out", trace);
    ck_assert_double_eq(number(recorded, "rejected"), 1);
    char *played =
        PRINTS("run", "--system", "lmdeploy", "--trace", arrivals, "--json", "--decode", trace);
    check_same_summary(recorded, played);
    free(recorded);
    free(played);
}

TEST(a_run_says_what_it_played) {
    const char *trace = scratch_path("first.csv");
    free(PRINTS("run", "--system", "dc", MANY, "--decode-out", trace));
    char *head = decode_text(trace);
    static const char *const lines[] = {
        "\n# block_tokens: 4\n", "\n# source: drawn confidences, process kumaraswamy\n",
        "\n# system: dc\n",      "\n# model: sdar-8b\n",
        "\n# cache: delayed\n",  "\n# decoder: threshold\n",
        "\n# seed: 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ck_assert_msg(strstr(head, lines[i]) != NULL, "%s", lines[i]);
    }
    free(head);
    char expected[512];
    char *text = PRINTS("run", "--system", "dc", MANY, "--decode", trace);
    snprintf(expected, sizeof expected,
             "\ndecisions    played from %s, %d requests: drawn confidences, process kumaraswamy\n",
             trace, REQUESTS);
    ck_assert_msg(strstr(text, expected) != NULL, "%s", text);
    free(text);
    text = PRINTS("run", "--system", "dc", MANY, "--decode", trace, "--json");
    snprintf(expected, sizeof expected, ", decisions from %s\"", trace);
    ck_assert_ptr_nonnull(strstr(text, expected));
    free(text);
}

/* What a run of few requests says of its decisions. */
static void check_decisions(const char *system, const char *setting, const char *workload,
                            const char *process, const char *kind) {
    char *text = PRINTS("run", "--system", system, "--gpu", "a100-80g", "--workload", workload,
                        "--requests", "3", "--json", "--set", setting);
    json_t *summary = json_loads(text, 0, NULL), *said = json_object_get(summary, "decisions");
    const char *name = json_string_value(json_object_get(said, "process"));
    const char *word = json_string_value(json_object_get(said, "kind"));
    ck_assert_str_eq(name != NULL ? name : "none", process);
    ck_assert_str_eq(word != NULL ? word : "none", kind);
    ck_assert_int_eq(json_is_true(json_object_get(said, "drawn")), name != NULL);
    const char *error =
        json_string_value(json_object_get(said, "error")); /* of all that is drawn */
    ck_assert(name != NULL ? strpbrk(error, "0123456789") != NULL : error == NULL);
    json_decref(summary);
    free(text);
}

TEST(decisions_are_drawn_by_the_process_of_model_and_workload) {
    const char *none = "replicas=1";
    check_decisions("focus", none, "sharegpt", "sdar-8b/sharegpt", "calibrated");
    check_decisions("dinfer", none, "livecodebench-v6", "llada-moe/lcb-v6", "calibrated");
    check_decisions("focus", none, "burst", "kumaraswamy", "assumed");
    check_decisions("focus", "confidence=kumaraswamy", "sharegpt", "kumaraswamy", "assumed");
    check_decisions("dinfer-0.8", "confidence=llada-td/mbpp", "mbpp", "llada-td/mbpp",
                    "transferred");
    check_decisions("dllm-serve", none, "burst", "none", "none");
    check_decisions("dkv-cache", "decoder=random", "burst", "none", "none");
}

/* The text of the run's warning of that code, or "". */
static const char *warned(const json_t *summary, const char *code) {
    size_t i;
    const json_t *warning;
    json_array_foreach(json_object_get(summary, "warnings"), i, warning) {
        if (strcmp(json_string_value(json_object_get(warning, "code")), code) == 0) {
            return json_string_value(json_object_get(warning, "text"));
        }
    }
    return "";
}

/* Located at 0.95, blocks of 32 and a temperature of 1; FOCUS's Table 5 at 0.9 and 0.8. */
TEST(a_run_that_leaves_the_conditions_of_its_process_says_which) {
    static const struct {
        const char *system, *model, *workload, *set, *says;
    } runs[] = {
        {"sglang", "llada2-mini", "humaneval", "replicas=1", ""},
        {"sglang", "llada2-mini", "humaneval", "decoder.threshold=0.9", "with threshold 0.9 what"},
        {"sglang", "llada2-mini", "humaneval", "block_tokens=16", "with blocks of 16 what"},
        {"sglang", "llada2-mini", "humaneval", "temperature=0.8", "with temperature 0.8 what"},
        {"sglang", "llada2-mini", "humaneval", "decoder=credit", "with decoder credit what"},
        {"sglang", "llada2-mini", "humaneval", "confidence=kumaraswamy", ""},
        {"sglang", "llada2-mini", "humaneval", "decoder=fixed", ""},
        {"lmdeploy-published", "sdar-8b", "math", "replicas=1", ""},
        {"focus-published", "sdar-8b", "math", "replicas=1", "with threshold 0.8 what"},
        {"focus", "sdar-8b", "math", "block_tokens=64",
         "with threshold 0.8, blocks of 64, temperature 1 what"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char *text = PRINTS("run", "--system", runs[i].system, "--model", runs[i].model, "--gpu",
                            "a100-80g", "--workload", runs[i].workload, "--requests", "2", "--set",
                            runs[i].set, "--json");
        json_t *summary = json_loads(text, 0, NULL);
        const char *said = warned(summary, "decisions-moved");
        ck_assert_msg(runs[i].says[0] == '\0' ? said[0] == '\0'
                                              : strstr(said, runs[i].says) != NULL,
                      "%s %s: %s", runs[i].system, runs[i].set, said);
        json_decref(summary);
        free(text);
    }
}

/* Tokens a pass of the printed kind: without the pass that stores a block. */
TEST(workloads_of_one_model_decode_at_the_rates_printed_for_them) {
    static const struct {
        const char *workload;
        double printed;
    } tasks[] = {{"humaneval", 5.16}, {"gsm8k", 2.41}, {"ifeval", 1.24}};
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        char *text =
            PRINTS("run", "--system", "sglang", "--model", "llada2-mini", "--gpu", "h200",
                   "--workload", tasks[i].workload, "--requests", "40", "--set",
                   "workload.output=fixed", "--set", "workload.output.tokens=256", "--json");
        json_t *summary = json_loads(text, 0, NULL);
        double passes = 32 / json_number_value(json_object_get(summary, "tpf")) - 1;
        ck_assert_msg(fabs(32 / passes / tasks[i].printed - 1) < 0.08, "%s: %g", tasks[i].workload,
                      32 / passes);
        json_decref(summary);
        free(text);
    }
}

TEST(a_recorded_run_that_played_a_trace_is_replayed_with_it) {
    const char *trace = scratch_path("first.csv"), *db = scratch_path("played.db");
    free(PRINTS("run", "--system", "focus", MANY, "--seed", "5", "--decode-out", trace));
    char *played = PRINTS("run", "--system", "focus", MANY, "--seed", "5", "--scheduler", "chunked",
                          "--decode", trace, "--db", db, "--levels", "steps", "--json");
    char *replayed = PRINTS("replay", "--db", db, "--run", "1", "--json");
    size_t length = strlen(played) - strlen("\n}\n");
    ck_assert_msg(strncmp(played, replayed, length) == 0, "%s%s", played, replayed);
    free(played);
    free(replayed);
    char sentence[512];
    char *text = decode_text(trace), *row = strrchr(text, '\n') - 1;
    *row = *row == '1' ? '2' : '1'; /* passes of the last row */
    decode_write(trace, text);
    free(text);
    snprintf(sentence, sizeof sentence, "%s has other passes than when run 1 played it", trace);
    REFUSES(1, sentence, "replay", "--db", db, "--run", "1");
    remove(trace);
    snprintf(sentence, sizeof sentence, "cannot open %s: No such file or directory", trace);
    REFUSES(1, sentence, "replay", "--db", db, "--run", "1");
}

TEST(what_cannot_be_played_is_refused_in_one_sentence) {
    const char *trace = scratch_path("first.csv");
    char sentence[512];
    free(PRINTS("run", "--system", "lmdeploy", MANY, "--decode-out", trace));
    REFUSES(1, "cannot open nope.csv: No such file or directory", "run", "--decode", "nope.csv");
    REFUSES(2, "--decode is for simulated runs: the back end cpu decides itself", "run",
            "--backend", "cpu", "--model", "llada-tiny", "--decode", trace);
    snprintf(sentence, sizeof sentence, "%s is of blocks of 4 tokens, the system's have 32", trace);
    REFUSES(2, sentence, "run", "--system", "fast-dllm", "--decoder", "threshold", "--decode",
            trace);
    snprintf(sentence, sizeof sentence, "%s has no request 40", trace);
    REFUSES(1, sentence, "run", "--system", "lmdeploy", "--requests", "41", "--decode", trace);
    snprintf(sentence, sizeof sentence,
             "%s commits 256 tokens of request 0, the workload wants 64: it was recorded with "
             "another one",
             trace);
    REFUSES(1, sentence, "run", "--system", "lmdeploy", MANY, "--output-tokens", "64", "--decode",
            trace);
    const char *bad = scratch_path("bad.trace");
    decode_write(bad, DECODE_HEAD DECODE_HEADER "0,9,4,4,4,1\n");
    snprintf(sentence, sizeof sentence,
             "%s: pass 1 of request 0: found '9' in committed, expected 0 to 4, the positions kept",
             bad);
    REFUSES(1, sentence, "run", "--system", "lmdeploy", MANY, "--decode", bad);
}

TEST(an_output_replaces_only_its_own_kind_and_only_when_it_is_whole) {
    const char *trace = scratch_path("first.csv"), *db = scratch_path("kept.db");
    char sentence[512];
    free(PRINTS("run", "--system", "dc", MANY, "--decode-out", trace, "--db", db));
    char *before = decode_text(trace);
    snprintf(sentence, sizeof sentence,
             "'%s' is the decode trace that is played: it is not overwritten", trace);
    REFUSES(2, sentence, "run", "--system", "dc", MANY, "--decode", trace, "--decode-out", trace);
    snprintf(sentence, sizeof sentence,
             "'%s' exists and is not a decode trace: it is not overwritten", db);
    REFUSES(2, sentence, "run", "--system", "dc", MANY, "--decode-out", db);
    REFUSES(1, "cannot write '/nowhere/x': No such file or directory", "run", "--system", "dc",
            MANY, "--decode-out", "/nowhere/x");
    REFUSES(1, "cannot write '/dev/full': it is not a file", "run", "--system", "dc", MANY,
            "--decode-out", "/dev/full");
    struct output output;
    /* Cut short, it leaves what was there, and nothing else. */
    output = CLI_AS(&(const struct child){.interrupt_after = 3000000}, "run", "--system", "dc",
                    "--requests", "1000000", "--decode-out", trace);
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
    ck_assert_ptr_null(scratch_unfinished(trace));
    char *after = decode_text(trace);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    free(PRINTS("run", "--system", "focus", MANY, "--decode-out", trace)); /* its own kind */
}

/* A threshold at which these random weights commit one position in some passes, more in others. */
#define SMALL                                                                                      \
    "--set", "block_tokens=4", "--set", "reserve_bytes=16MiB", "--set", "memory_utilization=0.04", \
        "--set", "max_batched_tokens=512", "--roofline", "--requests", "6", "--rate", "100",       \
        "--input-tokens", "14", "--output-tokens", "13", "--decoder", "threshold", "--set",        \
        "decoder.threshold=0.013", "--json"

TEST(what_a_model_decided_is_played_by_the_simulator) {
    const char *trace = scratch_path("live.csv"), *again = scratch_path("again.csv");
    static const char *const live_ones[][2] = {
        {"dllm-serve", "llada-tiny"}, {"fast-dllm", "dream-tiny"}, {"lmdeploy", "sdar-tiny"}};
    for (int i = 0; i < 3; i++) {
        const char *system = live_ones[i][0], *model = live_ones[i][1];
        char *live = PRINTS("run", "--system", system, "--model", model, SMALL, "--backend", "cpu",
                            "--clock", "virtual", "--decode-out", trace);
        char *played =
            PRINTS("run", "--system", system, "--model", model, SMALL, "--gpu", "cpu", "--set",
                   "storage.weights=f32", "--decode", trace, "--decode-out", again);
        static const char *const keys[] = {"completed", "request_steps", "tokens_committed"};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            ck_assert_double_eq(number(live, keys[k]), number(played, keys[k]));
        }
        check_same_rows(trace, again);
        char expected[128], *head = decode_text(trace);
        snprintf(expected, sizeof expected, "\n# source: decided by %s with weights random:1 on ",
                 model);
        ck_assert_msg(strstr(head, expected) != NULL, "%s", head);
        double tokens, passes;
        add_rows(trace, &tokens, &passes);
        ck_assert_double_eq(tokens, 6 * 13);
        ck_assert_double_lt(passes, number(live, "request_steps") + 1);
        free(head);
        free(live);
        free(played);
    }
}

/* Decisions of 64 prompts, served 150 times over under other schedulers, GPUs and loads: what is
 * committed is the prompts' own, when it happens is not. */
TEST(measured_decisions_are_replayed_under_another_scheduler_gpu_and_load) {
    static const char *const ways[][6] = {
        {"--gpu", "h100", "--scheduler", "chunked", "--rate", "20"},
        {"--gpu", "l40s", "--scheduler", "sglang", "--rate", "20"},
        {"--gpu", "l40s", "--scheduler", "chunked", "--rate", "200"},
    };
    double answers = 0, makespan = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const char *const *way = ways[i];
        char *text =
            PRINTS("run", "--system", "sdar", "--set", "block_tokens=32", "--decode",
                   "traces/samples/hops_threshold_0.9.db", "--workload",
                   "traces/samples/hops_threshold_0.9.db", "--arrivals", "poisson", "--requests",
                   "150", way[0], way[1], way[2], way[3], way[4], way[5], "--json");
        ck_assert_double_eq(number(text, "completed"), 150);
        ck_assert(i == 0 || number(text, "answer_tokens") == answers);
        ck_assert(i == 0 || number(text, "makespan_s") != makespan);
        answers = number(text, "answer_tokens");
        makespan = number(text, "makespan_s");
        free(text);
    }
}

TEST(a_process_that_is_judged_is_not_written) {
    REFUSES(2,
            "--out writes a process that was fitted, and --process fits none: 'kumaraswamy' stays "
            "as it is",
            "fit", "decode", "--process", "kumaraswamy", "--judge",
            "traces/samples/hops_threshold_0.9.db", "--out", scratch_path("judged.ini"));
}

/* A process that measured decisions judged says how far it was from them, any other how far its
 * shape was from what was printed and not fitted to. */
TEST(an_output_states_the_error_of_the_process_that_it_draws_from) {
    char *judged = PRINTS("run", "--system", "sdar", "--requests", "4", "--set",
                          "confidence=sdar-2m/hops", "--json");
    char *other = PRINTS("run", "--system", "sdar", "--requests", "4", "--set",
                         "confidence=sdar-8b/sharegpt", "--json");
    ck_assert_ptr_nonnull(strstr(judged, "\"error\": \"tokens a pass 6 % (at most 13)"));
    ck_assert_ptr_nonnull(
        strstr(other, "\"error\": \"tokens a pass 1 to 5 % off on points left out"));
    free(judged);
    char *under_focus = PRINTS("run", "--system", "focus", "--requests", "2", "--set",
                               "confidence=sdar-8b/sharegpt", "--json"),
         *under_threshold = PRINTS("run", "--system", "sdar", "--requests", "2", "--set",
                                   "confidence=sdar-8b/sharegpt", "--json");
    ck_assert_ptr_nonnull(strstr(under_focus, "tokens run -18 to +5 % off on Table 5"));
    ck_assert_ptr_nonnull(strstr(under_threshold, "on points left out of the curve (threshold)"));
    free(under_focus);
    free(under_threshold);
    free(other);
}

/* The page's own prompt; whatever is a text, the shipped models are said to know little. */
TEST(the_prompt_of_the_page_is_answered_rightly_with_a_warning) {
    static const char prompt[] = "A kid has 15 toys. His friend has 7 fewer toys than he has. "
                                 "How many toys do they have together?";
    char *page = scratch_read("docs/engine.md");
    ck_assert_ptr_nonnull(strstr(page, prompt));
    free(page);
    struct output output = CLI("generate", "--backend", "cpu", "--weights",
                               "experiments/train/models/sdar-2m", "--text", prompt);
    ck_assert_int_eq(output.status, 0);
    ck_assert_ptr_nonnull(strstr(output.out, "#### 23"));
    ck_assert_ptr_nonnull(strstr(output.err, "experiments/train/prompts alone"));
    output_free(&output);
    output = CLI("generate", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m",
                 "--ids", "2,5,9", "--output-tokens", "4");
    ck_assert_ptr_null(strstr(output.err, "experiments/train/prompts alone"));
    output_free(&output);
    output = CLI("generate", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m",
                 "--prompts", scratch_write("free.jsonl", "{\"prompt\": \"Tell me of Paris\"}\n"),
                 "--output-tokens", "4");
    ck_assert_int_eq(output.status, 0);
    ck_assert_ptr_nonnull(strstr(output.err, "experiments/train/prompts alone"));
    output_free(&output);
}

SUITE("decode cli")
