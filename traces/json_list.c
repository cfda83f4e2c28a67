#include "traces/json_list.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "traces/format/format.h"

static const char sharegpt_name[] = "sharegpt";

/* The next character that is no blank. */
static int next_mark(FILE *file) {
    int c;
    while ((c = fgetc(file)) > 0 && strchr(" \t\r\n", c) != NULL) {
    }
    return c;
}

static int first_mark(FILE *file) {
    int c = next_mark(file);
    return c == 0xef && fgetc(file) == 0xbb && fgetc(file) == 0xbf ? next_mark(file) : c;
}

bool json_list_is(FILE *file) {
    bool is_list = first_mark(file) == '[' && next_mark(file) == '{';
    clearerr(file);
    return fseek(file, 0, SEEK_SET) == 0 && is_list;
}

/* One file on its way. */
struct list {
    struct survey_names *unread;
    const char *path;
    const struct prompt_taker *counter;
    uint64_t number; /* of the element, from 1 */
    FILE *out;
    bool is_talk;
};

static int bad(const struct list *list, const char *what, struct err *err) {
    return err_world(err, "%s: element %" PRIu64 " of the list: %s", list->path, list->number,
                     what);
}

/* The object that begins at the stream's place, as text: up to the brace that closes it. */
static char *object_text(FILE *file, size_t *size) {
    char *text;
    FILE *out = mem_stream(&text, size);
    int depth = 0, c;
    bool is_text = false;
    do {
        c = fgetc(file);
        if (c == EOF) {
            break;
        }
        fputc(c, out);
        if (is_text && c == '\\') {
            c = fgetc(file);
            fputc(c, out);
        } else if (c == '"') {
            is_text = !is_text;
        } else if (!is_text) {
            depth += (c == '{') - (c == '}');
        }
    } while (depth > 0);
    mem_stream_close(out);
    return text;
}

/* ---- conversations ---- */

static const json_t *turns_of(const json_t *element) {
    const json_t *turns = json_object_get(element, "conversations");
    return turns != NULL ? turns : json_object_get(element, "messages");
}

/* Whose words: 1 an answer, 0 anybody else's. */
static bool is_answer(const json_t *turn) {
    static const char *const words[] = {"gpt", "assistant", "bot", "chatgpt", "model", "bard"};
    const char *from = json_string_value(json_object_get(turn, "from"));
    from = from != NULL ? from : json_string_value(json_object_get(turn, "role"));
    for (size_t i = 0; from != NULL && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(from, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int count(const struct list *list, const json_t *turn, uint32_t *tokens, struct err *err) {
    const json_t *text = json_object_get(turn, "value");
    text = text != NULL ? text : json_object_get(turn, "content");
    *tokens = 0;
    if (text == NULL || json_is_null(text) || json_string_length(text) == 0) {
        return json_is_string(text) || text == NULL || json_is_null(text)
                   ? 0
                   : bad(list, "found a turn that is no text", err);
    }
    struct prompt prompt = {.number = list->number - 1,
                            .path = list->path,
                            .line = list->number,
                            .text = json_string_value(text),
                            .text_bytes = json_string_length(text)};
    return list->counter->take(list->counter->state, &prompt, tokens, err);
}

/* Each answer is a request; what has no tokens is a failed one. */
static int write_talk(struct list *list, const json_t *turns, struct err *err) {
    uint64_t said = 0;
    size_t n_answers = 0;
    const json_t *turn;
    size_t i;
    json_array_foreach((json_t *)turns, i, turn) {
        n_answers += is_answer(turn);
    }
    json_array_foreach((json_t *)turns, i, turn) {
        uint32_t tokens;
        int status = count(list, turn, &tokens, err);
        if (status != 0) {
            return status;
        }
        if (is_answer(turn)) {
            if (n_answers > 1) {
                fprintf(list->out, "%" PRIu64, list->number);
            }
            fprintf(list->out, ",%" PRIu64 ",%" PRIu32 "\n", said, said > 0 ? tokens : 0);
        }
        said += tokens;
    }
    return 0;
}

static void name_unread(struct list *list, const json_t *element, const json_t *turns) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)element, key, value) {
        if (value != turns) {
            survey_add_name(list->unread, key, strlen(key));
        }
    }
}

static int write_element(struct list *list, const json_t *element, struct err *err) {
    const json_t *turns = turns_of(element);
    bool is_talk = json_is_array(turns) && json_object_get(element, "usage") == NULL;
    if (list->number == 1) {
        list->is_talk = is_talk;
        fputs(is_talk ? "session,input,output\n" : "", list->out);
    }
    if (list->is_talk && !json_is_array(turns)) {
        return bad(list, "found no 'conversations', expected a list of turns", err);
    }
    if (list->is_talk && list->counter->take == NULL) {
        return err_usage(err,
                         "%s is a list of conversations (ShareGPT's JSON), whose texts have no "
                         "lengths before a tokenizer counts them: `unmask trace convert "
                         "--tokenizer FOLDER --to plain-lengths`",
                         list->path);
    }
    if (list->is_talk) {
        name_unread(list, element, turns);
        return write_talk(list, turns, err);
    }
    (void)json_dumpf(element, list->out, JSON_COMPACT);
    fputc('\n', list->out);
    return 0;
}

static int read_element(struct list *list, FILE *file, struct err *err) {
    json_error_t trouble;
    size_t size;
    char *text = object_text(file, &size);
    json_t *element = json_lenient(text, size, 0, &trouble);
    free(text);
    list->number++;
    if (!json_is_object(element)) {
        json_decref(element);
        return bad(list, "found no whole object", err);
    }
    int status = write_element(list, element, err);
    json_decref(element);
    return status;
}

int json_list_rows(FILE *file, const char *path, const struct prompt_taker *counter, char **out,
                   const char **name, struct survey_names *unread, struct err *err) {
    size_t size;
    struct list list = {
        .path = path, .counter = counter, .unread = unread, .out = mem_stream(out, &size)};
    int status = 0, c;
    (void)first_mark(file); /* the bracket that opens the list */
    do {
        c = next_mark(file);
        if (c == '{') {
            ungetc(c, file);
            status = read_element(&list, file, err);
            c = status == 0 ? next_mark(file) : c;
        }
    } while (status == 0 && c == ',');
    mem_stream_close(list.out);
    if (status == 0 && (c != ']' || next_mark(file) != EOF)) {
        status = err_world(err, "%s: found no end of the list after its element %" PRIu64, path,
                           list.number);
    }
    if (ferror(file)) {
        *err = (struct err){0};
        status = err_world(err, "%s: %s", path,
                           errno == EBADMSG ? "the compressed data is damaged or cut off"
                                            : strerror(errno));
    }
    *name = status == 0 && list.is_talk ? sharegpt_name : NULL;
    return status;
}
