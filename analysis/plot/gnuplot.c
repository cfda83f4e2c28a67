#include "analysis/plot/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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
        fprintf(script, "set terminal pdfcairo noenhanced size %.4fin,%.4fin font 'sans-serif,8'\n",
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

static int start(int script, int complaints, pid_t *child) {
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) {
        return rc;
    }
    posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1, 0);
    posix_spawn_file_actions_adddup2(&actions, complaints, STDERR_FILENO);
    char name[] = "gnuplot", defaults[] = "-d";
    char *const arguments[] = {name, defaults, NULL};
    rc = posix_spawnp(child, name, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
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
    pid_t child;
    int rc = start(fileno(script), fileno(complaints), &child);
    int status = 0;
    if (rc == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    int failed = 0;
    if (rc == ENOENT) {
        failed = err_world(err, "gnuplot is not in PATH: install the package gnuplot-nox (or "
                                "gnuplot) to draw figures");
    } else if (rc != 0) {
        failed = err_world(err, "cannot start gnuplot: %s", strerror(rc));
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char complaint[512];
        find_complaint(complaints, complaint, sizeof complaint);
        failed = err_world(err, "gnuplot failed: %s", complaint);
    }
    fclose(complaints);
    return failed;
}

int gnuplot_check_output(const char *stem, const char *suffix, struct err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", stem, suffix);
    struct stat status;
    if (stat(path, &status) != 0 || status.st_size == 0) {
        return err_world(err, "gnuplot did not write '%s': is the disk full?", path);
    }
    return 0;
}
