#include "sim/policy/plugin/call_watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/err.h"
#include "sim/base/output.h"
#include "sim/base/system.h"

enum { MOST_THREADS = 1024, STACK_BYTES = 1 << 16, TICKS_S = 4 };

static struct watched_call calls[MOST_THREADS];
static atomic_uint n_threads;
static _Thread_local struct watched_call *own;
static const volatile sig_atomic_t *stop_flag;
static const char *blamed;           /* the plug-in loaded last, where no call is under way */
static int words_fd = STDERR_FILENO; /* for sentences, even if a plug-in closes the other */
static bool was_open[3];
static FILE *std_out;      /* standard output, which calls under way do not have */
static atomic_uint n_away; /* calls under way, of all threads */
static char *told;         /* where a trial's sentence goes */
static size_t told_bytes;

/* ---- the end ---- */

/* A handler may call it: nothing is allocated, nothing of the C library's streams is used. */
static _Noreturn void end_with(const char *const *words) {
    char sentence[1024];
    size_t n = 0;
    for (; *words != NULL; words++) {
        for (const char *c = *words; *c != '\0' && n < sizeof sentence - 1; c++) {
            sentence[n++] = *c;
        }
    }
    if (told != NULL) {
        static const size_t said = sizeof "unmask: " - 1;
        n = n - said < told_bytes ? n : told_bytes - 1 + said;
        memcpy(told, sentence + said, n - said);
        told[n - said] = '\0';
        system_leave(ERR_WORLD);
    }
    sentence[n++] = '\n';
    ssize_t written = write(words_fd, sentence, n);
    (void)written;
    output_abandon();
    system_leave(ERR_WORLD);
}

static const char *number_text(uint64_t n, char out[24]) {
    char *at = out + 23;
    *at = '\0';
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return at;
}

#define END_WITH(...) end_with((const char *const[]){"unmask: ", __VA_ARGS__, NULL})

static _Noreturn void end_call(const struct watched_call *call, const char *what,
                               const char *more) {
    char number[24];
    const char *callback = call->callback;
    END_WITH(call->path, what, callback != NULL ? callback : "?", " (call ",
             number_text(call->n, number), ")", more);
}

void call_broke(const struct watched_call *call, const char *callback, const char *format, ...) {
    char text[512], number[24];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    END_WITH(call->path, ": ", text, " in callback ", callback, " (call ",
             number_text(call->n, number), ")");
}

void call_cannot(const char *sentence) {
    END_WITH(sentence);
}

/* ---- crashes and exits ---- */

static const struct {
    int number;
    const char *name;
} deadly[] = {
    {SIGSEGV, "SEGV"}, {SIGBUS, "BUS"}, {SIGFPE, "FPE"}, {SIGILL, "ILL"}, {SIGABRT, "ABRT"}};

static void on_crash(int number, siginfo_t *info, void *unused) {
    const char *name = "";
    (void)unused;
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
        name = deadly[i].number == number ? deadly[i].name : name;
    }
    if (own != NULL && own->callback != NULL) {
        char calls_text[24];
        for (unsigned i = 0; number == SIGSEGV && i < own->n_places; i++) {
            const struct call_place *place = &own->places[i];
            if ((uintptr_t)info->si_addr - (uintptr_t)place->from < place->bytes) {
                END_WITH(own->path, ": it ", place->deed, " in callback ", own->callback, " (call ",
                         number_text(own->n, calls_text), ")");
            }
        }
        END_WITH(own->path, " crashed with signal ", name, " in callback ", own->callback,
                 " (call ", number_text(own->n, calls_text), ")");
    }
    if (told != NULL) {
        END_WITH(blamed, " crashed the serving loop with signal ", name, " between two callbacks");
    }
    END_WITH("the run crashed with the plug-in ", blamed,
             " loaded and was not recorded; `unmask check-plugin` exercises it");
}

/* A callback that calls exit, with whatever status; or one before it that closed what the program
 * writes to. */
static void on_exit_called(void) {
    for (int fd = 0; fd < 3; fd++) {
        if (was_open[fd] && fcntl(fd, F_GETFD) < 0) {
            was_open[fd] = false;
            END_WITH("standard input, output or error was closed while the plug-in ", blamed,
                     " was loaded");
        }
    }
    if (own != NULL && own->callback != NULL) {
        end_call(own, " ended the program in callback ", "");
    }
}

/* The C library's, for plug-ins, which find this one first. */
void _exit(int status) {
    bool ends_trial = told != NULL && status == CALL_TRIAL_ENDED && own != NULL &&
                      call_is_answered_elsewhere(own->path);
    if (!ends_trial) {
        on_exit_called();
    }
    system_leave(status);
}

void _Exit(int status) {
    _exit(status);
}

/* ---- calls that do not return ---- */

struct watch_mark {
    uint64_t n;
    unsigned ticks;
};

bool call_is_answered_elsewhere(const char *path) {
    const char *at = getenv(CALL_ANSWERED_AT);
    const char *end = at != NULL ? strrchr(at, '/') : NULL;
    const char *own_end = strrchr(path, '/');
    return end != NULL && own_end != NULL && end - at == own_end - path &&
           strncmp(at, path, (size_t)(end - at)) == 0;
}

static void look_at(const struct watched_call *call, struct watch_mark *mark) {
    bool is_same = call->callback != NULL && call->n == mark->n;
    mark->ticks = is_same ? mark->ticks + 1 : 0;
    mark->n = call->n;
    if (mark->ticks > 1 && stop_flag != NULL && *stop_flag) {
        end_call(call, " was interrupted in callback ", "");
    }
    if (mark->ticks > CALL_LIMIT_S * TICKS_S && !call_is_answered_elsewhere(call->path)) {
        end_call(call, " did not return from callback ", " within 5 s");
    }
}

/* Counts its own naps, so that a program that was stopped and goes on has not hung. */
static void *watch(void *unused) {
    static struct watch_mark marks[MOST_THREADS];
    const struct timespec nap = {.tv_nsec = 1000000000 / TICKS_S};
    (void)unused;
    for (;;) {
        nanosleep(&nap, NULL);
        unsigned n = atomic_load(&n_threads);
        for (unsigned i = 0; i < n && i < MOST_THREADS; i++) {
            look_at(&calls[i], &marks[i]);
        }
    }
    return NULL;
}

static void start_watch(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags = SA_ONSTACK | SA_NODEFER | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
        sigaction(deadly[i].number, &action, NULL);
    }
    for (int fd = 0; fd < 3; fd++) {
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    std_out = stdout;
    int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
    words_fd = copy >= 0 ? copy : words_fd;
    (void)atexit(on_exit_called);
    (void)at_quick_exit(on_exit_called);
    if (told != NULL) {
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&thread, &attributes, watch, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void call_watch_begin(const char *path) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    blamed = path;
    pthread_once(&once, start_watch);
}

void call_watch_trial(char *out, size_t size) {
    told = out;
    told_bytes = size;
}

bool call_is_trial(void) {
    return told != NULL;
}

void call_watch_interrupt(const volatile sig_atomic_t *stop) {
    stop_flag = stop;
}

/* ---- calls ---- */

/* A thread's place, and a stack for the handler of one that overflowed. */
static void take_place(void) {
    own = &calls[atomic_fetch_add(&n_threads, 1) % MOST_THREADS];
    void *stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack != MAP_FAILED) {
        const stack_t alternate = {.ss_sp = stack, .ss_size = STACK_BYTES};
        sigaltstack(&alternate, NULL);
    }
}

#ifdef __x86_64__
static unsigned rounding(void) {
    unsigned short control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    /* Without the flags of what has happened. */
    return (__builtin_ia32_stmxcsr() & ~0x3fu) << 16 | control;
}
#else
#include <fenv.h>
static unsigned rounding(void) {
    return (unsigned)fegetround();
}
#endif

struct watched_call *call_enter(const char *path, const char *callback) {
    if (own == NULL) {
        take_place();
    }
    struct watched_call *call = own;
    call->path = path;
    call->n++;
    call->n_places = 0;
    call->rounding = rounding();
    atomic_fetch_add(&n_away, 1);
    __atomic_store_n(&stdout, stderr, __ATOMIC_SEQ_CST);
    call->callback = callback;
    return call;
}

struct watched_call *call_under_way(void) {
    return own;
}

void call_leave(struct watched_call *call) {
    const char *callback = call->callback;
    call->callback = NULL;
    /* Who leaves last stores last. */
    if (atomic_fetch_sub(&n_away, 1) == 1) {
        __atomic_store_n(&stdout, std_out, __ATOMIC_SEQ_CST);
    }
    if (rounding() != call->rounding) {
        call_broke(call, callback, "it changed how the processor rounds, or its traps,");
    }
}
