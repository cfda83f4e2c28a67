/* One answer to every error: what a file, a flag, a signal or a want of memory causes ends in one
 * sentence and status 1 or 2. */
#include <inttypes.h>
#include <jansson.h>

#include "sim/base/system.h"
#include "tests/support/cli.h"

#define DEVICE "/dev/zero"

TEST(settings_that_make_no_sound_step_are_refused) {
    REFUSES(2,
            "no step of model llada-8b can be made with these settings: tensor 'logits' has 0 "
            "bytes a row",
            "explain", "--set", "runtime.logits_bytes=0");
    struct output output = CLI("run", "--system", "focus", "--set", "layers=1");
    ck_assert_int_eq(output.status, 2);
    ASSERT_SAYS(output.err,
                "cache focus evicts in layer 1, counted from 0, and SDAR-8B-Chat has 1");
    output_free(&output);
}

TEST(another_systems_steps_have_no_price) {
    struct output output =
        CLI("profile", "accuracy", "--gpu", "h200", "--system", "focus", "--steps",
            "experiments/gpu/results/2026-11-22-h200-mixtures/llada-moe-steps.csv");
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "the steps are another system's"));
    output_free(&output);
}

/* Every time of the profile is ten days. */
/* Of every decoder that has two numbers of which one bounds the other; equal ones are in order. */
TEST(numbers_of_decoders_that_are_out_of_order_are_refused) {
#define SDAR(...) "run", "--system", "sdar", "--requests", "1", "--rate", "1", __VA_ARGS__
#define HIERARCHICAL(low)                                                                          \
    SDAR("--decoder", "hierarchical", "--set", "decoder.threshold=0.5", "--set",                   \
         "decoder.low_threshold=" low)
    REFUSES(2,
            "unmask: decoder hierarchical wants decoder.low_threshold at most as high as "
            "decoder.threshold, and has 0.51 and 0.5",
            HIERARCHICAL("0.51"));
    free(PRINTS(HIERARCHICAL("0.5")));
    REFUSES(2, "unmask: scheduler width-by-rate wants scheduler.least at most as high as",
            SDAR("--set", "scheduler=width-by-rate", "--set", "scheduler.least=33"));
}

TEST(times_beyond_what_a_clock_counts_are_refused) {
    char *profile = scratch_read("kernels/profiles/l40s.csv"), *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (char *rest = profile, *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        char *last = strrchr(line, ',');
        bool is_row = line[0] != '#' && last != NULL;
        fprintf(out, "%.*s%s\n", is_row ? (int)(last - line) : (int)strlen(line), line,
                is_row ? ",1e12" : "");
    }
    fclose(out);
    struct output output =
        CLI("run", "--gpu", "l40s", "--profile", scratch_write("slow.csv", text));
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, "beyond the 146 years") != NULL, "%s", output.err);
    output_free(&output);
    free(text);
    free(profile);
}

TEST(an_endless_file_is_refused_at_once) {
    static const char *const commands[][7] = {
        {"run", "--systems", DEVICE},
        {"run", "--profile", DEVICE},
        {"run", "--workload", DEVICE},
        {"run", "--trace", DEVICE},
        {"run", "--decode", DEVICE},
        {"sweep", DEVICE},
        {"figure", DEVICE},
        {"plan", "--instance", DEVICE},
        {"validate", "--measured", DEVICE},
        {"replay", "--run", "1", "--db", DEVICE},
        {"profile", "accuracy", "--gpu", "h200", "--steps", DEVICE},
        {"generate", "--backend", "cpu", "--model", "llada-tiny", "--ids-file=" DEVICE},
        {"generate", "--backend", "cpu", "--model", "llada-tiny", "--prompts=" DEVICE},
        {"run", "--model", DEVICE},
    };
    const struct child child = {.max_file_bytes = 1 << 20};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const char *words[8] = {NULL};
        memcpy(words, commands[i], sizeof commands[i]);
        struct output output = cli_run(&child, words);
        ck_assert_msg(output.status == 1 || output.status == 2, "%s: %d %s", words[0],
                      output.status, output.err);
        ck_assert_msg(strstr(output.err, "internal error") == NULL &&
                          strstr(output.err, "out of memory") == NULL,
                      "%s", output.err);
        output_free(&output);
    }
}

TEST(words_are_utf8_on_one_line) {
    REFUSES(2, "'a?b': found a control character, expected UTF-8 on one line", "run", "--trace",
            "a\nb");
    struct output output = CLI("run", "--trace", "a\xff");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "what is no UTF-8"));
    output_free(&output);
    const char *path = scratch_write("escape.ini", "[run]\nx = a\x1b[31m\n");
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s:2: expected text in UTF-8 without control characters",
             path);
    REFUSES(2, sentence, "run", "--systems", path);
}

TEST(a_closed_stream_is_no_file) {
    const char *path = scratch_path("timeline.json");
    const struct child child = {.closes_stderr = true};
    free(cli_text(CLI_AS(&child, "run", "--requests", "3", "--timeline", path)));
    char *text = scratch_read(path);
    json_t *timeline = json_loads(text, 0, NULL);
    ck_assert_msg(timeline != NULL, "%.200s", text);
    json_decref(timeline);
    free(text);
}

TEST(a_hang_up_ends_a_run_as_an_interrupt_does) {
    const struct child child = {.interrupt_after = 1500000, .signal = SIGHUP};
    struct output output = CLI_AS(&child, "run", "--requests", "100000000", "--verbose");
    ck_assert_msg(output.status == 1, "%d %s", output.status, output.err);
    ck_assert_ptr_nonnull(strstr(output.out, "interrupted"));
    output_free(&output);
}

#ifndef __SANITIZE_ADDRESS__ /* which wants all addresses */
/* A device of somewhat more than what is free. What was asked for is not changed, and another GPU
 * is emulated, whose memory is its own. */
TEST(a_live_run_takes_what_memory_is_free_where_none_was_asked_for) {
    char text[600];
    snprintf(text, sizeof text,
             "[gpu]\ntitle = a processor\nsource = assumed\nsms = 2\ncompute_capability = 0\n"
             "memory = %" PRId64 " MiB\nl2 = 16 MiB\npeak_bf16_flops = 192e9\n"
             "best_bf16_flops = 100e9\npeak_fp64_flops = 48e9\npeak_bandwidth = 20e9\n"
             "best_bandwidth = 15e9\nl2_bandwidth = 100e9\nlink = shared memory\n"
             "link_bandwidth = 10e9\n",
             (system_free_bytes() >> 20) / 100 * 115);
    const char *gpu = scratch_write("more.ini", text);
#define LIVE(...)                                                                                  \
    CLI("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny", "--requests",    \
        "2", "--json", __VA_ARGS__)
    struct output all = LIVE("--gpu", gpu);
    ck_assert_msg(all.status == 0, "%s", all.err);
    ck_assert_ptr_nonnull(strstr(all.out, "\"memory-as-free\""));
    ck_assert_ptr_nonnull(strstr(all.out, "simulate it with --set memory_utilization=0."));
    output_free(&all);
    struct output asked = LIVE("--gpu", gpu, "--set", "memory_utilization=0.95");
    ck_assert_int_eq(asked.status, 1);
    ck_assert_msg(strstr(asked.err, "would fit)") != NULL, "%s", asked.err);
    output_free(&asked);
    struct output other = LIVE("--gpu", "h100");
    ck_assert_int_eq(other.status, 1);
    ck_assert_msg(strstr(other.err, "would fit)") != NULL, "%s", other.err);
    output_free(&other);
#undef LIVE
}

/* Whatever the limit, and whatever libraries do as they are loaded. */
TEST(out_of_memory_is_one_sentence) {
    static const char *const commands[][9] = {{"version"},
                                              {"run", "--requests", "20"},
                                              {"generate", "--backend", "cpu", "--weights",
                                               "experiments/train/models/sdar-2m", "--ids",
                                               "2,5,9"}};
    static const rlim_t limits_mib[] = {20, 24, 32, 60, 100, 160, 240, 320, 400};
    for (size_t i = 0; i < sizeof limits_mib / sizeof limits_mib[0]; i++) {
        for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++) {
            const struct child child = {.max_memory_bytes = limits_mib[i] << 20};
            struct output output = cli_run(&child, commands[c]);
            bool said = output.status == 1 && strncmp(output.err, "unmask: ", 8) == 0 &&
                        strchr(output.err, '\n') == output.err + strlen(output.err) - 1;
            ck_assert_msg(output.status == 0 || (c > 0 && said), "%s below %d MiB: %d %s",
                          commands[c][0], (int)limits_mib[i], output.status, output.err);
            output_free(&output);
        }
    }
}

/* What starts threads and takes memory as it is loaded is loaded by who multiplies. */
TEST(openblas_is_loaded_by_the_cpu_back_end_alone) {
    setenv("LD_DEBUG", "files", 1);
    struct output output =
        CLI("run", "--requests", "5", "--gpu", "cpu", "--model", "llada-tiny", "--roofline");
    ck_assert_int_eq(output.status, 0);
    ck_assert_ptr_null(strstr(output.err, "openblas"));
    output_free(&output);
    output = CLI("generate", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m",
                 "--ids", "2,5,9");
    unsetenv("LD_DEBUG");
    ck_assert_ptr_nonnull(strstr(output.err, "openblas"));
    output_free(&output);
}
#endif

SUITE("errors")
