/* Errors and assertions.
 *
 * Three kinds of trouble (one page of style, "Errors"): our own mistake stops the program with
 * ASSERT, which is always compiled in; the outside world and the user's words return a code and
 * leave one sentence in `struct err`. The codes are the program's exit statuses. */
#ifndef UNMASK_SIM_BASE_ERR_H
#define UNMASK_SIM_BASE_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

enum err_kind {
    ERR_NONE = 0,
    ERR_WORLD = 1, /* a file, a device, a data set is not as it must be */
    ERR_USAGE = 2, /* the request itself makes no sense: unknown key, bad value */
};

/* What callers tell apart beyond the kind. */
enum err_code {
    ERR_CODE_NONE = 0,
    ERR_NO_ROOM,   /* the system does not fit into its device: an answer, not a failure */
    ERR_NO_PRICES, /* there are none of the source that was asked for; the same */
    ERR_STARVES,   /* a scheduler leaves requests waiting for ever: the run is there until then */
    ERR_UNKNOWN,   /* a name that nothing has or a value that its key never takes: a slip, whatever
                      stands beside it */
};

/* Filled once, where the facts are known; callers above pass it on unchanged. */
struct err {
    enum err_kind kind;
    enum err_code code;
    char text[1024];
};

/* Set `err` to one sentence: one line of UTF-8, with '?' for whatever in it is neither. A sentence
 * already set is kept, and so is its code: the first cause wins. */
void err_set(struct err *err, enum err_kind kind, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The kind of what went wrong, never 0: for functions that have just failed. */
static inline int err_status(const struct err *err) {
    return err->kind == ERR_NONE ? (int)ERR_WORLD : (int)err->kind;
}

/* Set the sentence and be its kind, so that a callee can `return err_world(err, ...)`. */
#define err_world(err, ...)   (err_set((err), ERR_WORLD, ERR_CODE_NONE, __VA_ARGS__), err_status(err))
#define err_no_room(err, ...) (err_set((err), ERR_WORLD, ERR_NO_ROOM, __VA_ARGS__), err_status(err))
#define err_starves(err, ...) (err_set((err), ERR_WORLD, ERR_STARVES, __VA_ARGS__), err_status(err))
#define err_usage(err, ...)   (err_set((err), ERR_USAGE, ERR_CODE_NONE, __VA_ARGS__), err_status(err))
#define err_unknown(err, ...) (err_set((err), ERR_USAGE, ERR_UNKNOWN, __VA_ARGS__), err_status(err))

/* Of a function that returns a status and has `err`: leaves it with a sentence. */
#define REFUSE_UNLESS(holds, ...)                                                                  \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            return err_world(err, __VA_ARGS__);                                                    \
        }                                                                                          \
    } while (0)

/* Prints the failed condition with its place and aborts. */
__attribute__((noreturn)) void assert_failed(const char *condition, const char *file, int line);

#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))

#ifdef __cplusplus
}
#endif
#endif
