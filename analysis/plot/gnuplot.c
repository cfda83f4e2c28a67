#include "analysis/plot/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/monotonic.h"
#include "sim/base/system.h"

enum { STATUS_UNSTARTED = 126, STATUS_ABSENT = 127 };

int gnuplot_most_s = 120;

void gnuplot_quote(FILE *script, const char *text) {
    fputc('\'', script);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'') {
            fputc('\'', script);
        }
        fputc((unsigned char)*c < 0x20 ? ' ' : *c, script);
    }
    fputc('\'', script);
}

/* The line that names the trouble ("line 12: undefined variable: x"), else the last that is not
 * blank. */
static void find_complaint(FILE *complaints, char *out, size_t size) {
    char line[512];
    snprintf(out, size, "it gave no reason");
    rewind(complaints);
    while (fgets(line, sizeof line, complaints) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        const char *text = line + strspn(line, " \t^");
        if (*text == '\0' || strncmp(text, "Fontconfig", 10) == 0) {
            continue;
        }
        snprintf(out, size, "%s", text);
        const char *place = strstr(text, "line ");
        if (place != NULL && strchr(place, ':') != NULL) {
            return;
        }
    }
}

/* The child, which ends with us; -1: none could be had. */
static pid_t start(int script, int complaints) {
    pid_t child = fork();
    if (child != 0) {
        return child;
    }
    system_end_with_parent(SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0 && dup2(script, STDIN_FILENO) >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0 &&
        dup2(complaints, STDERR_FILENO) >= 0) {
        execlp("gnuplot", "gnuplot", "-d", (char *)NULL);
    }
    _exit(errno == ENOENT ? STATUS_ABSENT : STATUS_UNSTARTED);
}

/* How the child ended; one that takes too long is killed, and false returned. */
static bool await(pid_t child, int *status) {
    const struct timespec pause = {.tv_nsec = 2000000};
    const int64_t end_ns = monotonic_ns() + gnuplot_most_s * INT64_C(1000000000);
    for (;;) {
        pid_t ended = waitpid(child, status, WNOHANG);
        if (ended != 0 && !(ended < 0 && errno == EINTR)) {
            return true;
        }
        if (monotonic_ns() > end_ns) {
            kill(child, SIGKILL);
            while (waitpid(child, status, 0) < 0 && errno == EINTR) {
            }
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

/* What it says goes to `complaints`. */
static int run(FILE *script, FILE *complaints, struct err *err) {
    if (fflush(script) != 0 || ferror(script) || fseek(script, 0, SEEK_SET) != 0 ||
        lseek(fileno(script), 0, SEEK_SET) != 0) {
        return err_world(err, "cannot write a temporary file for gnuplot: %s", strerror(errno));
    }
    pid_t child = start(fileno(script), fileno(complaints));
    int status = 0, failed = 0;
    if (child < 0) {
        failed = err_world(err, "cannot start gnuplot: %s", strerror(errno));
    } else if (!await(child, &status)) {
        failed = err_world(err, "gnuplot did not end within %d s and was stopped", gnuplot_most_s);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_ABSENT) {
        failed =
            err_world(err, "gnuplot is not in PATH: install the package gnuplot-nox (Debian) or "
                           "gnuplot (others) to draw figures");
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char complaint[512];
        find_complaint(complaints, complaint, sizeof complaint);
        failed = err_world(err, "gnuplot failed: %s", complaint);
    }
    return failed;
}

int gnuplot_run(FILE *script, struct err *err) {
    FILE *complaints = tmpfile();
    if (complaints == NULL) {
        return err_world(err, "cannot make a temporary file for gnuplot: %s", strerror(errno));
    }
    int failed = run(script, complaints, err);
    fclose(complaints);
    return failed;
}

/* ---- what it can draw ---- */

/* The best terminal first: GD's PNG has no smooth lines, pdflib's PDF no UTF-8. */
static const char *const terminals[][3] = {[GNUPLOT_SVG] = {"svg", NULL},
                                           [GNUPLOT_PNG] = {"pngcairo", "png", NULL},
                                           [GNUPLOT_PDF] = {"pdfcairo", "pdf", NULL}};
enum { N_FORMATS = sizeof terminals / sizeof terminals[0], WORDS_CHARS = 4096 };
static const char *chosen[N_FORMATS];

/* Where gnuplot does not answer, the best: who draws hears why. */
static void choose(void) {
    char words[WORDS_CHARS] = " ";
    FILE *script = tmpfile(), *answer = tmpfile();
    struct err err = {0};
    if (script != NULL && answer != NULL && fputs("print GPVAL_TERMINALS\n", script) >= 0 &&
        run(script, answer, &err) == 0) {
        rewind(answer);
        size_t n = fread(words + 1, 1, sizeof words - 3, answer);
        words[n + 1] = '\0';
        words[strcspn(words, "\n")] = ' ';
    }
    bool has_answered = strlen(words) > 1;
    for (int i = 0; i < N_FORMATS; i++) {
        for (int t = 0; terminals[i][t] != NULL && chosen[i] == NULL; t++) {
            char word[32];
            snprintf(word, sizeof word, " %s ", terminals[i][t]);
            chosen[i] = !has_answered || strstr(words, word) != NULL ? terminals[i][t] : NULL;
        }
    }
    if (script != NULL) {
        fclose(script);
    }
    if (answer != NULL) {
        fclose(answer);
    }
}

static const char *terminal_of(enum gnuplot_format format) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen[format];
}

bool gnuplot_has(enum gnuplot_format format) {
    return terminal_of(format) != NULL;
}

void gnuplot_set_output(FILE *script, const char *path, enum gnuplot_format format, int width,
                        int height, const char *font) {
    const char *terminal = terminal_of(format);
    /* A size is of pixels in the SVG. Cairo takes it for points at 96 pixels to an inch, of which the
     * PNG has twice as many as the SVG (2 * 72 / 96) and the PDF 72 (0.75 * 72 / 96). */
    font = font != NULL ? font : "sans-serif";
    fputs("reset\nset encoding utf8\n", script);
    switch (format) {
    case GNUPLOT_SVG:
        fprintf(script,
                "set terminal %s noenhanced background '#ffffff' size %d,%d "
                "font '%s,12'\n",
                terminal, width, height, font);
        break;
    case GNUPLOT_PNG:
        fprintf(script,
                "set terminal %s noenhanced background '#ffffff' size %d,%d "
                "font '%s,12' fontscale 1.5 linewidth 2%s\n",
                terminal, 2 * width, 2 * height, font,
                strcmp(terminal, "png") == 0 ? "" : " pointscale 2");
        break;
    case GNUPLOT_PDF:
        fprintf(script,
                "set terminal %s noenhanced size %.4fin,%.4fin font '%s,12' "
                "fontscale 0.5625\n",
                terminal, width / 96.0, height / 96.0, font);
        break;
    }
    fputs("set output ", script);
    gnuplot_quote(script, path);
    fputc('\n', script);
}

bool gnuplot_is_whole(const char *path, enum gnuplot_format format) {
    static const char *const ends[] = {
        [GNUPLOT_SVG] = "</svg>", [GNUPLOT_PNG] = "IEND", [GNUPLOT_PDF] = "%%EOF"};
    char tail[32] = "";
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    size_t n = fseek(file, 1 - (long)sizeof tail, SEEK_END) == 0
                   ? fread(tail, 1, sizeof tail - 1, file)
                   : 0;
    fclose(file);
    return memmem(tail, n, ends[format], strlen(ends[format])) != NULL;
}
