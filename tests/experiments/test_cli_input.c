/* Bad input on the command line: one sentence each, the right status, and nothing lost. */
#include <sqlite3.h>

#include "tests/support/cli.h"

#define HEADER "arrival_us,input_tokens,output_tokens\n"

/* `text` as a trace: refused with "PATH<sentence>". */
static void refuses_trace(const char *text, const char *sentence) {
    const char *path = scratch_write("bad.csv", text);
    char expected[512];
    snprintf(expected, sizeof expected, "%s%s", path, sentence);
    REFUSES(1, expected, "run", "--trace", path);
}

TEST(a_bad_trace_is_refused_with_its_line) {
    refuses_trace("", ":1: found an empty file, expected a trace");
    refuses_trace(HEADER, ":2: found the end of the file (0 failed requests before it), expected "
                          "at least one request");
    refuses_trace("hello\n", ":1: found 'hello', expected the first line of a known trace format "
                             "(plain, burstgpt, azure, vidur, splitwise-sim, plain-lengths, "
                             "vidur-lengths, mooncake, llmservingsim)");
    refuses_trace(HEADER "1,2\n", ":2: found 2 fields, expected 3 as in the header");
    refuses_trace(HEADER "1,x,3\n",
                  ":2: found 'x' in input_tokens, expected a whole number below 2^32");
    refuses_trace(HEADER "1,0,3\n", ":2: found '0' in input_tokens, expected at least 1 token");
    refuses_trace(HEADER "-5,2,3\n",
                  ":2: found '-5' in arrival_us, expected a time from 0 to 146 years");
    refuses_trace(HEADER "nan,2,3\n",
                  ":2: found 'nan' in arrival_us, expected a time from 0 to 146 years");
    refuses_trace(HEADER "99999999999999999999,2,3\n",
                  ":2: found '99999999999999999999' in arrival_us, expected a time from 0 to 146 "
                  "years");
    refuses_trace(HEADER "1,20,3\n2,20,\n",
                  ":3: found '' in output_tokens, expected a whole number below 2^32");
    REFUSES(1, "cannot open nope.csv: No such file or directory", "run", "--trace", "nope.csv");
    struct output unsorted =
        CLI("run", "--trace", scratch_write("unsorted.csv", HEADER "5,2,3\n1,2,3\n"));
    ck_assert_int_eq(unsorted.status, 1);
    ck_assert_ptr_nonnull(strstr(unsorted.err, "unsorted.csv:3: "));
    ck_assert_ptr_nonnull(strstr(unsorted.err, "expected rows in order of arrival"));
    ck_assert_str_eq(unsorted.out, "");
    output_free(&unsorted);
}

TEST(a_bom_and_cr_lf_change_nothing) {
    const char *plain = scratch_write("same.csv", HEADER "1,20,64\n5,30,64\n");
    char *expected = PRINTS("run", "--trace", plain, "--json");
    (void)scratch_write("same.csv",
                        "\xef\xbb\xbf"
                        "arrival_us,input_tokens,output_tokens\r\n1,20,64\r\n5,30,64\r\n");
    char *text = PRINTS("run", "--trace", plain, "--json");
    ck_assert_str_ne(text, expected); /* the file's digest is another */
    cli_drop_identity(text);
    cli_drop_identity(expected);
    ck_assert_str_eq(text, expected);
    free(text);
    free(expected);
}

/* What other programs call an option is answered with ours, which the command has. */
TEST(options_of_other_programs_are_met_with_ours) {
    static const char *const theirs[][2] = {
        {"--tp", "--set tensor_parallel=N"},
        {"--max-num-seqs", "--set max_requests=N"},
        {"--max-num-batched-tokens", "--set max_batched_tokens=N"},
        {"--gpu-memory-utilization", "--set memory_utilization=SHARE"},
        {"--max-model-len", "--set context_tokens=N"},
        {"--enable-prefix-caching", "--set prefix_caching=on"},
        {"--page-size", "--set page_tokens=N"},
        {"--quantization", "--set storage.weights=TYPE"},
        {"--kv-cache-dtype", "--set storage.cache=TYPE"},
        {"--num-gpus", "--replicas N"},
        {"--num-prompts", "--requests N"},
        {"--qps", "--rate R"},
        {"--burstiness", "--arrivals gamma --set workload.arrivals.cv=CV"},
        {"--max-concurrency", "--arrivals closed-loop --set workload.arrivals.clients=N"},
        {"--dataset", "--workload NAME"},
        {"--random-input-len", "--input-tokens N"},
        {"--osl", "--output-tokens N"},
        {"--markdown", "--format markdown"},
    };
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
        char says[160];
        snprintf(says, sizeof says, "unknown option '%s'; here it is %s", theirs[i][0],
                 theirs[i][1]);
        REFUSES(2, says, "run", theirs[i][0], "2");
    }
    REFUSES(2, "unknown option '--goodput'; here it is --slo TERMS", "capacity", "--goodput", "x");
    /* Each names what there is. */
    REFUSES(2, "--set: 'x' is not a value for page_tokens", "run", "--set", "page_tokens=x");
    free(PRINTS("run", "--requests", "2", "--rate", "1", "--set", "tensor_parallel=2", "--set",
                "max_requests=8", "--set", "max_batched_tokens=8192", "--set",
                "memory_utilization=0.8", "--set", "context_tokens=2048", "--set",
                "storage.weights=fp8", "--arrivals", "gamma", "--set", "workload.arrivals.cv=2",
                "--gpu", "h100"));
    free(PRINTS("run", "--requests", "2", "--arrivals", "closed-loop", "--set",
                "workload.arrivals.clients=2"));
    REFUSES(2, "unknown option '--gpu'; here it is --over gpu=A,B,...", "sweep", "--gpu", "h100");
    REFUSES(2, "compare varies one key next to the system; `unmask sweep` varies several",
            "compare", "--over", "scheduler=knee,look-ahead", "--over", "gpu=h100,l40s");
    /* Not where the command has no such option. */
    REFUSES(2, "unknown option '--tp'", "list", "--tp", "models");
}

TEST(an_unknown_name_is_met_with_the_nearest) {
    REFUSES(2, "unknown command 'rn'; did you mean 'run'?", "rn");
    REFUSES(2, "unknown command 'fleet'; did you mean 'capacity'?", "fleet", "--rate", "50");
    REFUSES(2, "unknown command 'simulate'; did you mean 'run'?", "simulate");
    REFUSES(2, "unknown command 'trace'; did you mean 'trace info'?", "trace");
    REFUSES(2, "unknown option '--sytem'; did you mean '--system'?", "run", "--sytem", "x");
    REFUSES(2, "unknown GPU 'h2000'; did you mean 'h200'? (`unmask list gpus` prints them all)",
            "run", "--gpu", "h2000");
    REFUSES(2,
            "unknown model 'lada-8b'; did you mean 'llada-8b'? (`unmask list models` prints "
            "them all)",
            "run", "--model", "lada-8b");
    struct output output = CLI("run", "--system", "dllm-serv");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "did you mean 'dllm-serve'"));
    output_free(&output);
    output = CLI("run", "--workload", "brust");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "did you mean 'burst'?"));
    output_free(&output);
    REFUSES(2, "--set: cache sparse-head has no parameter 'retntion'; did you mean 'retention'?",
            "run", "--set", "cache.retntion=1");
    REFUSES(2, "--set: unknown key 'retention'; did you mean 'cache.retention'?", "run", "--set",
            "retention=1");
    REFUSES(2, "--set: unknown key 'cach.retention'; did you mean 'cache.retention'?", "run",
            "--set", "cach.retention=1");
    REFUSES(2, "unknown option '--max-requests'; --set max_requests=VALUE sets that key", "run",
            "--max-requests", "8");
    REFUSES(2, "--set: unknown scheduler 'my.so'; a plug-in's path holds a slash, as in ./my.so",
            "run", "--set", "scheduler=my.so");
    REFUSES(2, "--set: unknown key 'page_token'; did you mean 'page_tokens'?", "run", "--set",
            "page_token=1");
    REFUSES(2,
            "--scheduler: unknown scheduler 'contnuous'; did you mean 'continuous'? (`unmask "
            "list schedulers` prints them all)",
            "run", "--scheduler", "contnuous");
    REFUSES(2, "--arrivals: there are no arrivals 'posson'; did you mean 'poisson'?", "run",
            "--arrivals", "posson");
    REFUSES(2, "there is nothing to list under 'gpu'; did you mean 'gpus'?", "list", "gpu");
    REFUSES(2, "profile: 'chek' is neither check nor show; did you mean 'check'?", "profile",
            "chek");
}

/* By the name that was given, and for what is wrong with it. */
TEST(files_that_are_not_there_are_named_as_they_were) {
    REFUSES(1, "--weights: cannot open 'nosuch': No such file or directory", "generate",
            "--backend", "cpu", "--weights", "nosuch");
    REFUSES(1, "--weights: cannot open 'nosuch': No such file or directory", "run", "--backend",
            "cpu", "--weights", "nosuch");
    REFUSES(1, "cannot open nosuch.db: No such file or directory", "plot", "nosuch.db", "-x",
            "rate", "-y", "latency_s.mean");
    REFUSES(1, "cannot open nosuch.db: No such file or directory", "plot", "nosuch.db");
}

TEST(options_are_read_strictly) {
    REFUSES(2, "--rate needs a value: R", "run", "--rate");
    REFUSES(2, "--rate needs a value, R, and '--json' after it is an option", "run", "--rate",
            "--json");
    REFUSES(2, "--rate: '--jsn' is not a number above 0", "run", "--rate", "--jsn");
    REFUSES(2, "--json takes no value", "run", "--json=1");
    REFUSES(2, "run: unexpected word 'x'", "run", "x");
    REFUSES(2, "unexpected word 'b': --systems takes one list, ", "compare", "--systems", "a", "b");
    REFUSES(2, "from 0 to 1e+15 (ns, or with a unit: us, ms, s, min or h)", "run", "--set",
            "scheduler=shortest-left", "--set", "scheduler.patience=1d");
    REFUSES(2, "--seed is given twice", "run", "--seed", "1", "--seed=2");
    REFUSES(2, "--rate: '-1' is not a number above 0", "run", "--rate", "-1");
    REFUSES(2, "--rate: 'nan' is not a number above 0", "run", "--rate", "nan");
    REFUSES(2, "--requests: '0' is not a whole number from 1 to 1000000000", "run", "--requests",
            "0");
    REFUSES(2, "--seed: '9223372036854775808' is not a whole number from 0 to 9223372036854775807",
            "run", "--seed", "9223372036854775808");
    REFUSES(2, "--set: 'a' is not KEY=VALUE", "run", "--set", "a");
    char long_value[256] = "trace=";
    memset(long_value + strlen("trace="), 'v', 192);
    REFUSES(2, "the value 191", "run", "--set", long_value);
    REFUSES(2, "--set: the model is chosen with --model", "run", "--set", "model=llada-8b");
    REFUSES(2, "--slo-ttft: '3 x' is not a time such as 2.5s or 300ms", "run", "--slo-ttfb", "3 x");
    REFUSES(2, "--levels says what --db keeps, but there is no --db", "run", "--levels", "steps");
    REFUSES(2, "--levels: 'all' is neither requests, steps nor events", "run", "--db",
            scratch_path("levels.db"), "--levels", "all");
    REFUSES(2, "--backend: this program has no 'tpu'; it has: sim, cpu, cuda", "run", "--backend",
            "tpu");
    REFUSES(2, "--workload is given twice", "run", "--workload", "burst", "--trace", "x.csv");
    REFUSES(2, "compare needs --systems A,B,...; `unmask list systems` names them", "compare");
    REFUSES(2, "replay needs --db FILE and --run N", "replay", "--run", "1");
    REFUSES(2, "report needs a database and --out FILE", "report", "x.db");
    REFUSES(2, "sweep needs an INI file with a [sweep] section", "sweep");
    REFUSES(2, "figure takes names, paths or --all", "figure");
    REFUSES(2, "figure takes names, paths or --all", "figure", "--all", "focus-table5");
    REFUSES(2, "-j: '0' is not a whole number from 1 to 256", "sweep", "x.ini", "-j0");
    REFUSES(2, "give either --requests and --step or --refresh and --reuse", "explain", "--step",
            "1", "--reuse", "2");
    REFUSES(2, "--step: such a request is done after 256 steps", "explain", "--step", "999");
    REFUSES(2, "vanilla: such a request has no reuse step", "explain", "--system", "vanilla",
            "--reuse", "2");
    REFUSES(1, "dllm-serve rejects a request of 100000 + 256 tokens on l40s: context", "explain",
            "--prompt", "100000");
    REFUSES(2, "a100-40g has no profile of its own: its prices are transferred from a100-80g",
            "profile", "check", "a100-40g");
    struct output nothing = CLI_AS(&(const struct child){0}, "--");
    ck_assert_int_eq(nothing.status, 2);
    output_free(&nothing);
}

TEST(parts_that_do_not_go_together_are_refused) {
    REFUSES(2,
            "LLaDA-8B Base/Instruct/1.5 is bidirectional, and cache exact is for block-causal and "
            "autoregressive models (`unmask list caches` prints others)",
            "run", "--set", "cache=exact");
    REFUSES(2,
            "SDAR-8B-Chat is block-causal, and cache sparse-head is for bidirectional models: set "
            "cache = exact, or name a system such as sdar",
            "run", "--system", "dllm-serve", "--model", "sdar-8b");
    REFUSES(
        2,
        "Llama-3.1-8B is autoregressive, and cache none is for bidirectional models: set cache = "
        "exact, or name the system vllm-ar",
        "explain", "--system", "vanilla", "--model", "llama-3.1-8b");
    REFUSES(2, "Llama-3.1-8B is autoregressive: block_tokens is 1, not 4", "run", "--system",
            "vllm-ar", "--set", "block_tokens=4");
    REFUSES(2,
            "cache delayed leaves a decoded token out while the one after it is masked, which is "
            "decided by its logits in Fast_dLLM_v2_7B: set cache = neighbour",
            "run", "--system", "dc", "--model", "fast-dllm-v2-7b");
    REFUSES(2, "cache exact grows page by page: set kv = pages", "plan", "--system", "sdar",
            "--set", "kv=slab");
    REFUSES(2, "cache exact is read in place: set runtime.gathers_cache = off", "run", "--system",
            "sdar", "--set", "runtime=nano-vllm");
}

TEST(the_system_follows_the_attention_that_is_set) {
    static const struct {
        const char *model, *attention, *system;
    } cases[] = {{"sdar-8b", "bidirectional", "dllm-serve, sdar-8b on"},
                 {"llada-8b", "block-causal", "sdar, llada-8b on"},
                 {"sdar-8b", "block-causal", "sdar, sdar-8b on"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char set[64];
        snprintf(set, sizeof set, "model.attention=%s", cases[i].attention);
        char *text = PRINTS("run", "--model", cases[i].model, "--set", set, "--requests", "2");
        ck_assert_msg(strstr(text, cases[i].system) != NULL, "%s", text);
        free(text);
    }
    REFUSES(2, "attention", "run", "--set", "model.attention=sideways");
}

/* What is decoded by weights that were trained to attend otherwise means nothing. */
TEST(generate_says_what_a_model_stands_for) {
    const char *path = scratch_write(
        "wedlm.json", "{\"model_type\":\"wedlm\",\"num_hidden_layers\":1,\"hidden_size\":128,"
                      "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":64,"
                      "\"intermediate_size\":128,\"vocab_size\":256,\"mask_token_id\":255,"
                      "\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-6}");
    static const char says[] = "a block stands for the window that WeDLM slides";
    struct output out = CLI("generate", "--backend", "cpu", "--model", path, "--ids", "3,4",
                            "--output-tokens", "16");
    ck_assert_msg(out.status == 0 && strstr(out.err, says) != NULL, "%s", out.err);
    output_free(&out);
    out = CLI("generate", "--backend", "cpu", "--model", path, "--ids", "3,4", "--output-tokens",
              "16", "--set", "model.attention=block-causal");
    ck_assert_msg(out.status == 0 && strstr(out.err, says) == NULL, "%s", out.err);
    output_free(&out);
    char *text = PRINTS("run", "--model", path, "--requests", "2", "--verbose");
    ck_assert_msg(strstr(text, says) != NULL, "%s", text);
    free(text);
}

/* They stand beside the shipped ones, may begin with these, and say so where they hide one. */
TEST(systems_of_ones_own_are_added_to_the_shipped) {
    const char *path = scratch_write("own.ini", "[mine]\nbase = dllm-serve\nmax_requests = 3\n"
                                                "[focus]\nbase = focus\nmax_requests = 8\n"
                                                "[lmdeploy]\nscheduler = nonsense\n"
                                                "[round]\nbase = trip\n[trip]\nbase = round\n");
    static const char hides[] = "the user's system, not the shipped one";
    char *text =
        PRINTS("run", "--systems-file", path, "--system", "mine", "--requests", "9", "--verbose");
    ck_assert_msg(strstr(text, "mine, llada-8b on l40s") != NULL, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "at most 3"));
    ck_assert_ptr_null(strstr(text, hides));
    free(text);
    /* A base of its own name is the shipped one, whose own base is not [lmdeploy] of this file. */
    text = PRINTS("run", "--systems", path, "--system", "focus", "--requests", "9", "--verbose");
    ck_assert_msg(strstr(text, hides) != NULL, "%s", text);
    free(text);
    text = PRINTS("run", "--systems-file", path, "--system", "dllm-serve", "--requests", "9",
                  "--verbose");
    ck_assert_ptr_null(strstr(text, hides));
    free(text);
    struct output output = CLI("run", "--systems-file", path, "--system", "round");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "go in a circle"));
    output_free(&output);
    output = CLI("run", "--systems-file", path, "--system", "dllm-serv");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "did you mean 'dllm-serve'?"));
    output_free(&output);
}

/* What scripts may have from before. */
TEST(old_spellings_of_options_are_taken) {
    char *now = PRINTS("explain", "--input-tokens", "200", "--output-tokens", "64");
    char *before = PRINTS("explain", "--prompt", "200", "--output", "64");
    ck_assert_str_eq(now, before);
    free(now);
    free(before);
    REFUSES(2, "--input-tokens is given twice", "explain", "--prompt", "2", "--input-tokens", "3");
    REFUSES(2, "unknown option '--output'; did you mean '--out'?", "figure", "--output", "x");
}

/* Models and GPUs of one's own, and a model with one value changed. */
TEST(files_of_ones_own_are_taken_by_path) {
    const char *model = scratch_write(
        "mine.ini", "[model]\ntitle = Mine\nsource = a test\nlayers = 2\nhidden = 256\nheads = 2\n"
                    "kv_heads = 2\nhead_dim = 128\nffn = 512\nvocab = 1000\nmax_positions = 4096\n"
                    "mask_token = 999\nattention = block-causal\nblock_tokens = 8\n");
    const char *gpu = scratch_write(
        "card.ini", "[gpu]\ntitle = Card\nsource = a test\nsms = 10\ncompute_capability = 100\n"
                    "memory = 4 GiB\nl2 = 8 MiB\npeak_bf16_flops = 10e12\nbest_bf16_flops = 9e12\n"
                    "peak_fp64_flops = 1e12\npeak_bandwidth = 800e9\nbest_bandwidth = 700e9\n"
                    "l2_bandwidth = 2e12\nlink = none\nlink_bandwidth = 1e9\n");
    struct output output = CLI("run", "--model", model, "--gpu", gpu, "--requests", "3");
    ck_assert_int_eq(output.status, 0);
    ck_assert_msg(strstr(output.out, "sdar, mine on card") != NULL, "%s", output.out);
    output_free(&output);
    output = CLI("run", "--requests", "3", "--set", "model.layers=16", "--verbose");
    ck_assert_int_eq(output.status, 0);
    ck_assert_ptr_nonnull(strstr(output.out, "model.layers of llada-8b is set to 16"));
    output_free(&output);
    REFUSES(2, "--set: the model has no parameter 'layerz'; did you mean 'layers'?", "run", "--set",
            "model.layerz=16");
    REFUSES(2, "--set model.KEY: mask_token = 126336, but vocab = 100", "run", "--set",
            "model.vocab=100");
    REFUSES(1, "cannot open ./nowhere.ini: No such file or directory", "run", "--gpu",
            "./nowhere.ini");
}

static void refuses_file(const char *name, const char *text, const char *option,
                         const char *sentence) {
    const char *path = scratch_write(name, text);
    char expected[512];
    snprintf(expected, sizeof expected, "%s%s", path, sentence);
    if (option != NULL) {
        REFUSES(2, expected, "run", option, path, "--system", "s");
    } else {
        REFUSES(2, expected, "sweep", path);
    }
}

/* The others would take hours: nothing has run when the slip is told. */
TEST(a_slip_among_good_values_ends_before_anything_runs) {
    static const struct {
        const char *line, *says;
    } slips[] = {
        {"set.scheduler = knee, kneee", "unknown scheduler 'kneee'; did you mean 'knee'?"},
        {"set.scheduler = knee, ./no.so", "cannot load the plug-in"},
        {"set.max_requests = 4, four", "'four' is not a value for max_requests"},
        {"set.planner = exact, exakt", "unknown planner 'exakt'; did you mean 'exact'?"},
        {"set.runtime = unmask, nano", "unknown runtime 'nano'; did you mean 'nano-vllm'?"},
        {"set.confidence = kumaraswamy, kumara", "there is no decode process 'kumara'"},
        {"set.tensor_parallel = 1, 3", "held by 1, 2, 4 or 8 GPUs together, not by 3"},
        {"set.workload.arrivals = poisson, gama", "there are no arrivals 'gama'"},
        {"systems = dllm-serve, fast-dlm", "unknown system 'fast-dlm'; did you mean 'fast-dllm'?"},
        {"models = llada-8b, dream-7", "unknown model 'dream-7'; did you mean 'dream-7b'?"},
        {"workloads = burst, oscc", "there is no workload 'oscc'"},
        {"workloads = burst, ./no.csv", "No such file or directory"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof slips / sizeof slips[0]; i++) {
        snprintf(text, sizeof text, "[sweep]\nrequests = 900000000\nrates = 0.01, 0.02\n\n%s\n",
                 slips[i].line);
        REFUSES(2, slips[i].says, "sweep", scratch_write("slips.ini", text));
    }
#define HOURS "--requests", "900000000", "--rate", "0.1"
    REFUSES(2, "unknown scheduler 'kneee'", "compare", HOURS, "--over", "scheduler=knee,kneee");
    REFUSES(2, "unknown GPU 'h2000'", "compare", HOURS, "--over", "gpu=h200,h2000");
    REFUSES(2, "unknown scheduler 'kneee'", "capacity", HOURS, "--slo", "p99 latency<8s", "--over",
            "scheduler=knee,kneee");
    REFUSES(2, "unknown scheduler 'kneee'", "capacity", "--requests", "900000000", "--slo",
            "p99 latency<8s", "--over", "scheduler=knee,kneee");
}

/* A pair that cannot be is no slip: the others are there, and it has its reason. */
TEST(a_pair_that_cannot_be_is_told_beside_the_others) {
    const char *sweep = scratch_write("pairs.ini", "[sweep]\nrequests = 20\nrates = 0.1\n"
                                                   "models = llada-8b, sdar-8b\n"
                                                   "systems = dllm-serve, sdar\n");
    struct output output = CLI("sweep", sweep);
    ck_assert_int_eq(output.status, 1);
    ASSERT_SAYS(output.err, "2 of 4 points have no result");
    output_free(&output);
    output = CLI("compare", "--requests", "20", "--rate", "0.1", "--model", "llada-8b", "--systems",
                 "dllm-serve,sdar");
    ck_assert_int_eq(output.status, 1);
    ASSERT_SAYS(output.out, "no result    sdar: LLaDA-8B");
    output_free(&output);
    output = CLI("capacity", "--requests", "100", "--no-curve", "--slo", "p99 latency<100s",
                 "--model", "llada-8b", "--systems", "dllm-serve,sdar");
    ck_assert_int_eq(output.status, 1);
    ASSERT_SAYS(output.out, "sdar: no result: LLaDA-8B");
    output_free(&output);
}

TEST(a_runtime_that_is_not_the_engines_is_refused_before_there_is_a_device) {
    REFUSES(2,
            "runtime nano-vllm does not run live, for it has cached rows copied together before "
            "attention: the engine's attention reads them where they lie; set runtime = unmask",
            "run", "--backend", "cuda", "--library", "/nowhere/lib.so", "--runtime", "nano-vllm");
    REFUSES(2,
            "system dllm-serve does not run live, for it has steps of another code than "
            "ours (runtime.engine = off): they lack what the engine's kernels hold; set "
            "runtime.engine = on",
            "run", "--backend", "cuda", "--library", "/nowhere/lib.so", "--set",
            "runtime.engine=off");
}

TEST(a_bad_ini_file_is_refused_with_its_line) {
    refuses_file("s.ini", "[s]\nscheduler = contnuous\n", "--systems",
                 ":2: unknown scheduler 'contnuous'; did you mean 'continuous'? (`unmask list` "
                 "prints them all)");
    refuses_file(
        "s.ini", "[s]\npage_tokens = 0\n", "--systems",
        ":2: '0' is not a value for page_tokens of the system: expected a whole number from "
        "1 to 65536 (tokens)");
    refuses_file("sweep.ini", "[sweep]\nsystms = dllm-serve\n", NULL,
                 ":2: a sweep has no key 'systms'; did you mean 'systems'?");
    refuses_file("sweep.ini", "[swep]\nsystems = dllm-serve\n", NULL,
                 ":2: found section [swep], expected [sweep] only");
    refuses_file("sweep.ini", "[sweep]\nrates = 1,,2\n", NULL,
                 ":2: '' is empty, or longer than 191 characters with the file's folder");
    refuses_file("sweep.ini", "[sweep]\nrates = 1, fast\n", NULL,
                 ":2: 'fast' is not a rate above 0");
    refuses_file("sweep.ini", "[sweep]\nset.page_token = 16\n", NULL,
                 ":2: unknown key 'page_token'; did you mean 'page_tokens'?");
    refuses_file("sweep.ini", "; nothing\n", NULL,
                 ": found no [sweep] section, expected lists such as systems");
}

TEST(a_full_disk_is_reported_and_loses_nothing) {
    cli_expect(CLI_AS(&(const struct child){.stdout_path = "/dev/full"}, "list"), 1,
               "cannot write the output: No space left on device");
    const char *db = scratch_path("full.db");
    free(PRINTS("run", "--requests", "20", "--db", db, "--levels", "steps"));
    struct output output = CLI_AS(&(const struct child){.max_file_bytes = 1 << 16}, "run", "--db",
                                  db, "--levels", "steps", "--requests", "2000");
    ck_assert_msg(output.status == 1, "status %d: %s", output.status, output.err);
    ck_assert_ptr_nonnull(strstr(output.err, "full.db"));
    /* What the run came to is told all the same. */
    ck_assert_ptr_nonnull(strstr(output.out, "2000 completed of 2000"));
    output_free(&output);
    free(PRINTS("replay", "--db", db, "--run", "1"));
}

TEST(a_database_that_is_not_ours_is_refused) {
    const char *garbage =
        scratch_write("garbage.db", "this is no database, whatever its name says\n");
    char sentence[256];
    snprintf(sentence, sizeof sentence, "cannot open '%s': it is not an SQLite database", garbage);
    REFUSES(1, sentence, "run", "--requests", "5", "--db", garbage);
    const char *foreign = scratch_path("foreign.db");
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(foreign, &sqlite), SQLITE_OK);
    sqlite3_exec(sqlite, "CREATE TABLE notes(note)", NULL, NULL, NULL);
    sqlite3_close(sqlite);
    snprintf(sentence, sizeof sentence,
             "cannot open '%s': it is a database of another program (application id 0, ours is "
             "1970171243)",
             foreign);
    REFUSES(1, sentence, "compare", "--systems", "vanilla", "--requests", "5", "--db", foreign);
    struct output output = CLI("replay", "--db", scratch_path("absent.db"), "--run", "1");
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
}

/* The lock goes when the program is interrupted: it waited until then. */
TEST(a_locked_database_is_waited_for) {
    const char *db = scratch_path("locked.db");
    const struct child child = {.interrupt_after = 1500000};
    free(PRINTS("run", "--requests", "5", "--db", db));
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(sqlite, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "cannot open '%s': it is locked by another program; try again when that has finished",
             db);
    cli_expect(CLI_AS(&child, "run", "--requests", "5", "--db", db), 1, sentence);
    sqlite3_close(sqlite);
    free(PRINTS("run", "--requests", "5", "--db", db));
}

/* A data directory like the shipped one, but its L40S profile has no row of `operator`. */
static const char *data_without(const char *operator) {
    char command[1024];
    snprintf(command, sizeof command,
             "D='%s' && mkdir -p \"$D/kernels/profiles\" && ln -sf \"$PWD/experiments\" "
             "\"$PWD/traces\" \"$PWD/sim\" \"$D/\" && ln -sf \"$PWD/kernels/profiles/rtx4090.csv\" "
             "\"$D/kernels/profiles/\" && grep -v -e '^%s,' -e '^# rows' "
             "kernels/profiles/l40s.csv > "
             "\"$D/kernels/profiles/l40s.csv\"",
             scratch_path("data"), operator);
    ck_assert_int_eq(system(command), 0);
    return scratch_path("data");
}

TEST(a_profile_without_an_operator_is_refused) {
    const char *data = data_without("attention_decode");
    char sentence[512];
    snprintf(sentence, sizeof sentence,
             "unmask: %s/kernels/profiles/l40s.csv: has no 'attention_decode' rows "
             "(attention_decode,batch,q,kv,heads,kv_heads,head_dim,time_us)",
             data);
    struct output output = CLI_AS(&(const struct child){.data = data}, "run", "--requests", "5");
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, sentence) != NULL && strstr(output.err, "--roofline") != NULL,
                  "%s", output.err);
    output_free(&output);
    output = CLI_AS(&(const struct child){.data = data}, "list", "profiles");
    ck_assert_int_eq(output.status, 1); /* where there are no others */
    ck_assert_ptr_nonnull(strstr(output.err, "does not say its kind, or cannot be read"));
    output_free(&output);
}

TEST(plugins_serve_or_are_named_for_what_they_break) {
    char *text =
        PRINTS("run", "--scheduler", suite_plugin("template_scheduler"), "--requests", "20");
    ck_assert_ptr_nonnull(strstr(text, "20 completed of 20"));
    free(text);
    struct output output = CLI("check-plugin", suite_plugin("bad_starving"));
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "it selects nothing and names no later time"));
    output_free(&output);
    output = CLI("check-plugin", suite_plugin("bad_crashing"));
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "crash"));
    output_free(&output);
    output = CLI("run", "--scheduler", suite_plugin("bad_starving"), "--requests", "20");
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "it selects nothing and names no later time"));
    output_free(&output);
    output = CLI("run", "--set", "scheduler=" /* a slash makes it a file */ "./nowhere.so");
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "nowhere.so"));
    output_free(&output);
    free(PRINTS("check-plugin", suite_plugin("template_cache")));
    REFUSES(2, "check-plugin needs the file of a plug-in, such as ./mine.so", "check-plugin");
}

TEST(a_folder_of_what_is_listed_that_cannot_be_read_is_no_empty_one) {
    const char *data = scratch_path("looped"),
               *studies = scratch_path("looped/experiments/study/studies");
    char command[256];
    snprintf(command, sizeof command, "mkdir -p '%s/experiments/study' && ln -s studies '%s'", data,
             studies);
    ck_assert_int_eq(system(command), 0);
    cli_expect(CLI_AS(&(const struct child){.data = data}, "list", "experiments"), 1,
               "cannot read the folder ");
}

SUITE("cli input")
