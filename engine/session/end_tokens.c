#include "engine/session/end_tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/weights/weights.h"
#include "sim/base/input/text.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

static bool add(struct end_tokens *ends, uint64_t token) {
    if (ends->n == MOST_END_TOKENS) {
        return false;
    }
    ends->tokens[ends->n++] = (int32_t)token;
    return true;
}

int end_tokens_parse(const char *text, const char *place, const struct model *model,
                     struct end_tokens *out, struct err *err) {
    *out = (struct end_tokens){0};
    if (strcmp(text, "none") == 0) {
        return 0;
    }
    const char *at;
    size_t length;
    for (const char *rest = text; name_next(&rest, ",", &at, &length);) {
        char number[24];
        uint64_t token;
        snprintf(number, sizeof number, "%.*s", (int)(length < 23 ? length : 23), at);
        if (!num_u64(number, model->vocab - 1, &token) || !add(out, token)) {
            return err_usage(err,
                             "%s: found '%s', expected none or up to %d token ids of %s from 0 to "
                             "%" PRIu32 ", separated by commas",
                             place, text, MOST_END_TOKENS, model->name, model->vocab - 1);
        }
    }
    return 0;
}

static int take_value(const json_t *value, const char *path, const struct model *model,
                      struct end_tokens *out, struct err *err) {
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t token = json_integer_value(id);
        if (!json_is_integer(id) || token < 0 || token >= (json_int_t)model->vocab ||
            !add(out, (uint64_t)token)) {
            return err_world(err, "%s: eos_token_id must be up to %d token ids from 0 to %" PRIu32,
                             path, MOST_END_TOKENS, model->vocab - 1);
        }
    }
    return 0;
}

/* A file that is missing says nothing. */
static int read_file(const char *folder, const char *name, const struct model *model,
                     struct end_tokens *out, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return err_world(err, "%.64s...: the folder's name is too long", folder);
    }
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return 0;
    }
    json_t *root = json_read(path, "end tokens", JSON_REJECT_DUPLICATES, err);
    if (root == NULL) {
        return err_status(err);
    }
    const json_t *value = json_object_get(root, "eos_token_id");
    int status =
        value != NULL && !json_is_null(value) ? take_value(value, path, model, out, err) : 0;
    json_decref(root);
    return status;
}

int end_tokens_read(const char *weights, const struct model *model, struct end_tokens *out,
                    struct err *err) {
    *out = (struct end_tokens){0};
    if (weights_seed(weights) != NULL) {
        return 0;
    }
    int status = read_file(weights, "generation_config.json", model, out, err);
    return status != 0 || out->n > 0 ? status : read_file(weights, "config.json", model, out, err);
}

const char *end_tokens_text(const struct end_tokens *ends, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < ends->n && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId32, i > 0 ? ", " : "",
                                 ends->tokens[i]);
    }
    return text;
}

static bool is_end(const struct end_tokens *ends, int32_t token) {
    for (uint32_t i = 0; i < ends->n; i++) {
        if (ends->tokens[i] == token) {
            return true;
        }
    }
    return false;
}

int end_tokens_find(const struct end_tokens *ends, struct sessions *sessions, uint32_t slot,
                    const struct request *request, uint32_t *answer_tokens, bool *is_met,
                    struct err *err) {
    const struct session *session = &sessions->by_slot[slot];
    uint32_t prompt = request->prompt_tokens, end = window_end(request);
    uint32_t first = window_first(request) > prompt ? window_first(request) : prompt;
    int32_t *tokens = sessions->tokens;
    *answer_tokens = 0;
    int status =
        forward_read_canvas(sessions->forward, session->canvas + first, tokens, end - first, err);
    bool may_be_masked = window_masked(request) > 0, is_known = true;
    *is_met = false;
    for (uint32_t i = 0; status == 0 && !*is_met && i < end - first; i++) {
        const bool is_mask =
            may_be_masked && tokens[i] == (int32_t)sessions->system->model->mask_token;
        is_known = is_known && !is_mask;
        *is_met = !is_mask && is_end(ends, tokens[i]);
        *answer_tokens = is_known && *is_met ? first + i - prompt + 1 : 0;
    }
    return status;
}
