/* unmask generate: one prompt decoded on a real back end, by the same loop that serves traffic. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/live.h"
#include "experiments/cli/asked.h"
#include "experiments/cli/cmd.h"
#include "experiments/cli/interrupt.h"
#include "experiments/run/decode_out.h"

/* Without the ways to price a step: what is generated is executed. */
static const struct option own_options[] = {
    {"model", "NAME",
     "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, "
     "or the system's own",
     false},
    {"gpu", "NAME", "the GPU (list gpus) or an INI file (default: l40s)", false},
    {"systems-file", "FILE", "systems of your own, beside the shipped ones", false},
    {"ids", "N,N,...", "the prompt's token ids", false},
    {"ids-file", "FILE", "the same out of a file, separated by commas or white space", false},
    {"output-tokens", "N", "how many tokens to decode", false},
    {"seed", "N", "of all random streams (default: 1)", false},
    {"decode-out", "FILE",
     "write what each pass said of each position and committed: a decode trace, a SQLite file",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_generate[] = {
    system_option, policy_options, backend_options, own_options, json_options, NULL,
};

/* The prompt, and what came of it. */
struct generation {
    uint64_t seed;
    int32_t *ids; /* [n_ids] */
    uint32_t n_ids, room;
    uint32_t n_tokens;
    int32_t *tokens; /* [n_tokens] */
    bool is_asked, is_done;
    struct request_record record;
    struct loop_result result;
    char device[COMPOSE_DEVICE_CHARS]; /* that decoded it */
    const char *decode_path;           /* NULL: no trace is written */
    struct decode_out *decode;
};

static void generation_fini(struct generation *generation) {
    free(generation->ids);
    free(generation->tokens);
}

/* ---- the prompt ---- */

static void add_id(struct generation *generation, int32_t id) {
    if (generation->n_ids == generation->room) {
        generation->room = 2 * generation->room + 64;
        generation->ids = realloc(generation->ids, generation->room * sizeof *generation->ids);
        ASSERT(generation->ids != NULL);
    }
    generation->ids[generation->n_ids++] = id;
}

static bool separates(char c) {
    return c == ',' || isspace((unsigned char)c);
}

/* The numbers of a text, each below the vocabulary; a comma stands between two of them. */
static int read_ids(const char *text, const char *place, const struct model *model,
                    struct generation *generation, struct err *err) {
    bool wants_id = false, had_id = false; /* after a comma; since the last comma */
    while (*text != '\0') {
        if (separates(*text)) {
            if (*text == ',' && !had_id) {
                return err_usage(err, "%s: there is no token before a comma", place);
            }
            wants_id = wants_id || *text == ',';
            had_id = had_id && *text != ',';
            text++;
            continue;
        }
        char *end;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        bool is_number = end != text && (*end == '\0' || separates(*end));
        if (!is_number || errno != 0 || id < 0 || id >= (long long)model->vocab) {
            size_t length = strcspn(text, ", \t\n\r\v\f");
            return err_usage(err, "%s: '%.*s' is no token of %s, whose ids are 0 to %" PRIu32,
                             place, (int)(length < 32 ? length : 32), text, model->name,
                             model->vocab - 1);
        }
        add_id(generation, (int32_t)id);
        text = end;
        wants_id = false;
        had_id = true;
    }
    if (wants_id) {
        return err_usage(err, "%s: there is no token after the last comma", place);
    }
    return generation->n_ids > 0 ? 0 : err_usage(err, "%s names no token", place);
}

static char *read_file(const char *path, struct err *err) {
    FILE *file = fopen(path, "r");
    size_t size = 0, got = 0;
    char *text = NULL;
    if (file == NULL) {
        err_world(err, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    do {
        char *grown = realloc(text, size + 65537);
        ASSERT(grown != NULL);
        text = grown;
        got = fread(text + size, 1, 65536, file);
        size += got;
    } while (got > 0);
    text[size] = '\0';
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) {
        err_world(err, "cannot read '%s': %s", path, strerror(errno));
        free(text);
        return NULL;
    }
    return text;
}

static int read_prompt(const struct options *options, const struct model *model,
                       struct generation *generation, struct err *err) {
    const char *ids = options_text(options, "ids"), *path = options_text(options, "ids-file");
    if (ids != NULL && path != NULL) {
        return err_usage(err, "generate takes one of --ids and --ids-file");
    }
    if (ids == NULL && path == NULL) {
        return err_usage(err, "generate needs a prompt: --ids N,N,... or --ids-file FILE");
    }
    if (ids != NULL) {
        return read_ids(ids, "--ids", model, generation, err);
    }
    char *text = read_file(path, err);
    int status = text != NULL ? read_ids(text, path, model, generation, err) : (int)err->kind;
    free(text);
    return status;
}

/* ---- the run ---- */

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct generation *generation = state;
    (void)err;
    if (generation->is_asked) {
        return SOURCE_END;
    }
    generation->is_asked = true;
    *out =
        (struct arrival){.prompt_tokens = generation->n_ids, .output_tokens = generation->n_tokens};
    return SOURCE_ROW;
}

static const int32_t *prompt_of(void *state, uint64_t id) {
    const struct generation *generation = state;
    (void)id;
    return generation->ids;
}

static int take_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                       struct err *err) {
    struct generation *generation = state;
    (void)id, (void)err;
    ASSERT(n <= generation->n_tokens);
    memcpy(generation->tokens, tokens, n * sizeof *tokens);
    generation->n_tokens = n;
    generation->is_done = true;
    return 0;
}

static int take_record(void *state, const struct request_record *record, struct err *err) {
    struct generation *generation = state;
    (void)err;
    generation->record = *record;
    return 0;
}

static int decode(struct system *system, struct live *live, struct generation *generation,
                  struct err *err) {
    struct sink sinks[2] = {{.state = generation, .request = take_record}};
    if (generation->decode != NULL) {
        sinks[1] = decode_out_sink(generation->decode);
    }
    struct loop_request request = {.system = system,
                                   .executor = live_interface(live),
                                   .source = {.state = generation, .next = next_arrival},
                                   .sinks = sinks,
                                   .n_sinks = generation->decode != NULL ? 2 : 1,
                                   .records_members = generation->decode != NULL,
                                   .seed = generation->seed,
                                   .stop = interrupt_catch()};
    live_set_stop(live, request.stop);
    live_set_prompt(live, prompt_of, generation);
    live_set_output(live, take_output, generation);
    int status = loop_run(&request, &generation->result, err);
    if (status == 0 && generation->result.interrupted) {
        return err_world(err, "interrupted");
    }
    if (status == 0 && !generation->is_done) {
        status = err_usage(err,
                           "%" PRIu32 " tokens of prompt and %" PRIu32 " of output do not run: "
                           "rejected for %s (%" PRIu32 " tokens of context)",
                           generation->n_ids, generation->n_tokens,
                           reject_reason_names[generation->record.reason],
                           system->settings.context_tokens);
    }
    return status;
}

/* The trace of a generation that is done, else none. */
static int close_trace(struct system *system, const struct backend_request *backend,
                       const struct end_tokens *ends, struct generation *generation, bool is_done,
                       struct err *err) {
    if (generation->decode == NULL) {
        return 0;
    }
    char *config = system_text(system);
    const struct decode_about about = {.system = system,
                                       .config = config,
                                       .weights = backend->weights,
                                       .device = generation->device,
                                       .trace = "generate",
                                       .trace_provenance = "one prompt",
                                       .ends = ends,
                                       .seed = generation->seed};
    int status = decode_out_close(generation->decode, is_done ? &about : NULL, err);
    free(config);
    return status;
}

static int decode_on(struct system *system, const struct backend_request *backend,
                     struct generation *generation, struct err *err) {
    struct engine_request request = {.device = backend->name,
                                     .library = backend->library,
                                     .weights = backend->weights,
                                     .system = system};
    struct engine *engine = NULL;
    struct live *live = NULL;
    struct end_tokens ends;
    int status = compose_end_tokens(backend, system->whole, &ends, err);
    status = status != 0 ? status : engine_open(&request, &engine, err);
    if (status == 0) {
        compose_name_device(engine, system, generation->device);
    }
    status = status != 0 ? status : live_open(engine, generation->seed, true, &live, err);
    if (status == 0) {
        live_set_ends(live, &ends);
    }
    if (status == 0 && generation->decode_path != NULL) {
        status =
            decode_out_open(generation->decode_path, NULL, system, live, &generation->decode, err);
    }
    status = status != 0 ? status : decode(system, live, generation, err);
    struct err late = {0};
    if (close_trace(system, backend, &ends, generation, status == 0, &late) != 0 && status == 0) {
        *err = late;
        status = (int)late.kind;
    }
    live_close(live);
    engine_close(engine);
    return status;
}

/* ---- printing ---- */

static int print_json(const struct generation *generation, const struct system *system,
                      const struct backend_request *backend, struct err *err) {
    json_t *tokens = json_array(), *object = json_object();
    for (uint32_t i = 0; i < generation->n_tokens; i++) {
        json_array_append_new(tokens, json_integer(generation->tokens[i]));
    }
    int64_t latency_ns = generation->record.finished_ns - generation->record.arrival_ns;
    json_object_set_new(object, "system", json_string(system->name));
    json_object_set_new(object, "model", json_string(system->model->name));
    json_object_set_new(object, "backend", json_string(backend->name));
    json_object_set_new(object, "device", json_string(generation->device));
    json_object_set_new(object, "weights", json_string(backend->weights));
    json_object_set_new(object, "seed", json_integer((json_int_t)generation->seed));
    json_object_set_new(object, "prompt_tokens", json_integer(generation->n_ids));
    json_object_set_new(object, "output", tokens);
    json_object_set_new(object, "decoded_tokens",
                        json_integer(generation->record.committed_tokens));
    json_object_set_new(object, "steps", json_integer((json_int_t)generation->result.steps));
    json_object_set_new(object, "latency_s", json_real((double)latency_ns * 1e-9));
    return cmd_print_json(object, err);
}

static int print(const struct options *options, const struct generation *generation,
                 const struct system *system, const struct backend_request *backend,
                 struct err *err) {
    if (options_has(options, "json")) {
        return print_json(generation, system, backend, err);
    }
    for (uint32_t i = 0; i < generation->n_tokens; i++) {
        printf("%s%" PRId32, i > 0 ? " " : "", generation->tokens[i]);
    }
    printf("\n");
    int64_t latency_ns = generation->record.finished_ns - generation->record.arrival_ns;
    fprintf(stderr, "unmask: %" PRIu32 " tokens in %" PRIu64 " steps and %.3g s: %.4g tok/s\n",
            generation->n_tokens, generation->result.steps, (double)latency_ns * 1e-9,
            (double)generation->n_tokens / ((double)latency_ns * 1e-9));
    return 0;
}

static int check_options(const struct options *options, const struct asked *asked,
                         struct generation *generation, struct err *err) {
    uint64_t n_tokens = 0;
    int status = options_whole(options, "output-tokens", 1, 1000000, &n_tokens, err);
    status =
        status != 0 ? status : options_whole(options, "seed", 0, INT64_MAX, &generation->seed, err);
    if (status == 0 && asked->request.backend.name == NULL) {
        return err_usage(err, "generate decodes on a device: it needs --backend cpu or cuda");
    }
    if (status == 0 && n_tokens == 0) {
        return err_usage(err, "generate needs --output-tokens N");
    }
    generation->decode_path = options_text(options, "decode-out");
    generation->n_tokens = (uint32_t)n_tokens;
    generation->tokens = calloc(n_tokens + 1, sizeof *generation->tokens);
    ASSERT(generation->tokens != NULL);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct asked asked;
    struct system *system = NULL;
    struct generation generation = {.seed = 1};
    int status = asked_read_system(options, &asked, &system, err);
    status = status != 0 ? status : check_options(options, &asked, &generation, err);
    status = status != 0 ? status : read_prompt(options, system->whole, &generation, err);
    const struct backend_request *backend = &asked.request.backend;
    status = status != 0 ? status : decode_on(system, backend, &generation, err);
    status = status != 0 ? status : print(options, &generation, system, backend, err);
    generation_fini(&generation);
    system_close(system);
    return status;
}

const struct command command_generate = {
    .name = "generate",
    .words = "",
    .doc = "decode one prompt of token ids on a real back end",
    .more =
        "The output's token ids go to standard output, separated by blanks. Prompts are token\n"
        "ids: a tokenizer of the model turns text into them and back. The output ends with the\n"
        "first token that ends a text (--eos); a system with early_stop = off decodes what is\n"
        "behind it all the same.",
    .options = options_of_generate,
    .run = run,
};
