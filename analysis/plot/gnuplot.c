#include "analysis/plot/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/monotonic.h"

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

void gnuplot_set_output(FILE *script, const char *path, enum gnuplot_format format, int width,
                        int height) {
    fputs("reset\nset encoding utf8\n", script);
    switch (format) {
    case GNUPLOT_SVG:
        fprintf(script,
                "set terminal svg noenhanced background '#ffffff' size %d,%d "
                "font 'sans-serif,12'\n",
                width, height);
        break;
    case GNUPLOT_PNG:
        fprintf(script,
                "set terminal pngcairo noenhanced background '#ffffff' size %d,%d "
                "font 'sans-serif,10' fontscale 2 linewidth 2 pointscale 2\n",
                2 * width, 2 * height);
        break;
    case GNUPLOT_PDF:
        /* The SVG's sizes, in pixels, are points at 96 to an inch; without a word it is half. */
        fprintf(script,
                "set terminal pdfcairo noenhanced size %.4fin,%.4fin font 'sans-serif,12' "
                "fontscale 0.75\n",
                width / 96.0, height / 96.0);
        break;
    }
    fputs("set output ", script);
    gnuplot_quote(script, path);
    fputc('\n', script);
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
        if (*text == '\0') {
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
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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

int gnuplot_run(FILE *script, struct err *err) {
    if (fflush(script) != 0 || ferror(script) || fseek(script, 0, SEEK_SET) != 0 ||
        lseek(fileno(script), 0, SEEK_SET) != 0) {
        return err_world(err, "cannot write a temporary file for gnuplot: %s", strerror(errno));
    }
    FILE *complaints = tmpfile();
    if (complaints == NULL) {
        return err_world(err, "cannot make a temporary file for gnuplot: %s", strerror(errno));
    }
    pid_t child = start(fileno(script), fileno(complaints));
    int status = 0, failed = 0;
    if (child < 0) {
        failed = err_world(err, "cannot start gnuplot: %s", strerror(errno));
    } else if (!await(child, &status)) {
        failed = err_world(err, "gnuplot did not end within %d s and was stopped", gnuplot_most_s);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_ABSENT) {
        failed = err_world(err, "gnuplot is not in PATH: install the package gnuplot-nox (or "
                                "gnuplot) to draw figures");
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char complaint[512];
        find_complaint(complaints, complaint, sizeof complaint);
        failed = err_world(err, "gnuplot failed: %s", complaint);
    }
    fclose(complaints);
    return failed;
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
