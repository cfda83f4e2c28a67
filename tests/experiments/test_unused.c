/* Settings that do nothing are said: the conditions beside keys and options, and the warning. */
#include <jansson.h>
#include <sqlite3.h>

#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "sim/base/condition.h"
#include "sim/base/names.h"
#include "sim/base/warning.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/runtime.h"
#include "sim/system/system_reads.h"
#include "tests/support/cli.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/marks.h"
#include "traces/workload_parts.h"

/* ---- conditions ---- */

static const char *letters(const void *state, const char *name, char text[FACT_CHARS]) {
    static const char *const values[][2] = {
        {"a", "one"}, {"b.c", "2"}, {"big", "1e3"}, {"small", "0.50"}, {NULL, NULL}};
    (void)state;
    for (size_t i = 0; values[i][0] != NULL; i++) {
        if (strcmp(values[i][0], name) == 0) {
            snprintf(text, FACT_CHARS, "%s", values[i][1]);
            return text;
        }
    }
    return NULL;
}

TEST(conditions_are_terms_joined_by_and_and_or) {
    static const struct {
        const char *text;
        bool is_valid, holds;
    } tried[] = {
        {"a = one", true, true},
        {"a = two|one|three", true, true},
        {"a = on", true, false},
        {"a != one", true, false},
        {"b.c = 2.0", true, true},
        {"small = 0.5", true, true},
        {"b.c > 1", true, true},
        {"b.c > 2", true, false},
        {"big > b.c", true, true},
        {"b.c > big", true, false},
        {"a > 1", true, false},
        {"nothing = one", true, false},
        {"nothing != one", true, true},
        {"nothing < 1", true, false},
        {"a = two and b.c = 2 or big > 1", true, true},
        {"a = two and b.c = 2 or big < 1", true, false},
        {"a = one or a = two and big < 1", true, true},
        {"a = one or a = two or big < 1", true, true},
        {"a = one and", false, false},
        {"a = one but b.c = 2", false, false},
        {"a is one", false, false},
        {"", false, false},
        {"tokens", false, false},
    };
    const struct facts facts = {letters, NULL};
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        ck_assert_msg(condition_is_valid(tried[i].text) == tried[i].is_valid, "%s", tried[i].text);
        ck_assert_msg(condition_holds(tried[i].text, &facts) == tried[i].holds, "%s",
                      tried[i].text);
    }
}

/* A plug-in's doc may end in brackets of its own. */
TEST(a_doc_ends_with_its_condition_or_has_none) {
    char text[CONDITION_CHARS];
    ck_assert_str_eq(condition_of("a share [a = one]", text), "a = one");
    ck_assert_uint_eq(condition_doc_length("a share [a = one]"), strlen("a share"));
    static const char *const none[] = {"a share", "a share [tokens]", "a [b = c] share", "]", ""};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ck_assert_ptr_null(condition_of(none[i], text));
        ck_assert_uint_eq(condition_doc_length(none[i]), strlen(none[i]));
    }
}

TEST(facts_stand_in_sentences_by_words_and_keys_as_they_are_set) {
    char text[CONDITION_WORDS_CHARS];
    ck_assert_str_eq(condition_words("serves = on and kv = pages", text),
                     "requests are served and kv = pages");
    ck_assert_str_eq(condition_words("kv = slab or asked.block_tokens = 0", text),
                     "kv = slab or block_tokens = 0 is asked for");
    ck_assert_str_eq(condition_words("a system of it is asked for", text),
                     "a system of it is asked for");
    struct warnings warnings = {0};
    warnings_add_unused(&warnings, "replicas", "3", NULL, "serves = on");
    ck_assert_str_eq(warnings.items[0].text,
                     "replicas = 3 does nothing here: it is read where requests are served");
}

/* ---- every condition of the program's tables ---- */

static const char *const served_facts[] = {"backend",     "serves",    "priced", "played",
                                           "run.answers", "run.draws", NULL};

static bool is_param(const struct param *table, size_t n, const char *name, const char *prefix) {
    const char *rest = name_behind(name, prefix);
    return rest != NULL && param_find(table, n, rest) != NULL;
}

static bool is_of_policies(const char *name) {
    for (int kind = POLICY_SCHEDULER; kind <= POLICY_ROUTER; kind++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s.", policy_kind_names[kind]);
        for (size_t i = 0; i < policy_count((enum policy_kind)kind); i++) {
            const struct policy *policy = policy_at((enum policy_kind)kind, i);
            if (is_param(policy->params, policy->n_params, name, prefix)) {
                return true;
            }
        }
    }
    return false;
}

static bool is_of_workloads(const char *name) {
    bool found = strcmp(name, "workload.context") == 0;
    for (size_t i = 0; workload_fact_docs[i].name != NULL; i++) {
        found = found || strcmp(workload_fact_docs[i].name, name) == 0;
    }
    for (size_t i = 0; process_at(i) != NULL; i++) {
        found = found || is_param(process_at(i)->params, process_at(i)->n_params, name,
                                  "workload.arrivals.");
    }
    return found;
}

static bool is_fact(const char *name) {
    const char *asked = name_behind(name, "asked.");
    name = asked != NULL ? asked : name;
    for (size_t i = 0; system_fact_doc(i) != NULL; i++) {
        if (strcmp(system_fact_doc(i)->name, name) == 0) {
            return true;
        }
    }
    return name_find(served_facts, name) >= 0 || system_part_doc(name) != NULL ||
           is_param(system_params, system_n_params, name, "") ||
           is_param(runtime_params, runtime_n_params, name, "runtime.") ||
           is_param(model_params, model_n_params, name, "model.") || is_of_policies(name) ||
           is_of_workloads(name);
}

static size_t n_conditions;

/* What no one sets: its name is no word for people. */
static bool is_told(const char *name) {
    bool is_told = name_find(served_facts, name) >= 0 || name_behind(name, "asked.") != NULL;
    for (size_t i = 0; system_fact_doc(i) != NULL; i++) {
        is_told = is_told || strcmp(system_fact_doc(i)->name, name) == 0;
    }
    for (size_t i = 0; workload_fact_docs[i].name != NULL; i++) {
        is_told = is_told || strcmp(workload_fact_docs[i].name, name) == 0;
    }
    return is_told;
}

/* A warning says it in words. */
static void check_words(const char *condition) {
    char words[CONDITION_WORDS_CHARS], name[FACT_CHARS], term[FACT_CHARS + 4];
    const char *rest = condition;
    condition_words(condition, words);
    while (condition_next_name(&rest, name)) {
        snprintf(term, sizeof term, " %s ", name);
        char padded[CONDITION_WORDS_CHARS + 2];
        snprintf(padded, sizeof padded, " %s", words);
        for (const char *at = is_told(name) ? strstr(padded, term) : NULL; at != NULL;) {
            ck_assert_msg(strchr("=!<>", at[strlen(term)]) == NULL, "%s: %s", condition, words);
            at = strstr(at + 1, term);
        }
    }
}

/* Whatever ends in brackets is a condition, of names that there are. */
static void check_doc(const char *doc) {
    char text[CONDITION_CHARS], name[FACT_CHARS];
    const char *condition = condition_of(doc, text), *rest = condition;
    ck_assert_msg(condition != NULL || doc[0] == '\0' || doc[strlen(doc) - 1] != ']', "%s", doc);
    n_conditions += condition != NULL;
    while (rest != NULL && condition_next_name(&rest, name)) {
        ck_assert_msg(is_fact(name), "%s: there is no %s", doc, name);
    }
    if (condition != NULL) {
        check_words(condition);
    }
}

static void check_params(const struct param *params, size_t n) {
    for (size_t i = 0; i < n; i++) {
        check_doc(params[i].doc);
    }
}

TEST(conditions_of_keys_speak_of_what_there_is) {
    n_conditions = 0;
    check_params(system_params, system_n_params);
    check_params(runtime_params, runtime_n_params);
    check_params(model_params, model_n_params);
    check_params(host_params, host_n_params);
    for (size_t i = 0; system_part_at(i) != NULL; i++) {
        check_doc(system_part_doc(system_part_at(i)));
    }
    for (int kind = POLICY_SCHEDULER; kind <= POLICY_ROUTER; kind++) {
        for (size_t i = 0; i < policy_count((enum policy_kind)kind); i++) {
            const struct policy *policy = policy_at((enum policy_kind)kind, i);
            check_params(policy->params, policy->n_params);
        }
    }
    for (size_t i = 0; process_at(i) != NULL; i++) {
        check_params(process_at(i)->params, process_at(i)->n_params);
    }
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        check_params(length_model_at(i)->params, length_model_at(i)->n_params);
    }
    for (size_t i = 0; mark_model_at(i) != NULL; i++) {
        check_params(mark_model_at(i)->params, mark_model_at(i)->n_params);
    }
    static const char *const own[] = {"requests",
                                      "rate",
                                      "context",
                                      "over_context",
                                      "provenance.arrivals",
                                      "provenance.lengths",
                                      "provenance.answers",
                                      NULL};
    for (size_t i = 0; own[i] != NULL; i++) {
        check_doc(workload_spec_doc(own[i]));
    }
    ck_assert_uint_gt(n_conditions, 80);
}

static bool has_option(const struct command *command, const char *name) {
    for (size_t g = 0; command->options[g] != NULL; g++) {
        for (const struct option *o = command->options[g]; o->name != NULL; o++) {
            if (strcmp(o->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Either of other options of the command, which are checked at once, or of the run. */
TEST(conditions_of_options_speak_of_options_or_of_runs) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                char text[CONDITION_CHARS], name[FACT_CHARS];
                const char *rest = condition_of(o->doc, text);
                bool of_options = rest != NULL && rest[0] == '-';
                ck_assert(rest != NULL || o->doc[strlen(o->doc) - 1] != ']');
                if (rest != NULL && !of_options) {
                    check_words(rest);
                }
                while (rest != NULL && condition_next_name(&rest, name)) {
                    bool is_known = of_options ? has_option(commands[i], name + 2) : is_fact(name);
                    ck_assert_msg(is_known, "%s --%s: there is no %s", commands[i]->name, o->name,
                                  name);
                }
            }
        }
    }
}

TEST(many_unused_settings_share_a_warning) {
    struct warnings warnings = {0};
    warnings_add(&warnings, WARNING_INCOMPLETE, 0, "cut short");
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        warnings_add_unused(&warnings, key, "1", "--set", "a = b");
    }
    ck_assert_uint_eq(warnings.n, WARNINGS_MOST_UNUSED + 2);
    const struct warning *shared = &warnings.items[WARNINGS_MOST_UNUSED];
    ck_assert_ptr_nonnull(strstr(shared->text, "key6, key7"));
    ck_assert_int_eq((int)warnings.items[WARNINGS_MOST_UNUSED + 1].code, WARNING_INCOMPLETE);
}

/* ---- what programs say ---- */

/* The texts of the warnings of that code, a line each; the caller frees them. */
static char *unused_in(const json_t *summary) {
    size_t i, size = 1;
    json_t *warning;
    char *out = calloc(1, 1);
    json_array_foreach(json_object_get(summary, "warnings"), i, warning) {
        const char *text = json_string_value(json_object_get(warning, "text"));
        if (strcmp(json_string_value(json_object_get(warning, "code")), "setting-unused") == 0) {
            size += strlen(text) + 1;
            out = realloc(out, size);
            ck_assert_ptr_nonnull(out);
            strcat(strcat(out, text), "\n");
        }
    }
    return out;
}

static char *unused_of(struct output output) {
    char *text = cli_text(output);
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    char *found = unused_in(object);
    json_decref(object);
    free(text);
    return found;
}

#define UNUSED(...) unused_of(CLI("run", "--requests", "6", "--json", __VA_ARGS__))
#define SAYS_UNUSED(expected, ...)                                                                 \
    do {                                                                                           \
        char *found = UNUSED(__VA_ARGS__);                                                         \
        ck_assert_msg((expected)[0] == '\0' ? found[0] == '\0' : strstr(found, expected) != NULL,  \
                      "\"%s\" is not in \"%s\"", expected, found);                                 \
        free(found);                                                                               \
    } while (0)

TEST(keys_that_nothing_reads_are_warned_of) {
    SAYS_UNUSED("", "--set", "replicas=2", "--router", "round-robin");
    SAYS_UNUSED("router = round-robin (--router)", "--router", "round-robin");
    SAYS_UNUSED("unroll.expected_tpf = 4 (--set)", "--set", "unroll.expected_tpf=4");
    SAYS_UNUSED("", "--set", "unroll.expected_tpf=4", "--set", "unroll.maximum=2");
    SAYS_UNUSED("cache.k = 3", "--system", "focus", "--set", "cache.k=3");
    SAYS_UNUSED("", "--system", "focus", "--set", "cache.k=3", "--set", "cache.choice=top");
    SAYS_UNUSED("scheduler.prefill_interval", "--system", "lmdeploy-published", "--set",
                "scheduler.prefill_interval=3");
    SAYS_UNUSED("decoder.seed = 3", "--decoder", "entropy", "--set", "decoder.seed=3");
    SAYS_UNUSED("runtime.vmm", "--set", "runtime.vmm=on");
    SAYS_UNUSED("model.rope_theta", "--set", "model.rope_theta=5000");
    SAYS_UNUSED("early_stop", "--set", "early_stop=block");
    SAYS_UNUSED("", "--set", "early_stop=block", "--set", "workload.answer.share=0.5");
    SAYS_UNUSED("confidence_drop", "--system", "sdar", "--set", "confidence_drop=1");
    SAYS_UNUSED("", "--system", "sdar", "--workload", "sharegpt", "--set", "confidence_drop=1");
}

TEST(a_workload_s_keys_are_warned_of) {
    SAYS_UNUSED("workload.arrivals.off_ns = 5s (--set)", "--arrivals", "bursts", "--set",
                "workload.arrivals.off_ns=5s", "--set", "workload.arrivals.burst=1");
    const char *path = scratch_write("own.ini", "[workload]\narrivals = poisson\nrate = 1\n"
                                                "requests = 5\ninput = fixed\noutput = fixed\n"
                                                "over_context = truncate\n");
    SAYS_UNUSED("own.ini:7", "--workload", path);
    SAYS_UNUSED("", "--workload", path, "--set", "workload.context=4096");
}

TEST(options_that_nothing_reads_are_warned_of_or_refused) {
    SAYS_UNUSED("--seed = 3", "--seed", "3", "--arrivals", "all-at-once", "--input-tokens", "9",
                "--output-tokens", "9");
    SAYS_UNUSED("", "--seed", "3");
    SAYS_UNUSED("--chat = qa", "--chat", "qa");
    REFUSES(2, "--nodes does nothing here: it is read where --planner = exact|all", "plan",
            "--nodes", "9");
    free(PRINTS("plan", "--nodes", "9", "--planner", "exact", "--output-tokens", "32"));
    REFUSES(2, "--library does nothing here: it is read where --backend = cuda", "run", "--backend",
            "cpu", "--library", "x.so");
    REFUSES(2, "--multiple-of does nothing here: it is read where --canvas = none", "plan", "lmax",
            "--canvas", "640", "--multiple-of", "64");
    REFUSES(2, "--slo-tpot does nothing here: --no-run leaves runs out", "bound", "--requests", "6",
            "--no-run", "--slo-tpot", "1s");
    REFUSES(2, "unknown GPU 'h101'", "capacity", "--slo", "p99 latency<30s", "--requests", "6",
            "--no-curve", "--price", "l40s=1,h101=3");
    REFUSES(2, "--seeds: mosaic-fig10 runs no system", "figure", "mosaic-fig10", "--seeds", "2");
}

static void says(bool is_said, char *text, const char *words) {
    ck_assert_msg((strstr(text, words) != NULL) == is_said, "%s in %s", words, text);
    free(text);
}

/* A file of systems is used where one of the systems that are compared is in it. */
#define TOLD(...) PRINTS(__VA_ARGS__, "--verbose")

TEST(a_systems_file_that_no_system_is_of_is_said) {
    static const char unused[] = "setting-unused: --systems-file = ";
    const char *path = scratch_write("own.ini", "[mine]\nbase = fast-dllm\n");
    const char *sweep =
        scratch_write("s.ini", "[sweep]\nsystems = dllm-serve, mine\nrequests = 3\n");
    says(true, TOLD("run", "--requests", "3", "--systems-file", path), unused);
    says(false, TOLD("run", "--requests", "3", "--systems-file", path, "--system", "mine"), unused);
    says(true, TOLD("explain", "--systems-file", path), unused);
    says(true, TOLD("plan", "--output-tokens", "32", "--systems-file", path), unused);
    says(true, TOLD("plan", "lmax", "--systems-file", path), unused);
    says(true, TOLD("bound", "--requests", "3", "--systems-file", path), unused);
    says(false,
         TOLD("bound", "--requests", "3", "--systems", "mine,dllm-serve", "--systems-file", path),
         unused);
    says(true, TOLD("plan", "latency", "--canvases", "1024", "--systems-file", path), unused);
    says(true,
         TOLD("compare", "--systems", "dllm-serve,fast-dllm", "--requests", "3", "--systems-file",
              path),
         unused);
    says(false,
         TOLD("compare", "--systems", "dllm-serve,mine", "--requests", "3", "--systems-file", path),
         unused);
    says(false, PRINTS("sweep", sweep, "--json", "--systems-file", path), "setting-unused");
}

/* Whatever runs: where no run of such a model or card reads a key of its file. */
TEST(keys_of_models_and_cards_that_nothing_reads_are_said) {
    static const char shape[] =
        "[model]\ntitle = t\nsource = s\nfamily = llada\nlayers = 4\n"
        "hidden = 256\nheads = 2\nkv_heads = 2\nhead_dim = 128\nffn = 512\n"
        "vocab = 1024\nmax_positions = 4096\nmask_token = 1023\n"
        "attention = bidirectional\nblock_tokens = 32\nrope_theta = 10000\n";
    char file[1024];
    snprintf(file, sizeof file, "%snorm_topk = on\n", shape);
    const char *model = scratch_write("m.ini", file);
    says(true, TOLD("run", "--requests", "3", "--model", model), "setting-unused: norm_topk = on");
    says(true, TOLD("plan", "--output-tokens", "32", "--model", model), "m.ini:17) does nothing");
    says(false, TOLD("run", "--requests", "3", "--model", model), "rope_theta");
    says(false, TOLD("run", "--requests", "3", "--model", scratch_write("m.ini", shape)),
         "setting-unused");
    static const char card[] =
        "[gpu]\ntitle = t\nsource = s\nsms = 132\ncompute_capability = 90\nmemory = 80000000000\n"
        "l2 = 50000000\npeak_bf16_flops = 989e12\npeak_fp64_flops = 34e12\n"
        "peak_bandwidth = 3350e9\nbest_bf16_flops = 700e12\nbest_bandwidth = 3000e9\n"
        "l2_bandwidth = 5000e9\nlink = %s\nlink_bandwidth = 450e9\nlink_peers = off\n";
    for (int is_pcie = 0; is_pcie < 2; is_pcie++) {
        snprintf(file, sizeof file, card, is_pcie ? "PCIe 5.0 x16" : "NVLink 4");
        says(!is_pcie, TOLD("run", "--requests", "3", "--gpu", scratch_write("g.ini", file)),
             "setting-unused: link_peers = off");
    }
}

/* On the screen, for a system of one's own by its line, of single steps, and in a database. */
TEST(the_warning_stands_wherever_warnings_do) {
    const char *path = scratch_write(
        "own.ini", "[mine]\nbase = dllm-serve\niteration.weight_init = 0.2\nunroll.maximum = 1\n");
    char *text = TOLD("run", "--requests", "6", "--systems-file", path, "--system", "mine");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: iteration.weight_init = 0.2 ("));
    ck_assert_ptr_nonnull(strstr(text, "own.ini:3)"));
    free(text);
    text = TOLD("explain", "--replicas", "3");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: replicas = 3"));
    free(text);
    text = TOLD("plan", "--set", "scheduler=static", "--output-tokens", "32");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: scheduler = static"));
    free(text);
    text = TOLD("plan", "lmax", "--steps", "4", "--set", "early_stop=block");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: --steps = 4"));
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: early_stop = block"));
    free(text);
    text = TOLD("plan", "latency", "--canvases", "1024", "--set", "router=round-robin");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: router = round-robin"));
    ck_assert_ptr_null(strstr(text, "context_tokens")); /* which the command sets */
    free(text);
    text = TOLD("compare", "--systems", "dllm-serve,fast-dllm", "--requests", "6", "--set",
                "router=round-robin");
    ck_assert_ptr_nonnull(strstr(text, "setting-unused: router = round-robin"));
    free(text);
    const char *db = scratch_path("unused.db");
    free(TOLD("run", "--requests", "6", "--set", "router=round-robin", "--db", db));
    sqlite3 *store = NULL;
    sqlite3_stmt *rows = NULL;
    ck_assert_int_eq(sqlite3_open(db, &store), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(store, "SELECT summary FROM runs", -1, &rows, NULL),
                     SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(rows), SQLITE_ROW);
    json_t *summary = json_loads((const char *)sqlite3_column_text(rows, 0), 0, NULL);
    char *found = unused_in(summary);
    ck_assert_ptr_nonnull(strstr(found, "router = round-robin"));
    free(found);
    json_decref(summary);
    sqlite3_finalize(rows);
    sqlite3_close(store);
}

/* What is warned of depends on who said a setting, and not on what memory held before. */
TEST(a_setting_of_the_command_line_is_the_command_lines) {
    static struct asked asked;
    struct err err = {0};
    memset(asked.settings, 0xff, sizeof asked.settings);
    ck_assert_int_eq(asked_set(&asked, "decoder.cost", "0", "--set", &err), 0);
    const struct setting *setting = &asked.settings[0];
    ck_assert_uint_eq(setting->said, SAID_BY_COMMAND);
    ck_assert_uint_eq(setting->layer, 0);
    ck_assert_str_eq(setting->constant, "");
    ck_assert_str_eq(setting->key, "decoder.cost");
}

SUITE("unused")
