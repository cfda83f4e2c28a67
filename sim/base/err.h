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

/* Filled once, where the facts are known; callers above pass it on unchanged. */
struct err {
    enum err_kind kind;
    char text[1024];
};

/* Set `err` to one sentence and return its kind, so that a callee can `return err_world(...)`.
 * `err` may not be NULL. A sentence already set is kept: the first cause wins. */
int err_world(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int err_usage(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the failed condition with its place and aborts. */
_Noreturn void assert_failed(const char *condition, const char *file, int line);

#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))

#ifdef __cplusplus
}
#endif
#endif
