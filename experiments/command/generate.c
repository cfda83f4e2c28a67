/* unmask generate: prompts decoded on a real back end, by the same loop that serves traffic. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/canvas.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/decode_out.h"
#include "experiments/run/questions.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"

enum { MOST_IDS_BYTES = 1 << 26 };
#include "sim/system/system_facts.h"
#include "traces/reader.h"

/* No options of pricing: what is generated is executed. */
static const struct option own_options[] = {
    {"model", "NAME",
     "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, "
     "or the system's own",
     false},
    {"gpu", "NAME", "the GPU (list gpus) or an INI file (default: l40s)", false},
    {"systems-file", "FILE", "systems of your own, in addition to the shipped ones", false},
    {"text", "TEXT", "the prompt, put into the chat template of the weights", false},
    {"prompts", "FILE", "many prompts, as JSON lines (prompt or ids, id, task, answer)", false},
    {"ids", "N,N,...", "the prompt's token ids", false},
    {"ids-file", "FILE", "the same out of a file, separated by commas or white space", false},
    {"output-tokens", "N",
     "how many positions to decode; default: what a line of prompts says, else 256, or as many as "
     "the context leaves",
     false},
    {"outputs", "FILE", "write the answers as JSON lines", false},
    {"temperature", "T",
     "draw tokens from the softmax of logits over T (short for --set sampling=on --set "
     "temperature=T); 0: take the most likely one (default: as the system says)",
     false},
    {"top-k", "K", "draw among the K most likely tokens; 0: among all", false},
    {"top-p", "P",
     "sample among the most likely of these until their probabilities exceed P; 1: all", false},
    {"seed", "N", "seed of all random streams (default: 1)", false},
    {"decode-out", "FILE",
     "write a decode trace (a SQLite file): the model's outputs for each position in each "
     "pass, and what the pass committed",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_generate[] = {
    system_option, policy_options, backend_options, text_options,
    own_options,   json_options,   verbose_option,  NULL,
};

/* One prompt on its way through the loop. */
struct item {
    uint64_t number; /* among the questions */
    uint32_t output_tokens;
    struct request_record record;
};

/* The prompts, and what came of them. */
struct generation {
    uint64_t seed;
    uint64_t output_tokens; /* as asked for; 0: not given */
    struct questions *questions;
    struct item *items; /* [n], in the order of their arrival */
    size_t n, next;
    bool is_text; /* a text was given, and its output is one */
    struct loop_result result;
    struct canvas canvas;
    char device[COMPOSE_DEVICE_CHARS]; /* that decoded it */
    const char *decode_path;           /* NULL: no trace is written */
    struct decode_out *decode;
};

static void generation_fini(struct generation *generation) {
    questions_close(generation->questions);
    free(generation->items);
}

/* ---- the prompts ---- */

static bool separates(char c) {
    return c == ',' || isspace((unsigned char)c);
}

/* The numbers of a text, each below the vocabulary; a comma stands between two of them. */
static int read_ids(const char *text, const char *place, const struct model *model,
                    struct token_ids *ids, struct err *err) {
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
        token_ids_add(ids, (int32_t)id);
        text = end;
        wants_id = false;
        had_id = true;
    }
    if (wants_id) {
        return err_usage(err, "%s: there is no token after the last comma", place);
    }
    return ids->n > 0 ? 0 : err_usage(err, "%s names no token", place);
}

/* Position to decode of a prompt: as asked, as its line says, or what the context leaves. */
static int add_item(struct generation *g, const struct system *system, const char *place,
                    uint64_t number, uint32_t prompt_tokens, uint32_t said, struct err *err) {
    uint32_t context = system->settings.context_tokens;
    uint32_t left = context > prompt_tokens ? context - prompt_tokens : 0;
    uint32_t wanted = g->output_tokens > 0 ? (uint32_t)g->output_tokens : said;
    if (g->output_tokens == 0 && wanted > left && left > 0) {
        wanted = left;
    }
    if (wanted > left) {
        return err_usage(err,
                         "%s: %" PRIu32 " tokens of prompt and %" PRIu32 " of output do not run: "
                         "rejected for context (%" PRIu32 " tokens of context)",
                         place, prompt_tokens, wanted, context);
    }
    g->items = mem_resized(g->items, g->n + 1, sizeof *g->items);
    g->items[g->n++] = (struct item){.number = number, .output_tokens = wanted};
    return 0;
}

static int take_one(struct generation *g, const struct system *system, const struct prompt *prompt,
                    struct err *err) {
    struct prompt_taker taker = questions_taker(g->questions);
    uint32_t tokens;
    int status = taker.take(taker.state, prompt, &tokens, err);
    return status != 0 ? status
                       : add_item(g, system, prompt->path, 0, tokens, PROMPT_OUTPUT_TOKENS, err);
}

/* The models that this project trained know the templates of their data and nothing else. */
static void warn_of_templates(const struct chat *chat) {
    if (strcmp(chat->name, "qa") == 0) {
        fputs("unmask: models of experiments/train know problems like those of "
              "experiments/train/prompts alone: what they answer to any other text means nothing\n",
              stderr);
    }
}

/* Answers of a model that attends otherwise than its weights were trained to are none. */
static void warn_of_attention(const struct system *system) {
    struct warnings warnings = {0};
    system_warn_of_attention(system, &warnings);
    for (size_t i = 0; i < warnings.n; i++) {
        fprintf(stderr, "unmask: %s\n", warnings.items[i].text);
    }
}

static int read_text(struct generation *g, const struct system *system, const char *text,
                     struct err *err) {
    const struct questions_request *request = &g->questions->request;
    const char *folder = request->tokenizer != NULL ? request->tokenizer : request->weights;
    int status = questions_need_tokenizer(g->questions, "--text", err);
    if (status == 0 && request->chat == NULL) {
        status = chat_of_folder(folder, &g->questions->chat, err);
    }
    const struct prompt prompt = {.path = "--text", .text = text, .text_bytes = strlen(text)};
    g->is_text = true;
    if (status == 0) {
        warn_of_templates(g->questions->chat);
    }
    return status != 0 ? status : take_one(g, system, &prompt, err);
}

static int read_prompts(struct generation *g, const struct system *system, const char *path,
                        struct err *err) {
    struct trace *trace = NULL;
    int status = trace_open(path, &trace, err);
    if (status == 0 && !trace_has_prompts(trace)) {
        status = err_usage(err,
                           "%s: found a trace without prompts, expected JSON lines with "
                           "'prompt' or 'ids'",
                           path);
    }
    if (status == 0) {
        struct prompt_taker taker = questions_taker(g->questions);
        trace_set_taker(trace, &taker);
        struct arrival_source source = trace_source(trace);
        struct arrival row;
        enum source_reply reply = SOURCE_ROW;
        while (status == 0 && (reply = source.next(source.state, &row, err)) == SOURCE_ROW) {
            status = add_item(g, system, g->questions->items[row.prompt - 1].place, row.prompt - 1,
                              row.prompt_tokens, row.output_tokens, err);
        }
        status = status == 0 && reply == SOURCE_BAD ? err_status(err) : status;
    }
    trace_close(trace);
    /* So that outputs can be shown, and judged, of prompts that are ids. */
    struct err ignored = {0};
    (void)questions_need_tokenizer(g->questions, path, &ignored);
    const struct questions_request *request = &g->questions->request;
    const struct chat *chat = NULL;
    const char *folder = request->tokenizer != NULL ? request->tokenizer : request->weights;
    if (status == 0 && folder != NULL && strstr(path, "experiments/train/prompts") == NULL &&
        chat_of_folder(folder, &chat, &ignored) == 0 && chat != NULL) {
        warn_of_templates(chat);
    }
    g->is_text = g->questions->tokenizer != NULL;
    return status;
}

static int read_id_list(struct generation *g, const struct system *system, const char *text,
                        const char *place, struct err *err) {
    struct token_ids ids = {0};
    int status = read_ids(text, place, system->whole, &ids, err);
    const struct prompt prompt = {.path = place, .ids = ids.ids, .n_ids = (uint32_t)ids.n};
    status = status == 0 ? take_one(g, system, &prompt, err) : status;
    free(ids.ids);
    return status;
}

static int read_given(const struct options *options, const struct system *system,
                      struct generation *g, struct err *err) {
    static const char *const names[] = {"text", "prompts", "ids", "ids-file"};
    int n_given = 0, which = -1;
    for (int i = 0; i < 4; i++) {
        n_given += options_has(options, names[i]);
        which = options_has(options, names[i]) ? i : which;
    }
    if (n_given != 1) {
        return n_given > 1
                   ? err_usage(err, "generate takes one of --text, --prompts, --ids and --ids-file")
                   : err_usage(err, "generate needs a prompt: --text TEXT, --prompts FILE, --ids "
                                    "N,N,... or --ids-file FILE");
    }
    const char *value = options_text(options, names[which]);
    if (which < 2) {
        return which == 0 ? read_text(g, system, value, err) : read_prompts(g, system, value, err);
    }
    if (which == 2) {
        return read_id_list(g, system, value, "--ids", err);
    }
    size_t size;
    char *text = text_read(value, "ids", MOST_IDS_BYTES, &size, err);
    int status = text != NULL ? read_id_list(g, system, text, value, err) : (int)err->kind;
    free(text);
    return status;
}

static int read_all(const struct options *options, const struct system *system,
                    const struct questions_request *request, struct generation *g,
                    struct err *err) {
    int status = questions_open(request, &g->questions, err);
    status = status != 0 ? status : read_given(options, system, g, err);
    status = status != 0 ? status : questions_check(g->questions, system->whole, err);
    return status != 0 ? status : questions_read_reference(g->questions, err);
}

/* ---- the run ---- */

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct generation *g = state;
    (void)err;
    if (g->next == g->n) {
        return SOURCE_END;
    }
    const struct item *item = &g->items[g->next];
    *out = (struct arrival){.id = g->next++,
                            .prompt_tokens = g->questions->items[item->number].n_ids,
                            .output_tokens = item->output_tokens,
                            .prompt = item->number + 1};
    return SOURCE_ROW;
}

static int take_record(void *state, const struct request_record *record, struct err *err) {
    struct generation *g = state;
    (void)err;
    g->items[record->id].record = *record;
    return 0;
}

static void show(void *state, uint64_t id, const int32_t *tokens, uint32_t n) {
    (void)id;
    canvas_draw(state, tokens, n);
}

/* The first prompt that was not served. */
static int check_served(const struct generation *g, const struct system *system, struct err *err) {
    for (size_t i = 0; i < g->n; i++) {
        const struct item *item = &g->items[i];
        const struct problem *question = &g->questions->items[item->number];
        if (!question->is_served) {
            return err_usage(err,
                             "%" PRIu32 " tokens of prompt and %" PRIu32 " of output do not run: "
                             "rejected for %s (%" PRIu32 " tokens of context)",
                             question->n_ids, item->output_tokens,
                             reject_reason_names[item->record.reason],
                             system->settings.context_tokens);
        }
    }
    return 0;
}

static int decode(struct system *system, struct fleet *fleet, struct generation *g,
                  bool shows_canvas, struct err *err) {
    struct sink sinks[2] = {{.state = g, .request = take_record}};
    struct arrival_source source = {.state = g, .next = next_arrival};
    if (g->decode != NULL) {
        sinks[1] = decode_out_sink(g->decode);
    }
    struct loop_request request = {
        .system = system,
        .executor = fleet_interface(fleet),
        .source = questions_source(g->questions, source, system->settings.prefix_caching),
        .sinks = sinks,
        .n_sinks = g->decode != NULL ? 2 : 1,
        .records_members = g->decode != NULL,
        .seed = g->seed,
        .stop = interrupt_catch()};
    fleet_set_stop(fleet, request.stop);
    questions_attach(g->questions, fleet);
    if (shows_canvas && g->is_text && g->n == 1 &&
        canvas_open(&g->canvas, stdout, g->questions->tokenizer,
                    (int32_t)system->whole->mask_token)) {
        for (uint32_t r = 0; r < fleet_replicas(fleet); r++) {
            live_set_show(fleet_live(fleet, r), show, &g->canvas);
        }
    }
    int status = loop_run(&request, &g->result, err);
    if (g->canvas.out != NULL) {
        canvas_clear(&g->canvas);
    }
    questions_settle(g->questions);
    if (status == 0 && g->result.interrupted) {
        return err_world(err,
                         "interrupted: %" PRIu64 " of %zu prompts were decoded whole; answers are "
                         "printed once all are",
                         g->result.completed, g->n);
    }
    return status != 0 ? status : check_served(g, system, err);
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
                                       .trace_provenance =
                                           generation->n == 1 ? "one prompt" : "prompts",
                                       .ends = ends,
                                       .seed = generation->seed};
    int status = decode_out_close(generation->decode, is_done ? &about : NULL, err);
    free(config);
    return status;
}

static int decode_on(struct system *system, const struct backend_request *backend,
                     struct generation *generation, bool shows_canvas, struct err *err) {
    const struct fleet_request request = {.engine = {.backend = backend->kind,
                                                     .library = backend->library,
                                                     .device = backend->device,
                                                     .weights = backend->weights,
                                                     .system = system},
                                          .seed = generation->seed,
                                          .skips_idle = true};
    struct fleet *fleet = NULL;
    struct end_tokens ends;
    int status = compose_end_tokens(backend, system->whole, &ends, err);
    status = status != 0 ? status : fleet_open(&request, &fleet, err);
    if (status == 0) {
        compose_name_device(fleet_engine(fleet, 0), system, generation->device);
        fleet_set_ends(fleet, &ends);
    }
    if (status == 0 && generation->decode_path != NULL) {
        status =
            decode_out_open(generation->decode_path, NULL, system, fleet, &generation->decode, err);
    }
    status = status != 0 ? status : decode(system, fleet, generation, shows_canvas, err);
    struct err late = {0};
    if (close_trace(system, backend, &ends, generation, status == 0, &late) != 0 && status == 0) {
        *err = late;
        status = (int)late.kind;
    }
    fleet_close(fleet);
    return status;
}

/* ---- printing ---- */

static double latency_s(const struct item *item) {
    return (double)(item->record.finished_ns - item->record.arrival_ns) * 1e-9;
}

static json_t *item_json(const struct generation *g, const struct item *item) {
    json_t *object = questions_json(g->questions, item->number);
    json_object_set_new(object, "decoded_tokens", json_integer(item->record.committed_tokens));
    json_object_set_new(object, "latency_s", json_real(latency_s(item)));
    return object;
}

/* The first finish to the last, which began with the first arrival. */
static double whole_s(const struct generation *g) {
    double whole = 0;
    for (size_t i = 0; i < g->n; i++) {
        double end = (double)g->items[i].record.finished_ns * 1e-9;
        whole = end > whole ? end : whole;
    }
    return whole;
}

static uint64_t output_tokens(const struct generation *g) {
    uint64_t n = 0;
    for (size_t i = 0; i < g->n; i++) {
        n += g->questions->items[g->items[i].number].n_output;
    }
    return n;
}

static int print_json(const struct options *options, const struct generation *g,
                      const struct system *system, const struct backend_request *backend,
                      struct err *err) {
    json_t *object = json_object();
    json_object_set_new(object, "system", json_string(system->name));
    json_object_set_new(object, "model", json_string(system->model->name));
    json_object_set_new(object, "backend", json_string(backend_names[backend->kind]));
    json_object_set_new(object, "device", json_string(g->device));
    json_object_set_new(object, "weights", json_string(backend->weights));
    json_object_set_new(object, "seed", json_integer((json_int_t)g->seed));
    if (system_reads_logits(system)) {
        const struct draw_rule *by = &system->process.drawing;
        json_object_set_new(object, "drawing",
                            json_pack("{s:b, s:f, s:I, s:f}", "sampling", by->draws, "temperature",
                                      system->settings.temperature, "top_k", (json_int_t)by->top_k,
                                      "top_p", by->top_p));
    }
    if (options_has(options, "prompts")) {
        json_t *list = json_array();
        for (size_t i = 0; i < g->n; i++) {
            json_array_append_new(list, item_json(g, &g->items[i]));
        }
        json_object_set_new(object, "chat", json_string(g->questions->chat->name));
        json_object_set_new(object, "prompts", list);
        json_object_set_new(object, "steps", json_integer((json_int_t)g->result.steps));
        json_object_set_new(object, "latency_s", json_real(whole_s(g)));
        json_object_set_new(object, "quality",
                            quality_json(&g->questions->quality, whole_s(g), output_tokens(g), 0));
        return cmd_print_json(object, err);
    }
    json_t *item = item_json(g, &g->items[0]);
    json_object_set(object, "prompt_tokens", json_object_get(item, "prompt_tokens"));
    json_object_set(object, "output", json_object_get(item, "output"));
    json_object_set(object, "decoded_tokens", json_object_get(item, "decoded_tokens"));
    json_object_set_new(object, "steps", json_integer((json_int_t)g->result.steps));
    json_object_set(object, "latency_s", json_object_get(item, "latency_s"));
    if (g->is_text) {
        json_object_set_new(object, "chat", json_string(g->questions->chat->name));
        json_object_set(object, "text", json_object_get(item, "text"));
    }
    json_decref(item);
    return cmd_print_json(object, err);
}

static void print_output(const struct generation *g, const struct problem *question) {
    size_t length;
    char *text = g->is_text ? questions_text(g->questions, question, &length) : NULL;
    for (uint32_t i = 0; text == NULL && i < question->n_output; i++) {
        printf("%s%" PRId32, i > 0 ? " " : "", question->output[i]);
    }
    if (text != NULL) {
        fwrite(text, 1, length, stdout);
    }
    printf("\n");
    free(text);
}

static void print_heading(const struct problem *question, uint64_t number) {
    printf("== ");
    if (question->id != NULL) {
        printf("%s", question->id);
    } else {
        printf("%" PRIu64, number);
    }
    if (question->mark != '-') {
        printf(": %s (%s)", question->mark == '1' ? "right" : "wrong", question->answer);
    }
    printf("\n");
}

static int print(const struct options *options, const struct generation *g,
                 const struct system *system, const struct backend_request *backend,
                 struct err *err) {
    if (options_has(options, "json")) {
        return print_json(options, g, system, backend, err);
    }
    for (size_t i = 0; i < g->n; i++) {
        const struct problem *question = &g->questions->items[g->items[i].number];
        if (options_has(options, "prompts")) {
            print_heading(question, g->items[i].number);
        }
        print_output(g, question);
    }
    if (options_has(options, "prompts") && g->questions->quality.judged > 0) {
        printf("\n");
    }
    quality_print(&g->questions->quality, whole_s(g), 0, stdout);
    uint64_t n_tokens = output_tokens(g);
    (void)fflush(stdout); /* what is said of it comes after it, also in one file */
    fprintf(stderr, "unmask: %" PRIu64 " tokens in %" PRIu64 " steps and %.3g s: %.4g tok/s",
            n_tokens, g->result.steps, whole_s(g), (double)n_tokens / whole_s(g));
    if (g->is_text || options_has(options, "prompts")) {
        fprintf(stderr, "; chat template %s (%s)", g->questions->chat->name,
                g->questions->chat->doc);
    }
    fprintf(stderr, "\n");
    return 0;
}

static int check_options(const struct options *options, const struct asked *asked,
                         struct generation *generation, struct err *err) {
    int status =
        options_whole(options, "output-tokens", 1, 1000000, &generation->output_tokens, err);
    status =
        status != 0 ? status : options_whole(options, "seed", 0, INT64_MAX, &generation->seed, err);
    if (status == 0 && asked->request.backend.kind == BACKEND_SIM) {
        return err_usage(err, "generate decodes on a device: it needs --backend cpu or cuda");
    }
    generation->decode_path = options_text(options, "decode-out");
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct asked asked;
    struct system *system = NULL;
    struct generation generation = {.seed = 1};
    const char *outputs = options_text(options, "outputs");
    int status = asked_read_system(options, &asked, &system, err);
    const struct backend_request *backend = &asked.request.backend;
    status = status != 0 ? status : check_options(options, &asked, &generation, err);
    if (status == 0) {
        asked_say_unread(system, backend_names[backend->kind]);
        warn_of_attention(system);
    }
    status = status != 0 ? status
                         : read_all(options, system, &asked.request.questions, &generation, err);
    status = status != 0
                 ? status
                 : decode_on(system, backend, &generation, !options_has(options, "json"), err);
    status = status != 0 ? status : print(options, &generation, system, backend, err);
    if (status == 0 && outputs != NULL) {
        status = questions_write(generation.questions, outputs, err);
    }
    generation_fini(&generation);
    system_close(system);
    return status;
}

const struct command command_generate = {
    .name = "generate",
    .words = "",
    .doc = "decode prompts on a real back end: text, or token ids",
    .more =
        "The output goes to standard output: text where text was given, on a terminal with the\n"
        "canvas while its masks fill in, else token ids, separated by blanks. Texts need a\n"
        "tokenizer.json (or vocab.json with merges.txt), which the folder of --weights has or\n"
        "--tokenizer names. --text is put into the chat template of that folder, prompts of a file "
        "stand as they are, unless\n"
        "--chat says otherwise. Prompts with an answer are judged: an output is right when what\n"
        "follows its last '####' equals the answer, as text or as a number. The output ends with\n"
        "the first token that ends a text (--eos); a system with early_stop = off still decodes\n"
        "all positions after it.",
    .options = options_of_generate,
    .run = run,
};
