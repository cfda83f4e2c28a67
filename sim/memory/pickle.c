#include "sim/memory/pickle.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

enum { MOST_VALUES = 1 << 27, MOST_TEXT = 1 << 26, STOP = '.' };

struct unpickler {
    FILE *file;
    const char *path;
    struct err *err;
    json_t **stack; /* NULL: a mark. Each is owned */
    size_t n, room;
    json_t **memo; /* texts and numbers, owned; NULL: a list or dict */
    size_t n_memo, memo_room;
    uint64_t n_values, n_bytes; /* made; read */
};

static bool bad(struct unpickler *u, const char *what) {
    err_world(u->err, "%s: byte %" PRIu64 ": %s", u->path, u->n_bytes, what);
    return false;
}

static bool read_bytes(struct unpickler *u, void *out, size_t n) {
    u->n_bytes += n;
    return fread(out, 1, n, u->file) == n || bad(u, "the pickle ends before its STOP");
}

/* Little-endian, of up to 8 bytes. */
static bool read_whole(struct unpickler *u, size_t n, uint64_t *out) {
    unsigned char bytes[8];
    *out = 0;
    if (!read_bytes(u, bytes, n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        *out |= (uint64_t)bytes[i] << (8 * i);
    }
    return true;
}

/* Takes the value. */
static bool push(struct unpickler *u, json_t *value) {
    if (++u->n_values > MOST_VALUES) {
        json_decref(value);
        return bad(u, "the pickle has too many values");
    }
    u->stack = mem_grown(u->stack, u->n, &u->room, sizeof(json_t *));
    u->stack[u->n++] = value;
    return true;
}

static void drop_from(struct unpickler *u, size_t n) {
    while (u->n > n) {
        json_decref(u->stack[--u->n]);
    }
}

/* The index of the first value above the last mark, or of the stack's first value. */
static size_t behind_mark(const struct unpickler *u) {
    size_t first = u->n;
    while (first > 0 && u->stack[first - 1] != NULL) {
        first--;
    }
    return first;
}

static bool has_values(struct unpickler *u, size_t n) {
    return u->n - behind_mark(u) >= n || bad(u, "found fewer values than its opcode takes");
}

/* ---- values: each handler has its opcode's argument ---- */

static bool push_plain(struct unpickler *u, uint64_t opcode) {
    return push(u, opcode == '('                    ? NULL
                   : opcode == 'N'                  ? json_null()
                   : opcode == '}'                  ? json_object()
                   : opcode == ']' || opcode == ')' ? json_array()
                                                    : json_boolean(opcode == 0x88));
}

static bool push_whole(struct unpickler *u, uint64_t value) {
    return push(u, json_integer((json_int_t)value));
}

static bool push_int32(struct unpickler *u, uint64_t value) {
    return push(u, json_integer((int32_t)(uint32_t)value));
}

static bool push_long(struct unpickler *u, uint64_t n_bytes) {
    uint64_t value;
    if (n_bytes > 8) {
        return bad(u, "found a number of more than 64 bits");
    }
    if (!read_whole(u, (size_t)n_bytes, &value)) {
        return false;
    }
    if (n_bytes > 0 && n_bytes < 8 && (value >> (8 * n_bytes - 1)) != 0) {
        value |= UINT64_MAX << (8 * n_bytes);
    }
    return push_whole(u, value);
}

/* The only number whose first byte is its highest. */
static bool push_real(struct unpickler *u, uint64_t bits) {
    double value;
    bits = __builtin_bswap64(bits);
    memcpy(&value, &bits, sizeof value);
    json_t *number = json_real(value); /* NULL: not finite */
    return push(u, number != NULL ? number : json_null());
}

static bool push_text(struct unpickler *u, uint64_t length) {
    if (length > MOST_TEXT) {
        return bad(u, "found a text of more than 64 MiB");
    }
    char *text = mem_unwritten((size_t)length + 1, 1);
    bool is_read = read_bytes(u, text, (size_t)length);
    json_t *value = is_read ? json_stringn(text, (size_t)length) : NULL;
    free(text);
    return is_read && push(u, value != NULL ? value : json_null()); /* no UTF-8 */
}

/* ---- lists and dicts ---- */

/* The last n values, or those above a mark, become a list. */
static bool make_tuple(struct unpickler *u, uint64_t opcode) {
    const bool has_mark = opcode == 't';
    const size_t first = has_mark ? behind_mark(u) : u->n - (size_t)(opcode - 0x84);
    if (!(has_mark ? first > 0 || bad(u, "found no mark") : has_values(u, opcode - 0x84))) {
        return false;
    }
    json_t *list = json_array();
    for (size_t i = first; i < u->n; i++) {
        json_array_append(list, u->stack[i]);
    }
    drop_from(u, first - has_mark);
    return push(u, list);
}

static void set_item(json_t *dict, const json_t *key, json_t *value) {
    char number[32] = ""; /* other keys are none that anybody reads */
    if (json_is_integer(key)) {
        snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(key));
    }
    json_object_set(dict, json_is_string(key) ? json_string_value(key) : number, value);
}

/* One item, or those above a mark, into the list or dict below. */
static bool fill(struct unpickler *u, uint64_t opcode) {
    const bool has_mark = opcode == 'e' || opcode == 'u', is_dict = opcode == 's' || opcode == 'u';
    const size_t size = is_dict ? 2 : 1;
    if (!has_mark && !has_values(u, size + 1)) {
        return false;
    }
    const size_t first = has_mark ? behind_mark(u) : u->n - size;
    json_t *into = first > has_mark ? u->stack[first - has_mark - 1] : NULL;
    if (into == NULL || !(is_dict ? json_is_object(into) : json_is_array(into)) ||
        (u->n - first) % size != 0) {
        return bad(u, is_dict ? "found no dict to fill" : "found no list to fill");
    }
    for (size_t i = first; i < u->n; i += size) {
        if (is_dict) {
            set_item(into, u->stack[i], u->stack[i + 1]);
        } else {
            json_array_append(into, u->stack[i]);
        }
    }
    drop_from(u, first - has_mark);
    return true;
}

/* ---- the memo ---- */

static bool put(struct unpickler *u, uint64_t place) {
    if (!has_values(u, 1) || place != u->n_memo) {
        return place == u->n_memo ? false : bad(u, "found a memo out of its order");
    }
    json_t *top = u->stack[u->n - 1];
    u->memo = mem_grown(u->memo, u->n_memo, &u->memo_room, sizeof(json_t *));
    u->memo[u->n_memo++] = json_is_array(top) || json_is_object(top) ? NULL : json_incref(top);
    return true;
}

static bool memoize(struct unpickler *u, uint64_t opcode) {
    (void)opcode;
    return put(u, u->n_memo);
}

static bool get(struct unpickler *u, uint64_t place) {
    json_t *kept = place < u->n_memo ? u->memo[place] : NULL;
    return push(u, kept != NULL ? json_incref(kept) : json_null());
}

/* The protocol, whose newer opcodes are refused one by one, and the length of a frame. */
static bool pass(struct unpickler *u, uint64_t argument) {
    (void)u, (void)argument;
    return true;
}

/* As Python's pickletools describes them; the bytes of the argument, 0: the opcode itself is it. */
static const struct {
    unsigned char opcode, n_bytes;
    bool (*run)(struct unpickler *u, uint64_t argument);
} known[] = {
    {0x80, 1, pass},       {0x95, 8, pass},       {'N', 0, push_plain}, {0x88, 0, push_plain},
    {0x89, 0, push_plain}, {'(', 0, push_plain},  {']', 0, push_plain}, {')', 0, push_plain},
    {'}', 0, push_plain},  {'J', 4, push_int32},  {'K', 1, push_whole}, {'M', 2, push_whole},
    {0x8a, 1, push_long},  {0x8b, 4, push_long},  {'G', 8, push_real},  {0x8c, 1, push_text},
    {'X', 4, push_text},   {0x8d, 8, push_text},  {'t', 0, make_tuple}, {0x85, 0, make_tuple},
    {0x86, 0, make_tuple}, {0x87, 0, make_tuple}, {'a', 0, fill},       {'e', 0, fill},
    {'s', 0, fill},        {'u', 0, fill},        {0x94, 0, memoize},   {'q', 1, put},
    {'r', 4, put},         {'h', 1, get},         {'j', 4, get},
};

static bool take(struct unpickler *u, int opcode) {
    uint64_t argument = (uint64_t)opcode;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].opcode == opcode) {
            return (known[i].n_bytes == 0 || read_whole(u, known[i].n_bytes, &argument)) &&
                   known[i].run(u, argument);
        }
    }
    return bad(u, opcode == EOF
                      ? "the pickle ends before its STOP"
                      : "found an opcode that makes no plain data, which is not executed");
}

json_t *pickle_read(FILE *file, const char *path, struct err *err) {
    struct unpickler u = {.file = file, .path = path, .err = err};
    json_t *value = NULL;
    int opcode = fgetc(file);
    for (u.n_bytes = 1; opcode != STOP && take(&u, opcode); u.n_bytes++) {
        opcode = fgetc(file);
    }
    if (opcode == STOP && (u.n == 1 || bad(&u, "found another number of values than one"))) {
        value = json_incref(u.stack[0]);
        (void)(value != NULL || bad(&u, "found no value"));
    }
    drop_from(&u, 0);
    for (size_t i = 0; i < u.n_memo; i++) {
        json_decref(u.memo[i]);
    }
    free(u.stack);
    free(u.memo);
    return value;
}
