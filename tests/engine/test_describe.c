/* Cards that the program does not know: their description, and which of a machine's it opens. */
#include <string.h>

#include "engine/calibrate/describe.h"
#include "tests/support/cli.h"

/* As drivers tell of cards that have no file. */
#define CARD(title, memory, l2_mib, sms, cc)                                                       \
    {                                                                                              \
        .name = title, .memory_bytes = memory, .l2_bytes = (l2_mib) << 20, .n_sms = sms,           \
        .capability = cc                                                                           \
    }
static const struct device_facts unknown_cards[] = {
    CARD("NVIDIA GeForce RTX 4090 D", INT64_C(25282281472), 72, 114, 89),
    CARD("NVIDIA GeForce RTX 4090 Laptop GPU", INT64_C(16837181440), 64, 76, 89),
    CARD("NVIDIA RTX 5000 Ada Generation", INT64_C(33931744597), 64, 100, 89),
    CARD("NVIDIA A100 80GB PCIe MIG 1g.10gb", INT64_C(10200547328), 5, 14, 80),
    CARD("NVIDIA GB300", INT64_C(289910292480), 126, 148, 103),
};
enum { N_CARDS = sizeof unknown_cards / sizeof unknown_cards[0] };

/* What is written is a file of that very card and of no other, with the peaks that were measured.
 */
TEST_EACH(a_described_card_is_the_one_that_was_described, N_CARDS) {
    const struct device_facts *facts = &unknown_cards[_i];
    const struct device_rates rates = {83e12, 0.93e12, 2.52e9};
    struct err err = {0};
    const char *path = scratch_path("card.ini"), *known;
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    describe_write(facts, &rates, "2026-11-28", file);
    ck_assert_int_eq(fclose(file), 0);
    const struct gpu *gpu = gpu_find(path, &err);
    ck_assert_msg(gpu != NULL, "%s", err.text);
    ck_assert_msg(engine_check_device(facts, gpu, &err) == 0, "%s", err.text);
    ck_assert(gpu->peak_bf16_flops == rates.flops && gpu->best_bandwidth == rates.bandwidth);
    ck_assert(gpu->link_peers == (strstr(facts->name, "GeForce") == NULL));
    ck_assert(gpu->peak_fp64_flops > 1e11 && gpu->peak_fp64_flops < 1e14);
    ck_assert_int_ne(engine_find_gpu(facts, &known, &err), 0);
    for (int i = 0; i < N_CARDS; i++) {
        ck_assert(engine_device_is(&unknown_cards[i], gpu) == (i == _i));
    }
}

/* This machine's processor, by the command; its file prices and calibrates. */
TEST(the_processor_is_described) {
    const char *path = scratch_path("mine.ini");
    free(PRINTS("calibrate", "--describe", "--backend", "cpu", "--out", path));
    char *text = PRINTS("run", "--gpu", path, "--model", "llada-tiny", "--requests", "3", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"gpu\": \"mine\""));
    free(text);
    struct err err = {0};
    struct engine_device cpu;
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    ck_assert(engine_device_is(&cpu.facts, gpu_find(path, &err)));
    engine_device_close(&cpu);
    REFUSES(2, "is there already; --replace writes it anew", "calibrate", "--describe", "--backend",
            "cpu", "--out", path);
    free(PRINTS("calibrate", "--describe", "--backend", "cpu", "--out", path, "--replace"));
    REFUSES(2, "exists and is not a card's description", "calibrate", "--describe", "--backend",
            "cpu", "--replace", "--out", scratch_write("notes.txt", "mine\n"));
    REFUSES(2, "calibrate --describe takes no --model", "calibrate", "--describe", "--backend",
            "cpu", "--model", "llada-tiny");
    REFUSES(2, "--backend is cpu or cuda", "calibrate", "--describe");
}

/* A library with two cards that will not open says which number it was asked for. */
TEST(the_device_that_is_asked_for_is_opened) {
    const char *library = suite_plugin("two_cards");
    REFUSES(1, "no cuda device 1, counted from 0: the second", "run", "--backend", "cuda",
            "--library", library, "--gpu", "l4", "--device", "1");
    REFUSES(1, "no cuda device: the first", "run", "--backend", "cuda", "--library", library,
            "--gpu", "l4");
    REFUSES(1, "no cuda device 2, counted from 0: another", "calibrate", "--backend", "cuda",
            "--library", library, "--device", "2", "--out", scratch_path("x.csv"));
    REFUSES(1, "no cuda device 1, counted from 0: the second", "calibrate", "--describe",
            "--backend", "cuda", "--library", library, "--device", "1");
    REFUSES(1, "no cuda device 1, counted from 0: the second", "generate", "--backend", "cuda",
            "--library", library, "--gpu", "l4", "--device", "1", "--ids", "1");
    REFUSES(1, "no cuda device 1, counted from 0: the second", "run", "--backend", "cuda",
            "--library", library, "--gpu", "h100", "--device", "1", "--set", "tensor_parallel=2");
    REFUSES(2, "--device is for one GPU of the cuda back end", "calibrate", "--backend", "cpu",
            "--device", "1", "--out", scratch_path("y.csv"));
    REFUSES(2, "--device is for the back ends cpu and cuda", "run", "--device", "1");
    REFUSES(2, "--device", "run", "--backend", "cuda", "--device", "-1");
}

SUITE("describe")
