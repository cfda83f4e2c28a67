#include "sim/base/system.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <search.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <sys/random.h>
#include <sys/sysctl.h>
#else
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#endif

/* ---- where the program is ---- */

bool system_program(char *path, size_t size) {
#ifdef __APPLE__
    char named[PATH_MAX], whole[PATH_MAX];
    uint32_t room = sizeof named;
    if (_NSGetExecutablePath(named, &room) != 0 || realpath(named, whole) == NULL ||
        strlen(whole) >= size) {
        return false;
    }
    memcpy(path, whole, strlen(whole) + 1);
    return true;
#else
    ssize_t length = readlink("/proc/self/exe", path, size);
    if (length <= 0 || (size_t)length >= size) {
        return false;
    }
    path[length] = '\0';
    return true;
#endif
}

const char *system_itself(char *path, size_t size) {
#ifdef __APPLE__
    return system_program(path, size) ? path : "";
#else
    (void)path, (void)size;
    return "/proc/self/exe";
#endif
}

bool system_beside(const char *name, char *path, size_t size) {
    static const char *const places[] = {"",       "../lib/unmask/", "kernels/", "../kernels/",
                                         "../../", "../../portable/"};
    char program[PATH_MAX];
    if (!system_program(program, sizeof program)) {
        return false;
    }
    char *slash = strrchr(program, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        int length =
            snprintf(path, size, "%.*s%s%s", (int)(slash - program) + 1, program, places[i], name);
        if (length > 0 && (size_t)length < size && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- signals and children ---- */

const char *system_signal_name(int signal) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGABRT, "ABRT"},  {SIGALRM, "ALRM"}, {SIGBUS, "BUS"},       {SIGCHLD, "CHLD"},
                 {SIGCONT, "CONT"},  {SIGFPE, "FPE"},   {SIGHUP, "HUP"},       {SIGILL, "ILL"},
                 {SIGINT, "INT"},    {SIGIO, "POLL"},   {SIGKILL, "KILL"},     {SIGPIPE, "PIPE"},
                 {SIGPROF, "PROF"},  {SIGQUIT, "QUIT"}, {SIGSEGV, "SEGV"},     {SIGSTOP, "STOP"},
                 {SIGSYS, "SYS"},    {SIGTERM, "TERM"}, {SIGTRAP, "TRAP"},     {SIGTSTP, "TSTP"},
                 {SIGTTIN, "TTIN"},  {SIGTTOU, "TTOU"}, {SIGURG, "URG"},       {SIGUSR1, "USR1"},
                 {SIGUSR2, "USR2"},  {SIGXCPU, "XCPU"}, {SIGVTALRM, "VTALRM"}, {SIGXFSZ, "XFSZ"},
                 {SIGWINCH, "WINCH"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == signal) {
            return names[i].name;
        }
    }
    return "unknown";
}

void system_end_with_parent(int signal) {
#ifdef __APPLE__
    (void)signal;
#else
    prctl(PR_SET_PDEATHSIG, signal);
#endif
}

#ifdef __APPLE__
extern char **environ;
extern _Noreturn void __exit(int status); /* libSystem's own, as ours has the name _exit */
static int status_of_exit = 1;            /* atexit does not say which */

static void leave_now(void) {
    __exit(status_of_exit);
}
#else
static void leave_now(int status, void *unused) {
    (void)unused;
    _exit(status);
}
#endif

/* By the name that glibc itself uses: a linker that knows glibc by its symbols alone, as that of
 * the wheel, does not see that the other one is the same variable. */
char **system_environment(void) {
#ifdef __GLIBC__
    return __environ;
#else
    return environ;
#endif
}

_Noreturn void system_leave(int status) {
#ifdef __APPLE__
    __exit(status);
#else
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
#endif
}

void system_leave_at_once(void) {
#ifdef __APPLE__
    (void)atexit(leave_now);
#else
    (void)on_exit(leave_now, NULL);
#endif
}

int64_t system_processor_ns(pid_t program) {
#ifdef __APPLE__
    (void)program;
    return 0;
#else
    clockid_t clock;
    struct timespec time;
    return clock_getcpuclockid(program, &clock) == 0 && clock_gettime(clock, &time) == 0
               ? time.tv_sec * INT64_C(1000000000) + time.tv_nsec
               : 0;
#endif
}

unsigned system_threads(void) {
    unsigned n = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        n += task->d_name[0] != '.';
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return n;
}

bool system_symbol_bytes(const void *symbol, uint64_t *bytes) {
    Dl_info info;
#ifdef __APPLE__
    *bytes = UINT64_MAX;
    return dladdr(symbol, &info) != 0;
#else
    void *extra = NULL;
    if (dladdr1(symbol, &info, &extra, RTLD_DL_SYMENT) == 0 || extra == NULL) {
        return false;
    }
    const ElfW(Sym) *entry = extra;
    *bytes = entry->st_size;
    return true;
#endif
}

/* ---- memory ---- */

int system_memory_file(void) {
#ifdef __APPLE__
    char path[] = "/tmp/unmask-XXXXXX";
    int file = mkstemp(path);
    if (file >= 0) {
        unlink(path);
        fcntl(file, F_SETFD, FD_CLOEXEC);
    }
    return file;
#else
    return memfd_create("unmask", MFD_CLOEXEC);
#endif
}

void system_keep_memory(void) {
#ifndef __APPLE__
    /* Threads of a sweep spent half as long again giving memory back and taking it anew. */
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

#ifndef __APPLE__
/* The value of the first line "key : value" of a file of the kernel's; false when there is none. */
static bool read_line(const char *path, const char *key, char *value, size_t size) {
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (!found && file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL) {
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
            found = true;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}
#endif

void system_processor_name(char *out, size_t size) {
#ifdef __APPLE__
    bool found = sysctlbyname("machdep.cpu.brand_string", out, &size, NULL, 0) == 0;
#else
    bool found = read_line("/proc/cpuinfo", "model name", out, size);
#endif
    if (!found) {
        snprintf(out, size, "CPU");
    }
}

int64_t system_total_bytes(void) {
#ifdef __APPLE__
    return 0;
#else
    return (int64_t)sysconf(_SC_PAGESIZE) * sysconf(_SC_PHYS_PAGES);
#endif
}

int64_t system_free_bytes(void) {
#ifdef __APPLE__
    return 0;
#else
    char text[64]; /* also what caches of files would give */
    return read_line("/proc/meminfo", "MemAvailable", text, sizeof text)
               ? strtoll(text, NULL, 10) * 1024
               : (int64_t)sysconf(_SC_PAGESIZE) * sysconf(_SC_AVPHYS_PAGES);
#endif
}

int64_t system_l2_bytes(void) {
#ifdef __APPLE__
    int64_t bytes = 0;
    size_t size = sizeof bytes;
    return sysctlbyname("hw.l2cachesize", &bytes, &size, NULL, 0) == 0 ? bytes : 0;
#else
    int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? bytes : 0;
#endif
}

const void *system_last(const void *bytes, int c, size_t n) {
    const unsigned char *at = bytes;
    while (n > 0) {
        if (at[--n] == (unsigned char)c) {
            return at + n;
        }
    }
    return NULL;
}

bool system_random(void *out, size_t n) {
#ifdef __APPLE__
    return getentropy(out, n) == 0;
#else
    return getrandom(out, n, 0) == (ssize_t)n;
#endif
}

#ifdef __APPLE__
/* As search.h says that a node is laid out. */
struct node {
    void *item;
    struct node *left, *right;
};
#endif

void system_tree_free(void *root, void (*free_item)(void *item)) {
#ifdef __APPLE__
    struct node *node = root;
    if (node != NULL) {
        system_tree_free(node->left, free_item);
        system_tree_free(node->right, free_item);
        free_item(node->item);
        free(node);
    }
#else
    tdestroy(root, free_item);
#endif
}

/* ---- numbers and times ---- */

#ifdef __APPLE__
extern double lgamma_r(double x, int *sign);
#endif

double system_log_gamma(double x) {
    int sign; /* of positive numbers: 1 */
    return lgamma_r(x, &sign);
}

int64_t system_slept_ns(void) {
#ifdef __APPLE__
    return 0;
#else
    struct timespec with, without;
    if (clock_gettime(CLOCK_BOOTTIME, &with) != 0 ||
        clock_gettime(CLOCK_MONOTONIC, &without) != 0) {
        return 0;
    }
    return (int64_t)(with.tv_sec - without.tv_sec) * 1000000000 + with.tv_nsec - without.tv_nsec;
#endif
}

unsigned system_cores(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

void system_run_promptly(void) {
#ifndef __APPLE__
    /* struct sched_attr of Linux, which C libraries before 2.41 do not declare. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } slice = {.size = 48, .policy = SCHED_OTHER, .runtime_ns = 100000};
    errno = 0;
    slice.nice = getpriority(PRIO_PROCESS, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1);
    (void)syscall(SYS_sched_setattr, 0, &slice, 0);
#endif
}

void system_nap(int64_t ns) {
    const struct timespec nap = {.tv_sec = (time_t)(ns / 1000000000),
                                 .tv_nsec = (long)(ns % 1000000000)};
#ifdef __APPLE__
    nanosleep(&nap, NULL);
#else
    clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
#endif
}

void system_condition_init(pthread_cond_t *condition) {
#ifdef __APPLE__
    pthread_cond_init(condition, NULL);
#else
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
#endif
}

void system_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t ns) {
    struct timespec until = {0};
#ifdef __APPLE__
    until.tv_sec = (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait_relative_np(condition, lock, &until);
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(condition, lock, &until);
#endif
}

struct timespec system_changed(const struct stat *facts) {
#ifdef __APPLE__
    return facts->st_mtimespec;
#else
    return facts->st_mtim;
#endif
}

/* ---- streams ---- */

struct stream {
    const struct system_reader *reader;
    void *state;
};

static int stream_close(void *of) {
    struct stream *stream = of;
    int status = stream->reader->close(stream->state);
    free(stream);
    return status;
}

#ifdef __APPLE__
static int stream_read(void *of, char *out, int n) {
    struct stream *stream = of;
    return (int)stream->reader->read(stream->state, out, (size_t)n);
}

static fpos_t stream_seek(void *of, fpos_t offset, int whence) {
    struct stream *stream = of;
    bool is_begin = whence == SEEK_SET && offset == 0;
    return is_begin && stream->reader->rewind(stream->state) == 0 ? 0 : -1;
}
#else
static ssize_t stream_read(void *of, char *out, size_t n) {
    struct stream *stream = of;
    return stream->reader->read(stream->state, out, n);
}

static int stream_seek(void *of, off64_t *offset, int whence) {
    struct stream *stream = of;
    bool is_begin = whence == SEEK_SET && *offset == 0;
    return is_begin ? stream->reader->rewind(stream->state) : -1;
}
#endif

FILE *system_stream(const struct system_reader *reader, void *state) {
    struct stream *stream = malloc(sizeof *stream);
    if (stream == NULL) {
        return NULL;
    }
    *stream = (struct stream){reader, state};
#ifdef __APPLE__
    FILE *file = funopen(stream, stream_read, NULL, stream_seek, stream_close);
#else
    FILE *file = fopencookie(
        stream, "rb",
        (cookie_io_functions_t){.read = stream_read, .seek = stream_seek, .close = stream_close});
#endif
    if (file == NULL) {
        free(stream);
    }
    return file;
}

const char *system_today(char text[SYSTEM_DAY_CHARS]) {
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, SYSTEM_DAY_CHARS, "%Y-%m-%d", gmtime_r(&now, &utc));
    return text;
}

bool system_write(int file, const void *bytes, size_t size) {
    for (const char *next = bytes; size > 0;) {
        ssize_t n = write(file, next, size);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        next += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}
