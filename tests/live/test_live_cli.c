/* The command line with a device behind it: run, replay and generate on the CPU. */
#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/system.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/outputs.h"

/* A small system on a small model, in little memory; priced by the data sheet. */
#define SMALL_SYSTEM                                                                               \
    "--model", "llada-tiny", "--set", "block_tokens=4", "--set", "steps_per_block=2", "--set",     \
        "reserve_bytes=16MiB", "--set", "memory_utilization=0.04", "--set",                        \
        "max_batched_tokens=512"
#define SMALL   SMALL_SYSTEM, "--roofline"
#define TRAFFIC "--requests", "5", "--rate", "100", "--input-tokens", "12", "--output-tokens", "10"
#define LIVE    "--backend", "cpu", "--clock", "virtual"

/* How often a word stands in a text. */
static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/* The program ends with this status and one sentence, in which this stands. */
static void complains(struct output output, int status, const char *words) {
    ck_assert_msg(output.status == status, "status %d: %s", output.status, output.err);
    ck_assert_msg(strstr(output.err, words) != NULL, "%s", output.err);
    ck_assert_msg(strncmp(output.err, "unmask: ", 8) == 0 && count(output.err, "\n") == 1, "%s",
                  output.err);
    ck_assert_str_eq(output.out, "");
    output_free(&output);
}

TEST(a_live_run_prints_what_it_ran_on_and_what_was_metered) {
    char *text = PRINTS("run", SMALL, TRAFFIC, LIVE);
    ck_assert_msg(strstr(text, "dllm-serve, llada-tiny on cpu (cpu backend, ") != NULL, "%s", text);
    ck_assert_ptr_null(strstr(text, "emulated"));
    ck_assert_ptr_nonnull(strstr(text, "\nweights      random:1\n"));
    ck_assert_ptr_nonnull(strstr(text, "5 completed of 5"));
    const char *overhead = strstr(text, " of it not the device's ");
    char sign;
    ck_assert(overhead != NULL && sscanf(overhead, " of it not the device's %*f %c", &sign) == 1);
    ck_assert_int_eq(sign, '%');
    ck_assert_ptr_nonnull(strstr(text, "\ntimes        measured on "));
    ck_assert_ptr_nonnull(strstr(text, ", clock virtual\n"));
    ck_assert_ptr_nonnull(strstr(text, "\npredictions from roofline: "));
    ck_assert_ptr_null(strstr(text, "prices from"));
    free(text);
    text = PRINTS("run", SMALL, TRAFFIC, LIVE, "--json");
    static const char *const keys[] = {
        "\"backend\": \"cpu\"",  "\"weights\": \"random:1\"", "\"incomplete\": null",
        "\"planned_bytes\": ",   "\"metered_bytes\": ",       "\"side_bytes\": ",
        "\"kv_peak_bytes\": ",   "\"overhead\": 0.",          "\"times\": \"measured on ",
        "\"clock\": \"virtual\""};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ck_assert_msg(strstr(text, keys[i]) != NULL, "%s in %s", keys[i], text);
    }
    free(text);
    text = PRINTS("run", SMALL, TRAFFIC, LIVE, "--gpu", "h200", "--set", "memory_utilization=0.01");
    ck_assert_ptr_nonnull(strstr(text, "(cpu backend, emulated on "));
    ck_assert_ptr_nonnull(strstr(text, "\ntimes        measured on "));
    ck_assert_ptr_null(strstr(text, "measured on emulated"));
    free(text);
}

/* Records a live run; `more` NULL or one more pair of words. */
static char *record(const char *db, const char *option, const char *value) {
    const char *words[] = {"run",      SMALL,   TRAFFIC,  LIVE,   "--db", db,
                           "--levels", "steps", "--json", option, value,  NULL};
    return cli_text(cli_run(&(const struct child){0}, words));
}

TEST(a_replay_of_a_live_run_prints_its_summary_and_the_accuracy) {
    static const char *const caches[] = {"none", "prefix", "dual", "sparse-uniform", "sparse-head"};
    for (int i = 0; i < 5; i++) {
        const char *db = scratch_path(caches[i]);
        char *recorded = record(db, "--cache", caches[i]);
        char *replayed = PRINTS("replay", "--db", db, "--run", "1", "--json");
        size_t length = strlen(recorded) - strlen("\n}\n");
        ck_assert_msg(strncmp(recorded, replayed, length) == 0, "%s%s", recorded, replayed);
        ck_assert_ptr_nonnull(strstr(replayed + length, "\"accuracy\": {"));
        ck_assert_ptr_nonnull(strstr(replayed + length, "\"measured\": \"recorded\""));
        ck_assert_ptr_nonnull(strstr(replayed + length, "\"weights\": null"));
        free(recorded);
        free(replayed);
    }
}

TEST(a_recorded_run_is_carried_out_again_step_by_step_and_operator_by_operator) {
    const char *db = scratch_path("again"), *csv = scratch_path("steps.csv");
    /* Far apart, so that every step is of one request and of one kind. */
    free(PRINTS("run", SMALL, LIVE, "--requests", "3", "--rate", "0.001", "--input-tokens", "12",
                "--output-tokens", "10", "--decoder", "threshold", "--db", db, "--levels",
                "steps"));
    char *text = PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--operators", "3",
                        "--steps", csv);
    ck_assert_ptr_nonnull(strstr(text, "every submission carried out: "));
    ck_assert_ptr_nonnull(strstr(text, "predicted against measured"));
    ck_assert_ptr_nonnull(strstr(text, "\nselecting "));
    ck_assert_ptr_nonnull(strstr(text, "\nreuse "));
    ck_assert_ptr_nonnull(strstr(text, "shared out so that they add up to the step run whole"));
    ck_assert_ptr_nonnull(strstr(text, "\nqkv "));
    FILE *file = fopen(csv, "r");
    ck_assert_ptr_nonnull(file);
    char *rows = cli_read(file);
    fclose(file);
    ck_assert_int_eq(strncmp(rows, "submission,kind,steps,", 22), 0);
    int n_rows = count(rows, "\n") - 1, n_played = 0;
    const char *line = strstr(text, "\nreplay       ");
    ck_assert_int_eq(sscanf(line, "\nreplay %d submissions", &n_played), 1);
    ck_assert_int_eq(n_rows, n_played);
    free(rows);
    free(text);
    /* Written again, but never over something else. */
    free(PRINTS("replay", "--db", db, "--run", "1", "--steps", csv));
    struct output output = CLI("replay", "--db", db, "--run", "1", "--steps", db);
    ck_assert_int_eq(output.status, 2);
    output_free(&output);
}

/* Positions that lie scattered: run, recorded, simulated with what was recorded, carried out again,
 * and one step of them by operator, whatever the requests' draws list of it. */
TEST(every_command_takes_steps_of_scattered_positions) {
    static const char *const decoders[] = {"decoder=fixed", "decoder=random"};
    static const char *const steps[] = {"0", "3", "7"};
    for (int i = 0; i < 2; i++) {
        const char *db = scratch_path(decoders[i]), *trace = scratch_path("scattered.csv");
        char *live = PRINTS("run", SMALL, TRAFFIC, LIVE, "--set", "steps_per_block=4", "--system",
                            "dkv-cache", "--set", decoders[i], "--db", db, "--levels", "steps",
                            "--decode-out", trace, "--json");
        char *played =
            PRINTS("run", SMALL, TRAFFIC, "--set", "steps_per_block=4", "--system", "dkv-cache",
                   "--set", decoders[i], "--gpu", "cpu", "--decode", trace, "--json");
        ck_assert_ptr_nonnull(strstr(live, "\"completed\": 5,"));
        ck_assert_ptr_nonnull(strstr(played, "\"completed\": 5,"));
        free(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--operators", "2"));
        for (int step = 0; step < 3; step++) {
            char *text = PRINTS("explain", SMALL, "--gpu", "cpu", "--backend", "cpu", "--system",
                                "dkv-cache", "--set", decoders[i], "--set", "block_tokens=8",
                                "--set", "steps_per_block=4", "--requests", "3", "--prompt", "12",
                                "--output", "18", "--rounds", "2", "--step", steps[step]);
            ck_assert_ptr_nonnull(strstr(text, step == 0 ? "(refresh)" : "(reuse)"));
            free(text);
        }
        free(played);
        free(live);
    }
}

/* Continues whatever the test runs, every millisecond for some seconds. */
static pid_t continue_all(void) {
    const pid_t program = fork();
    ck_assert_int_ge(program, 0);
    for (int i = 0; program == 0 && i < 5000; i++) {
        system_nap(1000000);
        kill(0, SIGCONT);
    }
    if (program == 0) {
        _exit(0);
    }
    return program;
}

TEST(a_run_that_was_stopped_says_so_in_its_record) {
    const char *db = scratch_path("stopped.db");
    const pid_t program = continue_all();
    char *live = PRINTS("run", SMALL, TRAFFIC, LIVE, "--db", db, "--levels", "steps", "--json");
    kill(program, SIGKILL);
    ck_assert_int_eq(waitpid(program, NULL, 0), program);
    char *played = PRINTS("replay", "--db", db, "--run", "1", "--json");
    ck_assert_msg(strstr(live, "\"process-stopped\"") != NULL, "%s", live);
    ck_assert_ptr_nonnull(strstr(played, "\"process-stopped\""));
    free(live);
    free(played);
}

TEST(a_simulated_schedule_is_carried_out_on_the_device) {
    const char *db = scratch_path("simulated");
    free(PRINTS("run", SMALL, TRAFFIC, "--gpu", "cpu", "--set", "storage.weights=f32", "--db", db,
                "--levels", "steps"));
    char *text = PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"measured_on\": "));
    ck_assert_ptr_nonnull(strstr(text, "\"backend\": \"sim\""));
    ck_assert_ptr_nonnull(strstr(text, "\"times\": \"simulated\""));
    ck_assert_ptr_nonnull(strstr(text, "\"measured\": \"now\""));
    const char *played = strstr(text, "\"replay\": {");
    ck_assert(played != NULL && strstr(played, "\"weights\": \"random:1\"") != NULL);
    free(text);
    text = PRINTS("replay", "--db", db, "--run", "1", "--json");
    ck_assert_ptr_null(strstr(text, "accuracy"));
    free(text);
    REFUSES(2,
            "run 1 was simulated, so that nothing was measured; --steps needs --backend cpu or "
            "cuda",
            "replay", "--db", db, "--run", "1", "--steps", scratch_path("none.csv"));
    REFUSES(2, "--operators measures: it needs --backend cpu or cuda", "replay", "--db", db,
            "--run", "1", "--operators", "2");
}

TEST(a_prompt_is_decoded_to_the_same_tokens_however_it_is_given) {
    const char *file = scratch_write("prompt.ids", "1, 22\n333\t4\n");
    char *text = PRINTS("generate", SMALL_SYSTEM, "--backend", "cpu", "--ids", "1,22,333,4",
                        "--output-tokens", "9");
    int id, n = 0, used;
    for (const char *at = text; sscanf(at, "%d%n", &id, &used) == 1; at += used) {
        ck_assert(id >= 0 && id < 1024);
        n++;
    }
    ck_assert_int_eq(n, 9);
    ck_assert_int_eq(count(text, " "), 8);
    char *from_file = PRINTS("generate", SMALL_SYSTEM, "--backend", "cpu", "--ids-file", file,
                             "--output-tokens", "9");
    ck_assert_str_eq(text, from_file);
    char *other = PRINTS("generate", SMALL_SYSTEM, "--backend", "cpu", "--ids", "1,22,333,4",
                         "--output-tokens", "9", "--weights", "random:2");
    ck_assert_str_ne(text, other);
    char *object = PRINTS("generate", SMALL_SYSTEM, "--backend", "cpu", "--ids", "1,22,333,4",
                          "--output-tokens", "9", "--seed", "3", "--json");
    static const char *const keys[] = {"\"system\": \"dllm-serve\"", "\"model\": \"llada-tiny\"",
                                       "\"backend\": \"cpu\"",       "\"device\": \"",
                                       "\"weights\": \"random:1\"",  "\"seed\": 3",
                                       "\"prompt_tokens\": 4"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ck_assert_msg(strstr(object, keys[i]) != NULL, "%s in %s", keys[i], object);
    }
    free(object);
    free(other);
    free(from_file);
    free(text);
}

/* What is decoded in the middle is made the end. */
TEST(generate_stops_at_the_end_of_text) {
#define OUTPUT                                                                                     \
    "generate", SMALL_SYSTEM, "--backend", "cpu", "--ids", "1,22,333,4", "--output-tokens", "16"
    char *whole = PRINTS(OUTPUT), ids[64], expected[128] = "";
    int tokens[16], used = 0, at = 0, first = 0;
    for (int i = 0; i < 16 && first == 0; i++) {
        ck_assert_int_eq(sscanf(whole + at, "%d%n", &tokens[i], &used), 1);
        at += used;
        int is_new = i >= 4; /* in a block behind the first */
        for (int j = 0; j < i; j++) {
            is_new = is_new && tokens[j] != tokens[i];
        }
        first = is_new ? i : 0;
    }
    ck_assert_int_gt(first, 0);
    ck_assert_int_lt(first, 12);
    snprintf(expected, sizeof expected, "%.*s\n", at, whole);
    snprintf(ids, sizeof ids, "%d,%d", tokens[first], tokens[first]);
    char *off = PRINTS(OUTPUT, "--eos", ids), *json = PRINTS(OUTPUT, "--eos", ids, "--json"),
         *block = PRINTS(OUTPUT, "--eos", ids, "--set", "early_stop=block", "--json"),
         *none = PRINTS(OUTPUT, "--eos", "none");
    ck_assert_str_eq(off, expected);
    ck_assert_str_eq(none, whole);
    ck_assert_ptr_nonnull(strstr(json, "\"decoded_tokens\": 16"));
    char decoded[48];
    snprintf(decoded, sizeof decoded, "\"decoded_tokens\": %d,", (first / 4 + 1) * 4);
    ck_assert_ptr_nonnull(strstr(block, decoded));
    REFUSES(2,
            "--eos: found '1024', expected none or up to 16 token ids of llada-tiny from 0 to "
            "1023, separated by commas",
            OUTPUT, "--eos", "1024");
    REFUSES(2, "--eos is for the back ends cpu and cuda", "run", SMALL, "--eos", "1");
#undef OUTPUT
    free(whole);
    free(off);
    free(json);
    free(block);
    free(none);
}

/* Recorded with what ended them, and played again without a model's word. */
TEST(live_runs_whose_texts_end_are_played_again) {
    const char *db = scratch_path("ends.db"), *decode = scratch_path("ends.csv");
    char *run = PRINTS("run", SMALL, TRAFFIC, LIVE, "--set", "early_stop=block", "--eos",
                       "52,255,428,850,830", "--db", db, "--levels", "steps", "--decode-out",
                       decode, "--json");
    ck_assert_ptr_nonnull(strstr(run, "\"kind\": \"measured\""));
    ck_assert_ptr_null(strstr(run, "answers-assumed"));
    free(PRINTS("replay", "--db", db, "--run", "1"));
    free(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu"));
    char *played = PRINTS("run", SMALL, TRAFFIC, "--set", "early_stop=block", "--set",
                          "decoder=threshold", "--decode", decode, "--json");
    static const char *const keys[] = {
        "\"answer_tokens\": ", "\"tokens_committed\": ", "\"request_steps\": "};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *a = strstr(run, keys[i]), *b = strstr(played, keys[i]);
        ck_assert_msg(a != NULL && b != NULL, "%s", keys[i]);
        ck_assert_int_eq(atoi(a + strlen(keys[i])), atoi(b + strlen(keys[i])));
    }
    ck_assert_int_lt(atoi(strstr(run, keys[0]) + strlen(keys[0])), 50);
    free(run);
    free(played);
}

TEST(a_prompt_that_cannot_be_decoded_is_refused_in_one_sentence) {
#define GENERATE "generate", SMALL_SYSTEM, "--backend", "cpu"
    REFUSES(2, "--ids: '1024' is no token of llada-tiny, whose ids are 0 to 1023", GENERATE,
            "--ids", "1,1024", "--output-tokens", "4");
    REFUSES(2, "--ids: '-1' is no token of llada-tiny, whose ids are 0 to 1023", GENERATE,
            "--ids=-1", "--output-tokens", "4");
    REFUSES(2, "--ids: '2x' is no token of llada-tiny, whose ids are 0 to 1023", GENERATE, "--ids",
            "1 2x", "--output-tokens", "4");
    REFUSES(2, "--ids names no token", GENERATE, "--ids", " ", "--output-tokens", "4");
    REFUSES(2, "--ids: there is no token before a comma", GENERATE, "--ids", "1,,3",
            "--output-tokens", "4");
    REFUSES(2, "--ids: there is no token before a comma", GENERATE, "--ids", ",1",
            "--output-tokens", "4");
    REFUSES(2, "--ids: there is no token after the last comma", GENERATE, "--ids", "1, ",
            "--output-tokens", "4");
    REFUSES(2, "generate takes one of --text, --prompts, --ids and --ids-file", GENERATE, "--ids",
            "1", "--ids-file", "x", "--output-tokens", "4");
    complains(CLI(GENERATE, "--ids", "1", "--output-tokens", "4", "--roofline"), 2, "--roofline");
    REFUSES(
        2, "generate needs a prompt: --text TEXT, --prompts FILE, --ids N,N,... or --ids-file FILE",
        GENERATE, "--output-tokens", "4");
    REFUSES(2, "generate decodes on a device: it needs --backend cpu or cuda", "generate",
            SMALL_SYSTEM, "--ids", "1", "--output-tokens", "4");
    complains(CLI(GENERATE, "--ids-file", "/nowhere/prompt", "--output-tokens", "4"), 1,
              "/nowhere/prompt: No such file");
    REFUSES(
        2,
        "--ids: 2 tokens of prompt and 300 of output do not run: rejected for context (256 tokens "
        "of context)",
        GENERATE, "--ids", "1,2", "--output-tokens", "300", "--set", "context_tokens=256");
#undef GENERATE
}

TEST(what_cannot_be_run_is_said_in_one_sentence) {
    REFUSES(2, "--backend: this program has no 'tpu'; it has: sim, cpu, cuda", "run", "--backend",
            "tpu");
    REFUSES(2, "--weights is for the back ends cpu and cuda", "run", "--weights", "random:1");
    REFUSES(2, "--clock is for the back ends cpu and cuda", "run", "--clock", "real");
    REFUSES(2, "--clock: 'lunar' is neither real nor virtual", "run", SMALL, "--backend", "cpu",
            "--clock", "lunar");
    REFUSES(2,
            "does not run live on the CPU, for it has numbers in another type than f32: the cpu "
            "back end computes in float32; set storage.weights = f32 and leave the others at auto",
            "run", SMALL, LIVE, "--set", "storage.weights=bf16");
    REFUSES(2,
            "'1.5' is not a value for transfer_ratio of cache dllm-cache: expected a number from 0 "
            "to 1",
            "run", SMALL, LIVE, "--system", "dllm-cache", "--set", "cache.transfer_ratio=1.5");
    REFUSES(2,
            "'0' is not a value for prompt_interval_steps of cache dllm-cache: expected an integer "
            "from 1",
            "run", SMALL, LIVE, "--system", "dllm-cache", "--set", "cache.prompt_interval_steps=0");
    REFUSES(
        2, "'1.5' is not a value for skip of cache sparse-attention: expected a number from 0 to 1",
        "run", SMALL, LIVE, "--system", "sparsed", "--set", "cache.skip=1.5");
    REFUSES(2,
            "'1.01' is not a value for select of cache sparse-attention: expected a number from 0 "
            "to 1",
            "run", SMALL, LIVE, "--system", "sparsed", "--set", "cache.select=1.01");
    REFUSES(2,
            "'0' is not a value for pattern_tokens of cache sparse-attention: expected an integer "
            "from 1",
            "run", SMALL, LIVE, "--system", "sparsed", "--set", "cache.pattern_tokens=0");
    REFUSES(2, "is block-causal, and cache sparse-attention is for bidirectional models", "run",
            "--system", "sparsed", "--model", "sdar-4b");
    complains(CLI("run", SMALL, "--backend", "cuda", "--library", "/nowhere/lib.so"), 1,
              "/nowhere/lib.so");
    complains(CLI("run", SMALL, LIVE, "--weights", "/nowhere/model"), 1, "/nowhere/model");
    complains(CLI("run", SMALL, LIVE, "--weights", "tests/golden/engine/dream-tiny"), 1,
              "tests/golden/engine/dream-tiny");
    complains(CLI("run", "--model", "llada-8b", "--gpu", "h200", LIVE, "--roofline"), 1,
              " are missing (memory_utilization = ");
}

/* What an eviction leaves is asked for in the middle of a step, in whichever replica's thread. */
TEST(replicas_are_in_one_record_which_is_played_again_and_by_their_engines) {
    const char *const systems[][3] = {{"dllm-serve", "llada-tiny", "block_tokens=4"},
                                      {"focus", "sdar-tiny", "block_tokens=8"}};
    for (int i = 0; i < 2; i++) {
        const char *db = scratch_path(i == 0 ? "kv.db" : "focus.db");
        const char *trace = scratch_path(i == 0 ? "kv.decode" : "focus.decode");
        free(PRINTS("run", "--system", systems[i][0], "--model", systems[i][1], "--set",
                    systems[i][2], "--roofline", "--set", "reserve_bytes=16MiB", "--set",
                    "memory_utilization=0.04", "--set", "max_batched_tokens=512", LIVE, TRAFFIC,
                    "--replicas", "2", "--router", "round-robin", "--db", db, "--levels", "steps",
                    "--decode-out", trace));
        ck_assert_int_eq(sql_integer(db, "SELECT count(DISTINCT replica) FROM requests"), 2);
        ck_assert_int_eq(sql_integer(db, "SELECT count(DISTINCT replica) FROM steps"), 2);
        ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM requests"), 5);
        free(PRINTS("replay", "--db", db, "--run", "1"));
        free(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu"));
    }
}

/* Each engine by itself finds room in memory that is taken as it is written. */
TEST(replicas_that_the_host_has_no_memory_for_are_refused_before_they_are_opened) {
    if (system_free_bytes() < INT64_C(40) << 30) {
        complains(CLI("run", "--system", "dllm-serve", "--model", "llada-moe-tiny", "--roofline",
                      LIVE, "--replicas", "1024", "--requests", "1"),
                  1, " more memory than the first one on this machine, which has ");
    }
}

TEST(an_interrupted_live_run_is_kept_as_incomplete) {
    const char *db = scratch_path("cut.db");
    /* One request at once, the next in a month. */
    const char *trace = scratch_write("sparse.csv", "arrival_us,input_tokens,output_tokens\n"
                                                    "0,12,8\n3000000000000,12,8\n");
    struct output output =
        CLI_AS(&(const struct child){.interrupt_after = 3000000}, "run", SMALL, "--backend", "cpu",
               "--trace", trace, "--requests", "2", "--db", db, "--levels", "steps");
    ck_assert_msg(output.status == 1, "status %d: %s", output.status, output.err);
    ck_assert_msg(strstr(output.err,
                         "unmask: interrupted: complete requests 1 (the numbers are of these), "
                         "rejected ones that waited or ran 0, 1 of the 2 wanted had not arrived. "
                         "The run was recorded as incomplete\n") != NULL,
                  "%s", output.err);
    ck_assert_ptr_nonnull(
        strstr(output.out, "\nincomplete   interrupted: 1 of the 2 wanted had not arrived\n"));
    output_free(&output);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM requests"), 1);
    output = CLI("replay", "--db", db, "--run", "1");
    ck_assert_msg(output.status == 0, "%s", output.err);
    ck_assert_ptr_nonnull(strstr(output.err, "unmask: run 1 is incomplete and is played as far"));
    ck_assert_ptr_nonnull(
        strstr(output.out, "\nincomplete   interrupted: 1 of the 2 wanted had not arrived\n"));
    ck_assert_ptr_nonnull(strstr(output.out, "played as recorded, up to where the run was cut"));
    output_free(&output);
    const char *page = scratch_path("cut.html");
    free(PRINTS("report", db, "--out", page));
    FILE *file = fopen(page, "r");
    ck_assert_ptr_nonnull(file);
    char *text = cli_read(file);
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "\"incomplete\":\"interrupted"));
    ck_assert_ptr_nonnull(strstr(text, "\"backend\":\"cpu\""));
    ck_assert_ptr_nonnull(strstr(text, "\"clock\":\"real\""));
    free(text);
}

/* The run failed late, with this word in its sentence, but its summary was printed. */
static void keeps_summary(struct output output, const char *printed, const char *word) {
    ck_assert_msg(output.status == 1, "status %d: %s", output.status, output.err);
    ck_assert_msg(strstr(output.err, word) != NULL, "%s", output.err);
    ck_assert_msg(strstr(output.out, printed) != NULL, "%s", output.out);
    output_free(&output);
}

TEST(a_record_that_fails_late_takes_no_summary_away) {
    const char *db = scratch_path("late.db");
    const struct child small_disk = {.max_file_bytes = 1 << 15};
    free(PRINTS("run", SMALL, TRAFFIC, "--db", db));
#define LATE                                                                                       \
    "run", SMALL, "--requests", "60", "--rate", "100", "--input-tokens", "12", "--output-tokens",  \
        "10", "--db", db, "--levels", "events"
    keeps_summary(CLI_AS(&small_disk, LATE), "60 completed of 60", "late.db");
    keeps_summary(CLI_AS(&small_disk, LATE, LIVE), "60 completed of 60", "late.db");
    keeps_summary(CLI_AS(&small_disk, LATE, LIVE, "--json"), "\"completed\": 60,", "late.db");
#undef LATE
    keeps_summary(CLI_AS(&(const struct child){.max_file_bytes = 4096}, "run", SMALL, LIVE,
                         "--requests", "60", "--rate", "100", "--input-tokens", "12",
                         "--output-tokens", "10", "--timeline", scratch_path("late.json")),
                  "60 completed of 60", "late.json");
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s has no run 2", db);
    REFUSES(2, sentence, "replay", "--db", db, "--run", "2");
}

TEST(an_interrupted_replay_tells_what_the_device_did) {
    const char *db = scratch_path("long.db"), *csv = scratch_path("part.csv");
    free(PRINTS("run", SMALL, "--gpu", "cpu", "--set", "storage.weights=f32", "--requests", "4000",
                "--rate", "100", "--input-tokens", "12", "--output-tokens", "10", "--db", db,
                "--levels", "steps"));
    struct output output = CLI_AS(&(const struct child){.interrupt_after = 1500000}, "replay",
                                  "--db", db, "--run", "1", "--backend", "cpu", "--steps", csv);
    ck_assert_msg(output.status == 1, "status %d: %s", output.status, output.err);
    ck_assert_msg(strstr(output.err, "unmask: interrupted: ") != NULL, "%s", output.err);
    int n_played = 0, n_recorded = 0;
    ck_assert_int_eq(
        sscanf(output.out, "replay %d of %d submissions played", &n_played, &n_recorded), 2);
    ck_assert(n_played > 0 && n_played < n_recorded);
    ck_assert_ptr_nonnull(strstr(output.out, "predicted against measured"));
    ck_assert_ptr_null(strstr(output.out, "makespan"));
    FILE *file = fopen(csv, "r");
    ck_assert_ptr_nonnull(file);
    char *rows = cli_read(file);
    fclose(file);
    ck_assert_int_eq(count(rows, "\n") - 1, n_played);
    free(rows);
    output_free(&output);
}

/* What is left of a step's memory when it ran is what its plan says. */
TEST(a_step_is_measured_beside_its_price) {
#define STEP "--refresh", "2", "--prompt", "20", "--output", "12"
    json_t *plan =
        json_parsed(PRINTS("plan", SMALL, STEP, "--set", "storage.weights=f32", "--json"));
    static const char *const how[][2] = {{"--once", NULL}, {"--rounds", "2"}};
    for (int i = 0; i < 2; i++) {
        char *text = i == 0
                         ? PRINTS("explain", SMALL, STEP, "--backend", "cpu", "--json", how[i][0])
                         : PRINTS("explain", SMALL, STEP, "--backend", "cpu", "--json", how[i][0],
                                  how[i][1]);
        json_t *object = json_parsed(text);
        const json_t *measured = json_object_get(object, "measured"), *op;
        ck_assert_double_eq(number(measured, "rounds"), i == 0 ? 1 : 2);
        ck_assert_double_gt(number(measured, "wall_ms"), 0);
        ck_assert_double_eq(number(measured, "workspace_bytes"), number(plan, "peak_bytes"));
        size_t at, n_timed = 0;
        json_array_foreach(json_object_get(object, "operators"), at, op) {
            n_timed += json_is_number(json_object_get(op, "measured_ms"));
        }
        ck_assert(i == 0 ? n_timed == 0 : n_timed > 5);
        json_decref(object);
    }
    json_decref(plan);
    REFUSES(2, "--once: nothing is measured without --backend cpu or cuda", "explain", SMALL, STEP,
            "--once");
    REFUSES(2, "--once: the step is measured once, so --rounds has nothing to say", "explain",
            SMALL, STEP, "--backend", "cpu", "--once", "--rounds", "2");
}

TEST(a_step_of_several_ranks_is_measured_with_what_they_exchange) {
#define RANKS SMALL, "--refresh", "2", "--prompt", "20", "--output", "12", "--set"
    char *text = PRINTS("explain", RANKS, "tensor_parallel=2", "--backend", "cpu", "--rounds", "2",
                        "--json");
    json_t *object = json_parsed(text);
    const json_t *measured = json_object_get(object, "measured"), *op;
    size_t at, n_sums = 0, n_gatherings = 0;
    ck_assert_double_eq(number(measured, "ranks"), 2);
    json_array_foreach(json_object_get(object, "operators"), at, op) {
        const char *kind = json_string_value(json_object_get(op, "kind"));
        n_sums += strcmp(kind, "all-reduce") == 0;
        n_gatherings += strcmp(kind, "all-gather") == 0;
        ck_assert(json_is_number(json_object_get(op, "measured_ms")) ||
                  strcmp(kind, "all-gather") == 0);
    }
    ck_assert_uint_eq(n_sums, 2);
    ck_assert_uint_eq(n_gatherings, 1);
    json_decref(object);
    text = PRINTS("explain", RANKS, "tensor_parallel=2", "--backend", "cpu", "--rounds", "2");
    ck_assert_ptr_nonnull(strstr(text, "of several GPUs: the slowest one's time"));
    free(text);
    text = PRINTS("explain", RANKS, "tensor_parallel=1", "--backend", "cpu", "--rounds", "2");
    ck_assert_ptr_null(strstr(text, "of several GPUs"));
    free(text);
#undef RANKS
}

/* Tolerances are wide: the machine does other things, too, and steps take milliseconds. */
static void within_tenfold(double predicted, double measured) {
    ck_assert_msg(measured > 0 && predicted > measured / 10 && predicted < measured * 10,
                  "predicted %g, measured %g", predicted, measured);
}

static double cell(const json_t *rows, size_t row, const char *key) {
    return json_number_value(json_object_get(json_array_get(rows, row), key));
}

TEST(latency_is_searched_planned_priced_and_measured_in_the_chunks_asked_for) {
    char *text = PRINTS("plan", "latency", "--systems", "mosaic,mosaic-beyond", "--model",
                        "llada-tiny", "--backend", "cpu", "--canvases", "64,128", "--prompt-shares",
                        "0.25,0.75", "--counts", "1,3", "--rounds", "1", "--roofline", "--json");
    json_t *rows = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(rows), 16);
    for (size_t i = 0; i < 16; i++) {
        double chunks = i % 2 == 0 ? 1 : 3;
        ck_assert(cell(rows, i, "canvas") == (i / 2 % 2 == 0 ? 64 : 128));
        ck_assert(cell(rows, i, "prompt_share") == (i / 4 % 2 == 0 ? 0.25 : 0.75));
        ck_assert(cell(rows, i, "ffn_chunks") == chunks && cell(rows, i, "logit_chunks") == chunks);
        ck_assert(cell(rows, i, "attention_chunks") == (i < 8 ? 1 : chunks));
        ck_assert(cell(rows, i, "plan_ms") > 0 && cell(rows, i, "priced_ms") > 0);
        ck_assert(cell(rows, i, "step_ms") > 0);
        double parts =
            cell(rows, i, "attention_ms") + cell(rows, i, "ffn_ms") + cell(rows, i, "logits_ms");
        ck_assert(parts > 0 && parts <= cell(rows, i, "step_ms"));
        ck_assert(i % 2 == 0 || cell(rows, i, "workspace") < cell(rows, i - 1, "workspace"));
    }
    json_decref(rows);
    free(text);
    complains(CLI("plan", "latency", "--canvases", "0"), 2,
              "--canvases: '0' is not a number from 1 to 16777216");
    complains(CLI("plan", "latency", "--prompt-shares", "1"), 2,
              "--prompt-shares: '1' is not a share from 0 to below 1");
    complains(CLI("plan", "latency", "--counts", "2000"), 2,
              "--counts: '2000' is not a number from 1 to");
    complains(CLI("plan", "latency", "--rounds", "3"), 2, "nothing is measured without --backend");
    complains(CLI("plan", "latency", "--csv", "/nowhere/x.csv"), 1,
              "/nowhere/x.csv': No such file");
    complains(CLI("plan", "latency", "--systems", "mosaic-torch", "--model", "llada-tiny",
                  "--backend", "cpu"),
              2, "mosaic-torch has allocator = torch");
}

TEST(latency_of_what_is_not_planned_is_priced) {
    char *text = PRINTS("plan", "latency", "--systems", "mosaic-torch", "--gpu", "rtx3090",
                        "--canvases", "1024", "--json");
    json_t *rows = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(rows), 1);
    ck_assert(cell(rows, 0, "priced_ms") > 0);
    ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "plan_ms")));
    ck_assert_ptr_null(json_object_get(json_array_get(rows, 0), "step_ms"));
    json_decref(rows);
    free(text);
}

TEST(a_canvas_that_does_not_fit_keeps_no_other_from_its_latency) {
    char *text = PRINTS("plan", "latency", "--systems", "mosaic-torch,mosaic", "--gpu", "rtx3090",
                        "--canvases", "32768,1024", "--json");
    json_t *rows = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(rows), 4);
    ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "priced_ms")));
    for (size_t i = 1; i < 4; i++) {
        ck_assert(cell(rows, i, "priced_ms") > 0);
    }
    json_decref(rows);
    free(text);
}

TEST(what_is_calibrated_here_predicts_what_is_served_here) {
    const char *profile = scratch_path("here.csv"), *db = scratch_path("circle.db");
#define CIRCLE                                                                                     \
    "--model", "llada-tiny", "--profile", profile, "--set", "reserve_bytes=16MiB", "--set",        \
        "memory_utilization=0.04", "--set", "max_batched_tokens=128", "--requests", "4", "--rate", \
        "100", "--input-tokens", "16", "--output-tokens", "32", "--json"
    free(PRINTS("calibrate", "--backend", "cpu", "--model", "llada-tiny", "--quick", "--minutes",
                "0.001", "--max-tokens", "128", "--shared", "--out", profile));
    json_t *predicted =
        json_parsed(PRINTS("run", CIRCLE, "--gpu", "cpu", "--set", "storage.weights=f32"));
    json_t *measured = json_parsed(PRINTS("run", CIRCLE, LIVE, "--db", db, "--levels", "steps"));
    json_t *replayed =
        json_parsed(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--json"));
    ck_assert_str_eq(json_string_value(json_object_get(predicted, "profile_kind")), "measured");
    ck_assert_double_eq(number(predicted, "tokens_committed"), 4 * 32);
    ck_assert_double_eq(number(measured, "tokens_committed"), 4 * 32);
    within_tenfold(number(predicted, "makespan_s"), number(measured, "makespan_s"));
    const json_t *totals = json_object_get(json_object_get(replayed, "accuracy"), "totals");
    ck_assert_uint_eq(json_array_size(totals), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(totals, i);
        within_tenfold(number(row, "predicted"), number(row, "measured"));
    }
    json_decref(predicted);
    json_decref(measured);
    json_decref(replayed);
#undef CIRCLE
}

/* Of a rank of two: half of the heads and of the vocabulary, and what the ranks exchange, whose
 * prices are not guessed then. */
TEST(what_ranks_are_calibrated_to_predicts_what_ranks_serve) {
    const char *profile = scratch_path("rank.csv");
#define CIRCLE                                                                                     \
    "--model", "llada-tiny", "--system", "fast-dllm", "--profile", profile, "--set",               \
        "tensor_parallel=2", "--set", "reserve_bytes=16MiB", "--set", "memory_utilization=0.04",   \
        "--set", "max_batched_tokens=128", "--requests", "4", "--rate", "100", "--input-tokens",   \
        "16", "--output-tokens", "32", "--json"
    char *told = PRINTS("calibrate", "--backend", "cpu", "--model", "llada-tiny", "--quick",
                        "--minutes", "0.001", "--max-tokens", "128", "--tensor-parallel", "2",
                        "--shared", "--out", profile);
    ck_assert_ptr_nonnull(strstr(told, "ranks        2 hold the model together"));
    free(told);
    FILE *opened = fopen(profile, "r");
    ck_assert_ptr_nonnull(opened);
    char *file = cli_read(opened);
    fclose(opened);
    ck_assert_ptr_nonnull(strstr(file, "# ranks: 2 hold the model together; operators of one of "
                                       "them, what they exchange and whole steps of all\n"));
    ck_assert_ptr_nonnull(strstr(file, "\nall_reduce,2,32,"));
    ck_assert_ptr_nonnull(strstr(file, "\nall_reduce,2,131072,")); /* 128 tokens' channels */
    ck_assert_ptr_nonnull(strstr(file, "\nall_gather,2,1536,"));   /* 128 rows' candidates */
    ck_assert_ptr_nonnull(strstr(file, "\ngemm,128,384,256,"));    /* half of all heads' channels */
    free(file);
    json_t *step = json_parsed(
        PRINTS("explain", "--model", "llada-tiny", "--system", "fast-dllm", "--gpu", "cpu",
               "--profile", profile, "--set", "tensor_parallel=2", "--set", "storage.weights=f32",
               "--reuse", "2", "--prompt", "16", "--output", "32", "--json"));
    size_t at, n_measured = 0;
    const json_t *op;
    json_array_foreach(json_object_get(step, "operators"), at, op) {
        const char *kind = json_string_value(json_object_get(op, "kind"));
        const char *price = json_string_value(json_object_get(op, "price"));
        int of_rank = strcmp(kind, "linear") == 0 || strncmp(kind, "all-", 4) == 0;
        ck_assert_msg(!of_rank || strcmp(price, "exact") == 0 || strcmp(price, "interpolated") == 0,
                      "%s: %s", kind, price);
        n_measured += (size_t)of_rank;
    }
    ck_assert_uint_eq(n_measured, 4 + 2 + 1); /* products, sums, the gathering */
    json_decref(step);
    json_t *predicted =
        json_parsed(PRINTS("run", CIRCLE, "--gpu", "cpu", "--set", "storage.weights=f32"));
    json_t *measured = json_parsed(PRINTS("run", CIRCLE, LIVE));
    ck_assert_str_eq(json_string_value(json_object_get(predicted, "profile_kind")), "measured");
    ck_assert_double_eq(number(measured, "tokens_committed"), 4 * 32);
    within_tenfold(number(predicted, "makespan_s"), number(measured, "makespan_s"));
    json_decref(predicted);
    json_decref(measured);
    char sentence[512];
    snprintf(sentence, sizeof sentence,
             "%s was calibrated for one of 2 GPUs that hold the model together: set "
             "tensor_parallel = 2, not 1",
             profile);
    REFUSES(2, sentence, "run", "--model", "llada-tiny", "--system", "fast-dllm", "--gpu", "cpu",
            "--profile", profile);
    REFUSES(2, "does not say what energy it takes: leave --clocks out", "calibrate", "--backend",
            "cpu", "--model", "llada-tiny", "--clocks", "--out", scratch_path("clocks.csv"));
    REFUSES(2, "a model is held by 1, 2, 4 or 8 GPUs together, not by 3", "calibrate", "--backend",
            "cpu", "--model", "llada-tiny", "--tensor-parallel", "3", "--out",
            scratch_path("no.csv"));
#undef CIRCLE
}

#define EXACT                                                                                      \
    "--runtime", "unmask", "--set", "prefix_caching=off", "--set", "reserve_bytes=16MiB", "--set", \
        "memory_utilization=0.04", "--set", "max_batched_tokens=512"

static const struct {
    const char *system, *model;
} exact_systems[] = {{"sdar", "sdar-tiny"},
                     {"lmdeploy", "sdar-tiny"},
                     {"sglang", "sdar-tiny"},
                     {"vllm-ar", "qwen2.5-tiny"},
                     {"sdar", "llada2-tiny"}};
enum { N_EXACT = 5 };

TEST(block_diffusion_and_autoregressive_systems_generate_run_and_replay) {
    char *tokens[N_EXACT];
    for (int i = 0; i < N_EXACT; i++) {
        const char *system = exact_systems[i].system, *model = exact_systems[i].model;
        char name[32];
        snprintf(name, sizeof name, "exact-%d", i);
        const char *db = scratch_path(name);
        tokens[i] = PRINTS("generate", "--system", system, "--model", model, EXACT, "--backend",
                           "cpu", "--ids", "5,6,7,8,9,10", "--output-tokens", "9");
        ck_assert_int_eq(count(tokens[i], " "), 8);
        char *recorded = PRINTS("run", "--system", system, "--model", model, EXACT, "--roofline",
                                TRAFFIC, LIVE, "--db", db, "--levels", "steps");
        ck_assert_msg(strstr(recorded, "5 completed of 5") != NULL, "%s", recorded);
        char *replayed =
            PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--operators", "3");
        ck_assert_ptr_nonnull(strstr(replayed, "every submission carried out: "));
        ck_assert_ptr_nonnull(strstr(replayed, "predicted against measured"));
        char *explained = PRINTS("explain", "--system", system, "--model", model, EXACT,
                                 "--roofline", "--backend", "cpu", "--rounds", "1", "--requests",
                                 "2", "--prompt", "41", "--step", "4");
        ck_assert_msg(strstr(explained, "block attention") != NULL, "%s", explained);
        ck_assert_ptr_nonnull(strstr(explained, "\nmeasured "));
        free(recorded);
        free(replayed);
        free(explained);
    }
    /* Whatever the scheduler, the model decides. */
    ck_assert_str_eq(tokens[0], tokens[1]);
    ck_assert_str_ne(tokens[0], tokens[3]);
    for (int i = 0; i < N_EXACT; i++) {
        free(tokens[i]);
    }
}

/* What is played again is of steps that the host looked at one by one. */
TEST(iteration_smoothing_runs_replays_and_is_explained) {
    const char *db = scratch_path("smooth.db"), *decisions = scratch_path("smooth.csv");
#define LINE                                                                                       \
    "--system", "dinfer-smooth", "--model", "llada-moe-tiny", "--set", "block_tokens=8", "--set",  \
        "reserve_bytes=16MiB", "--set", "memory_utilization=0.04", "--set",                        \
        "max_batched_tokens=256", "--set", "unroll.expected_tpf=2", "--roofline"
#define ONE_BY_ONE "--set", "unroll.maximum=1"
    free(PRINTS("run", LINE, TRAFFIC, LIVE));
    free(PRINTS("run", LINE, TRAFFIC, LIVE, ONE_BY_ONE, "--db", db, "--levels", "steps",
                "--decode-out", decisions));
    char *replayed =
        PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--operators", "3");
    ck_assert_ptr_nonnull(strstr(replayed, "every submission carried out: "));
    ck_assert_ptr_nonnull(strstr(replayed, "keep expected"));
    free(replayed);
    free(PRINTS("run", LINE, TRAFFIC, ONE_BY_ONE, "--gpu", "cpu", "--set", "storage.weights=f32",
                "--decode", decisions));
    char *explained = PRINTS("explain", LINE, "--backend", "cpu", "--rounds", "2", "--prompt", "41",
                             "--output", "24", "--step", "3");
    ck_assert_ptr_nonnull(strstr(explained, "\nmeasured "));
    ck_assert_ptr_nonnull(strstr(explained, "embedding of probabilities"));
    free(explained);
    char *planned = PRINTS("plan", LINE, "--gpu", "cpu", "--prompt", "41", "--output", "24");
    ck_assert_ptr_nonnull(strstr(planned, "expected embeddings of 1 requests"));
    free(planned);
#undef ONE_BY_ONE
#undef LINE
}

/* What a live run decided, and what a simulated one drew, is carried out in its sizes; steps in the
 * middle of their blocks are measured. */
TEST(systems_that_leave_positions_out_replay_their_runs_and_are_explained) {
    static const char *const systems_of[] = {"dc", "dc+", "focus", "fast-dllm-v2"};
    for (int i = 0; i < 4; i++) {
        const char *system = systems_of[i], *model = i < 3 ? "sdar-tiny" : "fast-dllm-v2-tiny";
        const char *db = scratch_path(i == 1 ? "plus.db" : i == 2 ? "focus.db" : system);
#define LINE                                                                                       \
    "--system", system, "--model", model, "--set", "block_tokens=16", "--set",                     \
        "reserve_bytes=16MiB", "--set", "memory_utilization=0.04", "--set",                        \
        "max_batched_tokens=512", "--runtime", "unmask", "--roofline"
        free(PRINTS("run", LINE, TRAFFIC, LIVE, "--db", db, "--levels", "steps"));
        free(PRINTS("run", LINE, TRAFFIC, "--gpu", "cpu", "--set", "storage.weights=f32", "--db",
                    db, "--levels", "steps"));
        for (int run = 1; run <= 2; run++) {
            char *replayed = run == 1
                                 ? PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu",
                                          "--operators", "3")
                                 : PRINTS("replay", "--db", db, "--run", "2", "--backend", "cpu");
            ck_assert_ptr_nonnull(strstr(replayed, "every submission carried out: "));
            ck_assert_ptr_nonnull(strstr(replayed, "predicted against measured"));
            free(replayed);
        }
        for (int step = 0; step < 12; step += 5) {
            char number[8];
            snprintf(number, sizeof number, "%d", step);
            char *explained = PRINTS("explain", LINE, "--backend", "cpu", "--rounds", "2",
                                     "--requests", "2", "--prompt", "41", "--step", number);
            ck_assert_ptr_nonnull(strstr(explained, "\nmeasured "));
            free(explained);
        }
#undef LINE
    }
}

/* Where all requests are there at once a decision waits for no time, and both runs decide the same;
 * of arrivals at times the batches go by how long steps take. */
TEST(batches_of_two_runs_are_held_against_one_another) {
    const char *db = scratch_path("same.db");
#define LINE                                                                                       \
    SMALL_SYSTEM, "--requests", "5", "--input-tokens", "12", "--output-tokens", "10", "--db", db,  \
        "--levels", "steps", "--seed", "3"
#define SIMULATED(gpu) "--roofline", "--gpu", gpu
    free(PRINTS("run", LINE, LIVE, "--arrivals", "all-at-once"));
    free(PRINTS("run", LINE, SIMULATED("cpu"), "--arrivals", "all-at-once", "--set",
                "storage.weights=f32"));
    char *text = PRINTS("replay", "--db", db, "--run", "2", "--against", "1");
    unsigned equal, all, first;
    ck_assert_int_eq(sscanf(text, "batches: %u of %u equal (100 %%)\n", &equal, &all), 2);
    ck_assert(equal == all && all > 0 && strchr(text, ',') == NULL);
    free(text);
    free(PRINTS("run", LINE, SIMULATED("l40s"), "--rate", "5000"));
    free(PRINTS("run", LINE, SIMULATED("h200"), "--rate", "5000"));
    text = PRINTS("replay", "--db", db, "--run", "3", "--against", "4");
    ck_assert_msg(sscanf(text, "batches: %u of %u equal (%*g %%), first that differs: step %u",
                         &equal, &all, &first) == 3,
                  "%s", text);
    ck_assert(equal < all && first < all);
    ck_assert_ptr_nonnull(strstr(text, " of run 3 (request "));
    ck_assert_ptr_nonnull(strstr(text, " in its steps)\n"));
    free(text);
    text = PRINTS("replay", "--db", db, "--run", "3", "--against", "3", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"first_different\": null"));
    free(text);
    free(PRINTS("run", SMALL, TRAFFIC, "--gpu", "l40s", "--db", db));
    complains(CLI("replay", "--db", db, "--run", "1", "--against", "5"), 2, "no steps");
#undef SIMULATED
#undef LINE
}

SUITE("live_cli")
