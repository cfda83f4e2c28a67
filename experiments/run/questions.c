#include "experiments/run/questions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "engine/text/answer.h"
#include "engine/weights/weights.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"

enum { MOST_REFERENCE_BYTES = 1 << 28 };

static char *copy(const char *text) {
    return text != NULL ? mem_text(text) : NULL;
}

int questions_open(const struct questions_request *request, struct questions **out,
                   struct err *err) {
    struct questions *q = mem_zeroed(1, sizeof *q);
    q->request = *request;
    q->chat = &chat_table[0];
    int status = request->chat != NULL ? chat_find(request->chat, &q->chat, err) : 0;
    if (status != 0) {
        questions_close(q);
        return status;
    }
    *out = q;
    return 0;
}

void questions_close(struct questions *q) {
    if (q == NULL) {
        return;
    }
    for (size_t i = 0; i < q->n; i++) {
        struct problem *item = &q->items[i];
        free(item->id);
        free(item->task);
        free(item->answer);
        free(item->ids);
        free(item->output);
        free(item->expected);
    }
    tokenizer_close(q->tokenizer);
    prefixes_close(q->prefixes);
    free(q->items);
    free(q->asked);
    free(q->marks);
    free(q);
}

/* ---- prompts ---- */

/* Where texts find their tokenizer; NULL: nowhere. */
static const char *folder_of(const struct questions *q) {
    const char *weights = q->request.weights;
    bool is_folder = weights != NULL && weights_seed(weights) == NULL;
    return q->request.tokenizer != NULL ? q->request.tokenizer : is_folder ? weights : NULL;
}

int questions_need_tokenizer(struct questions *q, const char *place, struct err *err) {
    const char *folder = folder_of(q);
    if (q->tokenizer != NULL) {
        return 0;
    }
    return folder != NULL
               ? tokenizer_open(folder, &q->tokenizer, err)
               : err_usage(err,
                           "%s: a text needs a tokenizer: the folder of --weights has one, or "
                           "--tokenizer FOLDER names one",
                           place);
}

static struct problem *item_of(struct questions *q, uint64_t number) {
    if (number >= q->room) {
        size_t room = 2 * (size_t)number + 64;
        q->items = mem_resized(q->items, room, sizeof *q->items);
        q->room = room;
    }
    for (; q->n <= number; q->n++) {
        q->items[q->n] = (struct problem){.mark = '-'};
    }
    return &q->items[number];
}

static int encode(struct questions *q, const struct prompt *prompt, const char *place,
                  struct token_ids *ids, struct err *err) {
    size_t n;
    struct err cause = {0};
    int status = questions_need_tokenizer(q, place, err);
    if (status != 0) {
        return status;
    }
    status = tokenizer_check_text(prompt->text, prompt->text_bytes, &cause);
    char *text = chat_text(q->chat, folder_of(q), prompt->text, prompt->text_bytes, &n, &cause);
    if (!q->chat->begins) {
        tokenizer_begin(q->tokenizer, ids);
    }
    status = text == NULL  ? err_status(&cause)
             : status == 0 ? tokenizer_encode(q->tokenizer, text, n, ids, &cause)
                           : status;
    free(text);
    if (status != 0) {
        err_set(err, cause.kind, ERR_CODE_NONE, "%s: %.900s", place, cause.text);
    }
    return status;
}

static int take(void *state, const struct prompt *prompt, uint32_t *tokens, struct err *err) {
    struct questions *q = state;
    struct problem *item = item_of(q, prompt->number);
    if (item->n_ids > 0) { /* read again */
        *tokens = item->n_ids;
        return 0;
    }
    struct token_ids ids = {0};
    int used = snprintf(item->place, sizeof item->place, "%s", prompt->path);
    if (prompt->line > 0 && used >= 0 && (size_t)used < sizeof item->place) {
        snprintf(item->place + used, sizeof item->place - (size_t)used, ":%" PRIu64, prompt->line);
    }
    int status = prompt->text != NULL ? encode(q, prompt, item->place, &ids, err) : 0;
    for (uint32_t i = 0; i < prompt->n_ids; i++) {
        token_ids_add(&ids, prompt->ids[i]);
    }
    if (status == 0 && (ids.n == 0 || ids.n > INT32_MAX)) {
        status = err_usage(err, "%s: the prompt has no tokens", item->place);
    }
    if (status != 0) {
        free(ids.ids);
        return status;
    }
    item->ids = ids.ids;
    *tokens = item->n_ids = (uint32_t)ids.n;
    item->id = copy(prompt->id);
    item->task = copy(prompt->task);
    item->answer = copy(prompt->answer);
    return 0;
}

struct prompt_taker questions_taker(struct questions *q) {
    return (struct prompt_taker){.state = q, .take = take};
}

int questions_check(const struct questions *q, const struct model *model, struct err *err) {
    int status = q->tokenizer != NULL
                     ? tokenizer_check_fits(q->tokenizer, model->name, model->vocab, err)
                     : 0;
    for (size_t i = 0; status == 0 && i < q->n; i++) {
        const struct problem *item = &q->items[i];
        for (uint32_t k = 0; status == 0 && k < item->n_ids; k++) {
            status = (uint32_t)item->ids[k] < model->vocab
                         ? 0
                         : err_usage(err,
                                     "%s: '%" PRId32 "' is no token of %s, whose ids are 0 to "
                                     "%" PRIu32,
                                     item->place, item->ids[k], model->name, model->vocab - 1);
        }
    }
    return status;
}

/* ---- the reference ---- */

static int read_output(struct questions *q, const char *line, size_t n, const char *place,
                       struct err *err) {
    json_t *object = json_loadb(line, n, 0, NULL);
    json_t *number = json_object_get(object, "number"), *output = json_object_get(object, "output");
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!json_is_integer(number) || json_integer_value(number) < 0 ||
        json_array_size(output) == 0) {
        json_decref(object);
        return err_usage(err, "%s: found no 'number' and 'output', expected a line of --outputs",
                         place);
    }
    int status = 0;
    size_t at = (size_t)json_integer_value(number);
    struct problem *item = at < q->n && q->items[at].n_ids > 0 ? &q->items[at] : NULL;
    if (item != NULL && id != NULL && item->id != NULL && strcmp(id, item->id) != 0) {
        status = err_usage(
            err, "%s: this is an output of the prompt '%.64s', number %zu here is '%.64s'", place,
            id, at, item->id);
    } else if (item != NULL) {
        free(item->expected);
        item->n_expected = (uint32_t)json_array_size(output);
        item->expected = mem_unwritten(item->n_expected, sizeof *item->expected);
        for (uint32_t i = 0; i < item->n_expected; i++) {
            item->expected[i] = (int32_t)json_integer_value(json_array_get(output, i));
        }
    }
    json_decref(object);
    return status;
}

int questions_read_reference(struct questions *q, struct err *err) {
    const char *path = q->request.reference;
    size_t size, length;
    char *text =
        path != NULL ? text_read(path, "reference", MOST_REFERENCE_BYTES, &size, err) : NULL;
    if (text == NULL) {
        return path == NULL ? 0 : err_status(err);
    }
    int status = 0;
    uint64_t number = 1;
    for (char *rest = text, *line; status == 0 && (line = text_line(&rest, &length)) != NULL;
         number++) {
        char place[512];
        snprintf(place, sizeof place, "%.480s:%" PRIu64, path, number);
        status = read_output(q, line, length, place, err);
    }
    free(text);
    return status;
}

/* ---- outputs ---- */

char *questions_text(const struct questions *q, const struct problem *item, size_t *length) {
    return q->tokenizer != NULL
               ? tokenizer_decode(q->tokenizer, item->output, item->n_output, false, length)
               : NULL;
}

static char mark_of(const struct questions *q, const struct problem *item) {
    char *text = item->answer != NULL ? questions_text(q, item, NULL) : NULL;
    char mark = text == NULL ? '-' : answer_is_right(text, item->answer) ? '1' : '0';
    free(text);
    return mark;
}

static void serve(struct questions *q, uint64_t number, const int32_t *tokens, uint32_t n) {
    struct problem *item = item_of(q, number);
    struct quality *quality = &q->quality;
    free(item->output);
    item->output = mem_unwritten(n, sizeof *tokens);
    memcpy(item->output, tokens, n * sizeof *tokens);
    item->n_output = n;
    item->is_served = true;
    item->mark = mark_of(q, item);
    quality->served++;
    quality->judged += item->mark != '-';
    quality->right += item->mark == '1';
    quality->compared += item->n_expected > 0;
    quality->agreed += item->n_expected > 0 && item->n_expected == n &&
                       memcmp(item->expected, tokens, n * sizeof *tokens) == 0;
}

/* ---- a run ---- */

static enum source_reply next_asked(void *state, struct arrival *out, struct err *err) {
    struct questions *q = state;
    enum source_reply reply = q->inner.next(q->inner.state, out, err);
    if (reply != SOURCE_ROW) {
        return reply;
    }
    if (out->id >= q->asked_room) {
        q->asked_room = 2 * out->id + 64;
        q->asked = mem_resized(q->asked, q->asked_room, sizeof *q->asked);
    }
    while (q->n_asked <= out->id) {
        q->asked[q->n_asked++] = 0;
    }
    q->asked[out->id] = out->prompt;
    if (q->prefixes != NULL && out->prompt > 0) {
        prefixes_arrive(q->prefixes, q->items[out->prompt - 1].ids, NULL, 0, out);
    }
    return reply;
}

static void pass_completion(void *state, uint64_t id, int64_t now_ns) {
    struct questions *q = state;
    q->inner.completed(q->inner.state, id, now_ns);
}

static void pass_back(void *state, const struct arrival *row) {
    struct questions *q = state;
    if (q->prefixes != NULL) {
        prefixes_take_back(q->prefixes);
    }
    q->inner.back(q->inner.state, row);
}

struct arrival_source questions_source(struct questions *q, struct arrival_source inner,
                                       bool caches) {
    q->inner = inner;
    prefixes_close(q->prefixes);
    q->prefixes = caches ? prefixes_open() : NULL;
    return (struct arrival_source){.state = q,
                                   .next = next_asked,
                                   .completed = inner.completed != NULL ? pass_completion : NULL,
                                   .back = inner.back != NULL ? pass_back : NULL};
}

bool questions_asked(const struct questions *q, uint64_t request, uint64_t *number) {
    bool asks = request < q->n_asked && q->asked[request] > 0;
    *number = asks ? q->asked[request] - 1 : 0;
    return asks;
}

static const int32_t *prompt_of(void *state, uint64_t id) {
    const struct questions *q = state;
    uint64_t number;
    return questions_asked(q, id, &number) ? q->items[number].ids : NULL;
}

static int take_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                       struct err *err) {
    struct questions *q = state;
    uint64_t number;
    (void)err;
    if (questions_asked(q, id, &number)) {
        serve(q, number, tokens, n);
    }
    return 0;
}

void questions_attach(struct questions *q, struct fleet *fleet) {
    for (uint32_t r = 0; r < fleet_replicas(fleet); r++) {
        live_set_prompt(fleet_live(fleet, r), prompt_of, q);
        live_set_output(fleet_live(fleet, r), take_output, q);
    }
}

void questions_settle(struct questions *q) {
    free(q->marks);
    q->marks = mem_zeroed(q->n + 1, 1);
    for (size_t i = 0; i < q->n; i++) {
        q->marks[i] = q->items[i].mark;
    }
    q->quality.marks = q->marks;
}

json_t *questions_json(const struct questions *q, size_t number) {
    const struct problem *item = &q->items[number];
    json_t *object = json_object(), *output = json_array();
    const char *const words[] = {"id", "task", "answer"};
    const char *const values[] = {item->id, item->task, item->answer};
    json_object_set_new(object, "number", json_integer((json_int_t)number));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (values[i] != NULL) {
            json_object_set_new(object, words[i], json_string(values[i]));
        }
    }
    for (uint32_t i = 0; i < item->n_output; i++) {
        json_array_append_new(output, json_integer(item->output[i]));
    }
    json_object_set_new(object, "prompt_tokens", json_integer(item->n_ids));
    json_object_set_new(object, "output", output);
    size_t length;
    char *text = questions_text(q, item, &length);
    if (text != NULL) {
        json_object_set_new(object, "text", json_stringn(text, length));
    }
    if (item->mark != '-') {
        json_object_set_new(object, "right", json_boolean(item->mark == '1'));
    }
    free(text);
    return object;
}

int questions_write(const struct questions *q, const char *path, struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    for (size_t i = 0; i < q->n; i++) {
        if (q->items[i].is_served) {
            json_t *object = questions_json(q, i);
            char *text = summary_json_text(object, 0);
            fprintf(out.file, "%s\n", text != NULL ? text : "");
            free(text);
            json_decref(object);
        }
    }
    return output_close(&out, true, err);
}
