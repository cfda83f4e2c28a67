/* What a run is made of: digests, the files it reads, resuming by them, points that sweeps share.
 */
#include <fcntl.h>
#include <jansson.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "analysis/identity.h"
#include "engine/weights/safetensors.h"
#include "experiments/run/sweep/claims.h"
#include "sim/base/input/sha256.h"
#include "sim/model/model.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/system/system.h"
#include "tests/support/cli.h"
#include "tests/support/database.h"
#include "tests/support/old_schema.h"
#include "tests/support/outputs.h"
#include "traces/reader.h"

static const char *digest_of(const char *bytes, size_t size, size_t piece) {
    static char hex[SHA256_HEX_CHARS];
    struct sha256 sha;
    sha256_begin(&sha);
    for (size_t at = 0; at < size; at += piece) {
        sha256_add(&sha, bytes + at, size - at < piece ? size - at : piece);
    }
    sha256_hex(&sha, hex);
    return hex;
}

/* FIPS 180-4's examples as NIST publishes them, one block and two, and a million times 'a'. */
TEST(digests_are_those_of_the_standard) {
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    ck_assert_str_eq(digest_of("abc", 3, 1),
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_str_eq(digest_of("", 0, 1),
                     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (size_t piece = 1; piece <= strlen(two); piece++) {
        ck_assert_str_eq(digest_of(two, strlen(two), piece),
                         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    char *million = malloc(1000000);
    ck_assert_ptr_nonnull(million);
    memset(million, 'a', 1000000);
    for (size_t piece = 63; piece <= 65; piece++) {
        ck_assert_str_eq(digest_of(million, 1000000, piece),
                         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(million);
}

/* The digest of an input by the end of its path; "" where the run has none. */
static const char *input_of(const json_t *summary, const char *role, const char *path) {
    size_t i;
    json_t *input;
    json_array_foreach(json_object_get(json_object_get(summary, "identity"), "inputs"), i, input) {
        const char *its = json_string_value(json_object_get(input, "path"));
        if (strcmp(its, path) == 0 &&
            strcmp(json_string_value(json_object_get(input, "role")), role) == 0) {
            const char *sha256 = json_string_value(json_object_get(input, "sha256"));
            return sha256 != NULL ? sha256 : "null";
        }
    }
    return "";
}

TEST(a_run_names_the_content_of_every_file_it_read) {
    const char *trace =
        scratch_write("abc.csv", "arrival_us,input_tokens,output_tokens\n0,20,30\n");
    const char *plugin = suite_plugin("template_scheduler");
    char *text = PRINTS("run", "--trace", trace, "--gpu", "a100-40g", "--set",
                        "confidence=sdar-8b/sharegpt", "--scheduler", plugin, "--json");
    json_t *summary = json_parsed(text);
    ck_assert_uint_eq(strlen(input_of(summary, "settings", "experiments/study/systems.ini")), 64);
    ck_assert_uint_eq(strlen(input_of(summary, "settings", "experiments/study/calibrated.ini")),
                      64);
    ck_assert_uint_eq(strlen(input_of(summary, "settings", "experiments/study/decode.ini")), 64);
    ck_assert_uint_eq(strlen(input_of(summary, "plugin", plugin)), 64);
    ck_assert_uint_eq(strlen(input_of(summary, "profile", "kernels/profiles/a100-80g.csv")), 64);
    char expected[SHA256_HEX_CHARS];
    const char *content = "arrival_us,input_tokens,output_tokens\n0,20,30\n";
    snprintf(expected, sizeof expected, "%s", digest_of(content, strlen(content), 7));
    ck_assert_str_eq(input_of(summary, "trace", trace), expected);
    const json_t *identity = json_object_get(summary, "identity");
    ck_assert_uint_eq(strlen(identity_digest(identity)), 64);
    const json_t *build = json_object_get(identity, "build");
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(build, "sources"))), 64);
    json_decref(summary);
}

TEST(the_version_names_the_commit_and_the_data) {
    char *text = PRINTS("--version");
    ck_assert_msg(strstr(text, "unmask 0.") == text, "%s", text);
    ck_assert_msg(strstr(text, "commit") != NULL && strstr(text, "data from ") != NULL, "%s", text);
    free(text);
}

/* Of weights: the files' sizes, headers and ends, so that a changed value at an end shows. */
TEST(weights_are_noted_by_their_headers_and_ends) {
    char path[160], command[320], before[SHA256_HEX_CHARS];
    snprintf(path, sizeof path, "%s/model.safetensors", scratch_folder);
    snprintf(command, sizeof command, "cp tests/golden/engine/dream-tiny/model.safetensors '%s'",
             path);
    ck_assert_int_eq(system(command), 0);
    for (int round = 0; round < 2; round++) {
        struct inputs inputs = {0};
        struct safetensors stored;
        struct err err = {0};
        (void)inputs_collect(&inputs);
        ck_assert_int_eq(safetensors_open(path, &stored, &err), 0);
        ck_assert_ptr_eq(inputs_collect(NULL), &inputs);
        safetensors_close(&stored);
        ck_assert_uint_eq(inputs.n, 1);
        ck_assert_str_eq(inputs.items[0].role, "weights: size, header, first and last MiB");
        ck_assert_str_eq(inputs.items[0].path, path);
        ck_assert_uint_eq(strlen(inputs.items[0].sha256), SHA256_HEX_CHARS - 1);
        ck_assert(round == 0 || strcmp(inputs.items[0].sha256, before) != 0);
        memcpy(before, inputs.items[0].sha256, sizeof before);
        inputs_fini(&inputs);
        FILE *file = fopen(path, "r+");
        ck_assert_ptr_nonnull(file);
        fseek(file, -1, SEEK_END);
        fputc('x', file);
        fclose(file);
    }
}

TEST(a_checkpoint_is_noted_with_its_configuration) {
    json_t *summary =
        json_parsed(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--weights",
                           "experiments/train/models/llada-2m", "--requests", "1", "--input-tokens",
                           "8", "--output-tokens", "8", "--json"));
    const char *digest =
        input_of(summary, "weights", "experiments/train/models/llada-2m/config.json");
    ck_assert_uint_eq(strlen(digest), SHA256_HEX_CHARS - 1);
    digest =
        input_of(summary, "end tokens", "experiments/train/models/llada-2m/generation_config.json");
    ck_assert_uint_eq(strlen(digest), SHA256_HEX_CHARS - 1);
    json_decref(summary);
}

/* Its family's file and the one that this one is like, however often the model was read before. */
TEST(a_configuration_is_noted_with_its_families) {
    const char *config = scratch_write(
        "config.json",
        "{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"intermediate_size\":3072,"
        "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,"
        "\"num_hidden_layers\":28,\"vocab_size\":151936,\"rope_theta\":1000000,"
        "\"rms_norm_eps\":1e-6,\"max_position_embeddings\":40960,\"tie_word_embeddings\":true}");
    struct err err = {0};
    for (int again = 0; again < 2; again++) {
        struct inputs inputs = {0};
        (void)inputs_collect(&inputs);
        ck_assert_msg(model_find(config, &err) != NULL, "%s", err.text);
        (void)inputs_collect(NULL);
        ck_assert_uint_eq(inputs.n, 3);
        ck_assert_str_eq(inputs.items[0].role, "model");
        ck_assert_str_eq(inputs.items[1].path, "sim/model/families/llama.ini");
        ck_assert_str_eq(inputs.items[2].path, "sim/model/families/qwen3.ini");
        for (size_t i = 0; i < inputs.n; i++) {
            ck_assert_uint_eq(strlen(inputs.items[i].sha256), SHA256_HEX_CHARS - 1);
        }
        inputs_fini(&inputs);
    }
}

TEST(what_cannot_be_digested_is_noted_without_a_digest) {
    const char *loop = scratch_path("loop.csv");
    struct inputs inputs = {0};
    ck_assert_int_eq(symlink(loop, loop), 0);
    (void)inputs_collect(&inputs);
    (void)inputs_hold("trace", loop);
    (void)inputs_hold("trace", scratch_path("nothing.csv"));
    (void)inputs_hold("trace",
                      "/proc/self/mem"); /* a file that opens, and whose first byte fails */
    (void)inputs_collect(NULL);
    ck_assert_uint_eq(inputs.n, 2);
    for (size_t i = 0; i < inputs.n; i++) {
        ck_assert_str_eq(inputs.items[i].sha256, "");
    }
    json_t *identity = identity_json("", &inputs);
    ck_assert_str_eq(identity_digest(identity), "");
    json_decref(identity);
    inputs_fini(&inputs);
}

static void digest_now(const char *path, char sha256[SHA256_HEX_CHARS]) {
    int file = open(path, O_RDONLY);
    ck_assert(inputs_digest_open(file, sha256));
    close(file);
    ck_assert(!inputs_digest_open(-1, sha256));
}

/* What is noted is the file that is open, not the one that has its name by then; nor is one of two
 * contents under one name taken for what was read. */
TEST(a_file_that_is_replaced_while_it_is_read_keeps_no_other_ones_digest) {
    char was[SHA256_HEX_CHARS];
    struct inputs inputs = {0};
    struct err err = {0};
    const char *path = scratch_write("read.csv", "old"), *other = scratch_write("new.csv", "new");
    digest_now(path, was);
    int file = open(path, O_RDONLY);
    (void)inputs_collect(&inputs);
    int held = inputs_hold("decode trace", path);
    ck_assert_int_ge(held, 0);
    ck_assert_int_eq(rename(other, path), 0);
    inputs_note_open("trace", path, file);
    ck_assert_int_eq(lseek(file, 0, SEEK_CUR), 0);
    ck_assert_int_eq(inputs_release(held, path, &err), ERR_WORLD);
    ck_assert_uint_eq(inputs.n, 2);
    ck_assert_str_eq(inputs.items[0].sha256, was);
    ck_assert_str_eq(inputs.items[1].sha256, was);
    held = inputs_hold("trace", path);
    ck_assert_int_eq(inputs_release(held, path, &err), 0);
    ck_assert_str_eq(inputs.items[1].sha256, "");
    (void)inputs_collect(NULL);
    close(file);
    inputs_fini(&inputs);
}

/* A trace is opened, then its name leads to another file, then the trace is read: the run is of the
 * first, and says so. */
TEST(a_run_has_the_digest_of_the_trace_that_it_reads) {
    char was[SHA256_HEX_CHARS];
    struct inputs inputs = {0};
    struct err err = {0};
    struct arrival row;
    struct trace *trace = NULL;
    const char *head = "arrival_us,input_tokens,output_tokens\n0,20,30\n";
    const char *path = scratch_write("swapped.csv", head);
    digest_now(path, was);
    (void)inputs_collect(&inputs);
    ck_assert_int_eq(trace_open(path, &trace, &err), 0);
    (void)inputs_collect(NULL);
    ck_assert_int_eq(rename(scratch_write("by.csv", "nothing"), path), 0);
    struct arrival_source source = trace_source(trace);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert_str_eq(inputs.items[0].sha256, was);
    trace_close(trace);
    inputs_fini(&inputs);
}

TEST(what_cannot_be_read_twice_has_no_identity) {
    const char *fifo = scratch_path("pipe.csv");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    pid_t pid = fork();
    if (pid == 0) {
        FILE *out = fopen(fifo, "w");
        fputs("arrival_us,input_tokens,output_tokens\n0,20,30\n", out);
        fclose(out);
        _exit(0);
    }
    json_t *summary = json_parsed(PRINTS("run", "--trace", fifo, "--json"));
    waitpid(pid, NULL, 0);
    ck_assert_str_eq(input_of(summary, "trace", fifo), "null");
    ck_assert_str_eq(identity_digest(json_object_get(summary, "identity")), "");
    json_decref(summary);
}

/* Runs a sweep; the second column of numbers must be those of a sweep without a database, and the
 * last words on standard error hold `why`. */
static void sweeps(const struct child *child, const char *file, const char *db, const char *why) {
    char *fresh = cli_text(CLI_AS(child, "sweep", file));
    struct output output = CLI_AS(child, "sweep", file, "--db", db);
    ck_assert_msg(output.status == 0, "%s", output.err);
    ck_assert_str_eq(output.out, fresh);
    ck_assert_msg(strstr(output.err, why) != NULL, "%s lacks '%s'", output.err, why);
    output_free(&output);
    free(fresh);
}

static const struct child plain = {0};

TEST(a_changed_trace_is_run_again) {
    const char *db = scratch_path("trace.db"), *trace = scratch_path("tr.csv");
    char text[512];
    snprintf(text, sizeof text, "[sweep]\nsystems = dllm-serve\nworkloads = %s\n", trace);
    const char *file = scratch_write("trace.ini", text);
    scratch_write("tr.csv", "arrival_us,input_tokens,output_tokens\n0,20,30\n10,20,30\n");
    sweeps(&plain, file, db, "1 run in");
    sweeps(&plain, file, db, "1 point was in ");
    scratch_write("tr.csv", "arrival_us,input_tokens,output_tokens\n0,2000,3000\n10,20,30\n");
    sweeps(&plain, file, db, "/tr.csv has changed since");
    sweeps(&plain, file, db, "1 point was in ");
}

static void copy_file(const char *from, const char *to) {
    char command[1024];
    snprintf(command, sizeof command, "rm -f '%s'; cp '%s' '%s'", to, from, to);
    ck_assert_int_eq(system(command), 0);
}

/* A plug-in of the samples under a name of its own; and as if it had been built again. */
static const char *make_plugin(const char *name) {
    const char *plugin = scratch_path(name);
    copy_file(suite_plugin("template_decoder"), plugin);
    return plugin;
}

static void append(const char *path, const char *text) {
    FILE *file = fopen(path, "a");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

TEST(a_rebuilt_plugin_is_run_again) {
    const char *db = scratch_path("plugin.db"), *plugin = make_plugin("mine.so");
    char text[512];
    snprintf(text, sizeof text, "[sweep]\nsystems = dllm-serve\nrequests = 40\nset.decoder = %s\n",
             plugin);
    const char *file = scratch_write("plugin.ini", text);
    sweeps(&plain, file, db, "1 run in");
    sweeps(&plain, file, db, "1 point was in ");
    append(plugin, "other code");
    sweeps(&plain, file, db, "/mine.so has changed since");
}

TEST(a_changed_profile_is_run_again) {
    const char *db = scratch_path("profile.db"), *profile = scratch_path("prof.csv");
    copy_file("kernels/profiles/l40s.csv", profile);
    const char *file =
        scratch_write("profile.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n");
    const char *const words[] = {"sweep", file, "--profile", profile, "--db", db, NULL};
    free(cli_text(cli_run(&plain, words)));
    append(profile, "# a note that changes nothing else\n");
    struct output output = cli_run(&plain, words);
    ck_assert_msg(strstr(output.err, "/prof.csv has changed since") != NULL, "%s", output.err);
    output_free(&output);
}

/* A data folder with links to the shipped files, and systems of its own. */
static const char *make_data(const char *name) {
    char command[2048], cwd[256];
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    const char *folder = scratch_path(name);
    snprintf(command, sizeof command,
             "mkdir -p '%s/experiments/study' && cd '%s' && ln -s '%s/kernels' '%s/traces' "
             "'%s/sim' . && "
             "cp -r '%s'/experiments/study/*.ini '%s'/experiments/study/locations.csv "
             "'%s'/experiments/study/hosts "
             "experiments/study/",
             folder, folder, cwd, cwd, cwd, cwd, cwd, cwd);
    ck_assert_int_eq(system(command), 0);
    return folder;
}

static void change_data(const char *folder) {
    char command[512];
    snprintf(command, sizeof command,
             "sed -i 's/^\\[vanilla\\]$/[vanilla]\\nmax_requests = 3/' "
             "'%s/experiments/study/systems.ini'",
             folder);
    ck_assert_int_eq(system(command), 0);
}

TEST(a_changed_data_folder_is_run_again) {
    const char *db = scratch_path("data.db"), *folder = make_data("data");
    const struct child child = {.data = folder};
    const char *file = scratch_write("data.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n");
    sweeps(&plain, file, db, "1 run in");
    sweeps(&child, file, db, "1 point was in "); /* the same content at another place */
    change_data(folder);
    sweeps(&child, file, db, "experiments/study/systems.ini has changed since");
}

/* The program takes its own files, not those of the folder it is started in. */
TEST(another_checkout_does_not_lend_its_files) {
    char program[512], command[1400], word[16] = "";
    const char *named = getenv("UNMASK"), *folder = make_data("checkout");
    ck_assert_ptr_nonnull(realpath(named != NULL ? named : "build/unmask", program));
    change_data(folder);
    snprintf(command, sizeof command,
             "cd '%s' && '%s' list systems >/dev/null && '%s' --version | grep '^data from' | "
             "grep -c -v -e '%s' -e 'from [.]$'",
             folder, program, program, folder);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_ptr_nonnull(fgets(word, sizeof word, pipe));
    pclose(pipe);
    ck_assert_str_eq(word, "1\n");
}

TEST(what_another_build_recorded_is_run_again_unless_told_otherwise) {
    const char *db = scratch_path("build.db");
    const char *file = scratch_write("build.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n");
    const char *of_other_build =
        "UPDATE runs SET identity = 'x' || substr(identity, 2), summary = json_set(summary,"
        " '$.identity.build.sources', 'other', '$.identity.build.commit', 'c0ffee', "
        "'$.identity.build.dirty', json('false')), sha256 = NULL";
    free(PRINTS("sweep", file, "--db", db));
    database_change(db, of_other_build);
    struct output output = CLI("sweep", file, "--db", db, "--any-build");
    ck_assert_msg(strstr(output.err, "1 point was in ") != NULL, "%s", output.err);
    output_free(&output);
    sweeps(&plain, file, db, "built from other sources (then c0ffee, now ");
}

/* What schema 1 left: no digests, nothing of them in the summary. */
TEST(a_database_of_schema_1_is_read_and_then_changed) {
    const char *db = scratch_path("old.db");
    const char *file = scratch_write("old.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n");
    free(PRINTS("sweep", file, "--db", db, "--levels", "steps"));
    old_make(db, old_make_1);
    struct output replayed = CLI("replay", "--db", db, "--run", "1");
    ck_assert_int_eq(replayed.status, 0);
    ck_assert_msg(strstr(replayed.err, "kept no digests") != NULL, "%s", replayed.err);
    output_free(&replayed);
    free(PRINTS("report", db, "--out", scratch_path("old.html")));
    sweeps(&plain, file, db, "an older unmask recorded it, which kept no digests");
    sweeps(&plain, file, db, "1 point was in ");
}

TEST(a_damaged_summary_is_made_again) {
    const char *db = scratch_path("damaged.db");
    const char *file =
        scratch_write("damaged.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n");
    free(PRINTS("sweep", file, "--db", db));
    database_change(db, "UPDATE runs SET summary = '{\"requ'");
    sweeps(&plain, file, db, "its record is damaged");
    sweeps(&plain, file, db, "1 point was in ");
    database_change(db, "PRAGMA user_version = 0");
    struct output output = CLI("sweep", file, "--db", db);
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
}

TEST(a_replay_says_what_has_changed_since) {
    const char *db = scratch_path("replayed.db"), *folder = make_data("replayed");
    const struct child child = {.data = folder};
    free(cli_text(CLI_AS(&child, "run", "--requests", "20", "--db", db, "--levels", "steps")));
    struct output same = CLI_AS(&child, "replay", "--db", db, "--run", "1");
    ck_assert_msg(same.status == 0 && strstr(same.err, "conditions") == NULL, "%s", same.err);
    output_free(&same);
    change_data(folder);
    struct output other = CLI_AS(&child, "replay", "--db", db, "--run", "1");
    ck_assert_msg(strstr(other.err, "experiments/study/systems.ini has changed since") != NULL,
                  "%s", other.err);
    output_free(&other);
}

/* A plug-in that a database names is code from elsewhere. */
TEST(a_recorded_plugin_is_loaded_where_it_is_allowed_and_the_same) {
    const char *db = scratch_path("plugged.db"), *plugin = make_plugin("plugged.so");
    free(PRINTS("run", "--requests", "20", "--decoder", plugin, "--db", db, "--levels", "steps"));
    REFUSES(2, "run 1 names the plug-in", "replay", "--db", db, "--run", "1");
    free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin"));
    append(plugin, "other code");
    REFUSES(1, "is not the plug-in that run 1 loaded", "replay", "--db", db, "--run", "1",
            "--allow-plugin");
}

struct swap {
    const char *path, *other;
    char *seen;
    int times;
};

/* A gate at which the name comes to lead to another file. */
static int swap(const void *state, const char *path, int file, struct err *err) {
    struct swap *it;
    memcpy(&it, state, sizeof it);
    ck_assert_str_eq(path, it->path);
    if (it->times++ == 0) {
        ck_assert_int_eq(rename(it->other, it->path), 0);
        ck_assert(inputs_digest_open(file, it->seen));
    }
    (void)err;
    return 0;
}

/* Whoever judges a plug-in by its content judges what was opened, however its name moves on, and
 * what has come in its place is not taken. */
TEST(a_plugin_is_judged_by_what_was_opened) {
    char was[SHA256_HEX_CHARS], seen[SHA256_HEX_CHARS];
    for (int by_system = 0; by_system < 2; by_system++) {
        const char *path = make_plugin("judged.so"), *other = make_plugin("other.so");
        struct swap its = {path, other, seen, 0}, *state = &its;
        struct err err = {0};
        const struct policy *policy = NULL;
        struct system *system = NULL;
        append(other, "other code");
        digest_now(path, was);
        const struct plugin_gate gate = {&state, swap}, *before = plugin_ask(&gate);
        struct setting setting = {.key = "decoder", .place = "--decoder"};
        snprintf(setting.value, sizeof setting.value, "%s", path);
        const struct system_request request = {
            .system = "dllm-serve", .gpu = "l40s", .overrides = &setting, .n_overrides = 1};
        int status = by_system ? system_open(&request, &system, &err)
                               : plugin_load(path, POLICY_DECODER, &policy, &err);
        (void)plugin_ask(before);
        ck_assert_int_eq(status, ERR_WORLD);
        ck_assert_msg(strstr(err.text, "was replaced") != NULL, "%s", err.text);
        ck_assert_str_eq(seen, was);
        ck_assert_int_eq(its.times, 1);
        ck_assert(policy == NULL && system == NULL);
    }
}

/* Its constructor would run before anything of it can be looked at. */
TEST(a_database_runs_no_code) {
    const char *db = scratch_path("evil.db"), *mark = scratch_path("evil.mark");
    const char *source = scratch_path("evil.c"), *object = scratch_path("evil.so");
    char text[1024];
    snprintf(text, sizeof text,
             "#include <fcntl.h>\n"
             "__attribute__((constructor)) static void run(void) { creat(\"%s\", 0600); }\n",
             mark);
    scratch_write("evil.c", text);
    snprintf(text, sizeof text, "cc -shared -fPIC -o '%s' '%s'", object, source);
    ck_assert_int_eq(system(text), 0);
    free(PRINTS("run", "--requests", "20", "--db", db, "--levels", "steps"));
    snprintf(
        text, sizeof text,
        "UPDATE runs SET config=replace(config, 'scheduler = phase-multiplexed', 'scheduler = %s'),"
        " sha256=NULL",
        object);
    database_change(db, text);
    REFUSES(2, "names the plug-in", "replay", "--db", db, "--run", "1");
    REFUSES(1, "is not the plug-in that run 1 loaded", "replay", "--db", db, "--run", "1",
            "--allow-plugin");
    ck_assert_int_ne(access(mark, F_OK), 0);
    database_change(db, "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM requests; END");
    REFUSES(1, "it has a trigger, 't', which no unmask made", "run", "--requests", "5", "--db", db);
}

TEST(a_claim_is_one_programs_until_it_ends) {
    struct claims *mine = NULL, *theirs = NULL;
    struct err err = {0};
    const char *digest = "00000000000001aabbccddeeff", *other = "0000000000000200";
    const char *db = scratch_write("claims.db", ""), *link_to = scratch_path("other name.db");
    ck_assert_int_eq(link(db, link_to), 0);
    ck_assert_int_eq(claims_open(db, &mine, &err), 0);
    ck_assert_int_eq(claims_open(link_to, &theirs, &err), 0);
    ck_assert_int_eq(claims_take(mine, digest), PROTOCOL_YES);
    ck_assert_int_eq(claims_take(theirs, digest), PROTOCOL_NO);
    ck_assert_int_eq(claims_take(theirs, other), PROTOCOL_YES);
    claims_drop(mine, digest);
    ck_assert_int_eq(claims_take(theirs, digest), PROTOCOL_YES);
    claims_close(theirs);
    ck_assert_int_eq(claims_take(mine, digest), PROTOCOL_YES);
    claims_close(mine);
}

static const char *shared_ini(void) {
    return scratch_write("shared.ini", "[sweep]\nsystems = dllm-serve\nrequests = 3000\n"
                                       "rates = 0.25, 0.5, 1\nseeds = 1, 2, 3, 4\n");
}

static pid_t start(const char *file, const char *db) {
    return cli_start((const char *const[]){"sweep", file, "--db", db, "-j", "1", NULL}, 0);
}

TEST(two_sweeps_on_one_database_share_its_points) {
    const char *db = scratch_path("shared.db"), *file = shared_ini();
    char *alone = PRINTS("sweep", file);
    pid_t pid = start(file, db);
    struct output second = CLI("sweep", file, "--db", db, "-j", "1");
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_msg(second.status == 0, "%s", second.err);
    ck_assert_str_eq(second.out, alone);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 12);
    ck_assert_int_eq(sql_integer(db, "SELECT count(DISTINCT identity) FROM runs"), 12);
    output_free(&second);
    free(alone);
}

/* The first is killed while it runs; the second runs what that one had claimed. */
TEST(a_killed_sweep_holds_nobody_up) {
    const char *db = scratch_path("killed.db"), *file = shared_ini();
    pid_t pid = start(file, db);
    pid_t second = start(file, db);
    usleep(60000);
    kill(pid, SIGKILL);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(waitpid(second, &status, 0), second);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 12);
    ck_assert_int_eq(sql_integer(db, "SELECT count(DISTINCT identity) FROM runs"), 12);
}

SUITE("identity")
