/* What commands print does not change unseen: every command in its forms and with what it refuses,
 * as the files of tests/golden/cli/commands keep it. Who means to change it renews them (make
 * golden). A file has lines that begin so, what is printed follows them:
 *   $ run --system sdar       a command, whose words are between blanks or two quotes
 *   $ write grid.ini          a file of the scratch folder, whose lines follow behind "| "
 *   $ unpack a.tar.gz b.csv   a file of an archive of tests/golden, as TMP/b.csv
 *   $ show TMP/rows.csv       the lines of a file that a command has written, of .svg its texts
 * TMP stands for the scratch folder, FIXED for the systems that no shipped file changes. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "sim/base/mem.h"
#include "tests/support/archive.h"
#include "tests/support/cli.h"
#include "tests/support/kept.h"

/* TMP: of the commands of one file. */
static char folder[128];

enum { MOST_LINES = 48 }; /* of an output; of what follows a digest is kept */

static struct output run_line(const char *line, size_t length) {
    static char room[CLI_MOST_ARGS][256];
    const char *words[CLI_MOST_ARGS + 1] = {NULL};
    const char *end = line + length;
    size_t n = 0;
    while (line < end) {
        const bool is_quoted = *line == '\'';
        line += is_quoted;
        size_t used = strcspn(line, is_quoted ? "'" : " \n");
        ck_assert_uint_lt(n, CLI_MOST_ARGS);
        const bool is_there = strncmp(line, "TMP/", 4) == 0;
        snprintf(room[n], sizeof room[n], "%s%.*s", is_there ? folder : "",
                 (int)(used - (is_there ? 3 : 0)), line + (is_there ? 3 : 0));
        words[n] = strcmp(room[n], "FIXED") == 0 ? "tests/golden/cli/systems.ini" : room[n];
        n++;
        line += used + is_quoted;
        line += line < end;
    }
    return cli_run(&(const struct child){.data = "."}, words);
}

/* ---- what is kept of an output ---- */

struct printed {
    FILE *out;
    size_t n;        /* lines so far */
    uint64_t digest; /* of those that are too many */
    char depth[64];  /* what closes the object that is left out; "": none is */
};

static bool has_prefix(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What changes with the build or the clock: its identity, and how long a command took. */
static bool is_left_out(struct printed *printed, const char *line, const char *text) {
    const size_t blanks = strspn(line, " ");
    if (printed->depth[0] != '\0') {
        if (has_prefix(line, printed->depth)) {
            printed->depth[0] = '\0';
        }
        return true;
    }
    if (has_prefix(line + blanks, "\"identity\": {")) {
        ck_assert_uint_lt(blanks + 1, sizeof printed->depth);
        snprintf(printed->depth, sizeof printed->depth, "%*s}", (int)blanks, "");
        return true;
    }
    const char *took = strstr(line, " in ");
    return has_prefix(line, "identity ") || has_prefix(line + blanks, "\"digest\"") ||
           (has_prefix(line, "planner ") && line[strlen(line) - 1] == 's') ||
           (has_prefix(line, "unmask: ") && isdigit((unsigned char)line[8]) && took != NULL &&
            text[strlen(text) - 1] == 's' && isdigit((unsigned char)took[4]));
}

/* Behind an object that begins at `at`. */
static const char *skip_object(const char *at) {
    int depth = 0;
    do {
        depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
        at++;
    } while (depth > 0 && *at != '\0');
    return at;
}

/* With TMP for the folder, without identities on one line and with # for what is a digest. */
static void put_words(FILE *out, const char *line) {
    static const char member[] = "\"identity\":{", build[] = "build = ", json[] = "build\":\"";
    const size_t length = strlen(folder);
    for (const char *at = line; *at != '\0';) {
        const size_t n_hex = strspn(at, "0123456789abcdef");
        if (strncmp(at, folder, length) == 0) {
            fputs("TMP", out);
            at += length;
        } else if (strncmp(at, member, sizeof member - 1) == 0) {
            at = skip_object(at + sizeof member - 2);
        } else if (has_prefix(at, "\"identity.build.")) {
            at += strcspn(at, ",}");
        } else if (has_prefix(at, build) || has_prefix(at, json)) {
            /* VERSION DIGEST, which may be of decimal digits alone; both begin as long */
            const size_t before = sizeof build + strcspn(at + sizeof build - 1, " ");
            fprintf(out, "%.*s#", (int)before, at);
            at += before;
            at += strspn(at, "0123456789abcdef");
        } else if (n_hex >= 12 && strspn(at, "0123456789") < n_hex) {
            fputc('#', out);
            at += n_hex;
        } else {
            const size_t n = n_hex > 0 ? n_hex : 1;
            fprintf(out, "%.*s", (int)n, at);
            at += n;
        }
    }
}

static void put_line(struct printed *printed, const char *text, size_t length) {
    char *line = strndup(text, length), *kept;
    size_t size;
    FILE *out = mem_stream(&kept, &size);
    put_words(out, line);
    mem_stream_close(out);
    if (!is_left_out(printed, kept, kept)) {
        if (printed->n++ < MOST_LINES) {
            fprintf(printed->out, "%s\n", kept);
        } else {
            for (size_t i = 0; i <= size; i++) {
                printed->digest =
                    (printed->digest ^ (unsigned char)kept[i]) * UINT64_C(0x100000001b3);
            }
        }
    }
    free(kept);
    free(line);
}

static void put_output(FILE *out, const char *text) {
    struct printed printed = {.out = out, .digest = UINT64_C(0xcbf29ce484222325)};
    for (size_t n; *text != '\0'; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        put_line(&printed, text, n);
    }
    if (printed.n > MOST_LINES) {
        fprintf(out, "and %zu lines more, %016" PRIx64 "\n", printed.n - MOST_LINES,
                printed.digest);
    }
}

/* What a drawing says, without where it stands, and without tics and what is gnuplot's own. */
static void put_drawn(FILE *out, const char *text) {
    for (const char *at = text; (at = strchr(at, '>')) != NULL;) {
        const size_t n = strcspn(++at, "<");
        if (strspn(at, " \t\n") == 0 && n > 0 && !has_prefix(at, "gnuplot") &&
            !has_prefix(at, "Gnuplot") && !has_prefix(at, "Produced by")) {
            fprintf(out, "%.*s\n", (int)n, at);
        }
    }
}

/* ---- the files ---- */

static const char *path_of(const char *line, size_t length) {
    static char path[512];
    const size_t n = has_prefix(line, "TMP/") ? strlen("TMP") : 0;
    snprintf(path, sizeof path, "%s%.*s", n > 0 ? folder : "", (int)(length - n), line + n);
    return path;
}

/* A line of a file, with the folder for TMP. */
static void write_line(FILE *file, const char *line, const char *end) {
    for (const char *at = line; at < end; at++) {
        const bool is_folder = has_prefix(at, "TMP/");
        fputs(is_folder ? folder : "", file);
        at += is_folder ? strlen("TMP") : 0;
        fputc(*at, file);
    }
    fputc('\n', file);
}

/* Writes the lines behind "| " and returns where they end. */
static const char *take_file(FILE *out, const char *path, const char *at) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    while (has_prefix(at, "| ") || has_prefix(at, "|\n")) {
        const size_t length = strcspn(at, "\n");
        fprintf(out, "%.*s\n", (int)length, at);
        write_line(file, at + (length > 1 ? 2 : 1), at + length);
        at += length + (at[length] == '\n');
    }
    ck_assert_int_eq(fclose(file), 0);
    return at;
}

static void do_line(FILE *out, const char *line, size_t length, const char **rest) {
    fprintf(out, "$ %.*s\n", (int)length, line);
    if (has_prefix(line, "write ")) {
        *rest = take_file(out, path_of(line + 6, length - 6), *rest);
    } else if (has_prefix(line, "unpack ")) {
        char archive[64], name[64], path[128], copy[256];
        ck_assert_int_eq(sscanf(line, "unpack %63s %63s", archive, name), 2);
        snprintf(path, sizeof path, "tests/golden/%s", archive);
        snprintf(copy, sizeof copy, "%s/%s", folder, name);
        archive_extract(path, name, copy);
    } else if (has_prefix(line, "show ")) {
        const char *path = path_of(line + 5, length - 5);
        char *text = access(path, R_OK) == 0 ? scratch_read(path) : strdup("no such file\n");
        const bool is_drawn = strcmp(path + strlen(path) - 4, ".svg") == 0;
        (is_drawn ? put_drawn : put_output)(out, text);
        free(text);
    } else {
        struct output output = run_line(line, length);
        if (output.status != 0) {
            fprintf(out, "status %d\n", output.status);
        }
        put_output(out, output.out);
        put_output(out, output.err);
        output_free(&output);
    }
}

static void check_commands(const char *name) {
    char path[128], *now;
    size_t size;
    snprintf(path, sizeof path, "tests/golden/cli/commands/%s.txt", name);
    char *kept = scratch_read(path);
    FILE *out = mem_stream(&now, &size);
    ck_assert_ptr_nonnull(freopen("/dev/null", "r", stdin));
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    for (const char *at = kept; *at != '\0';) {
        const char *line = at;
        const size_t length = strcspn(at, "\n");
        at += length + (at[length] == '\n');
        if (has_prefix(line, "$ ")) {
            do_line(out, line + 2, length - 2, &at);
        }
    }
    mem_stream_close(out);
    kept_same(path, now);
    free(kept);
    free(now);
}

TEST(runs_print_what_was_kept) {
    check_commands("runs");
}

TEST(refusals_print_what_was_kept) {
    check_commands("refusals");
}

TEST(comparisons_print_what_was_kept) {
    check_commands("comparisons");
}

TEST(sweeps_print_what_was_kept) {
    check_commands("sweeps");
}

TEST(capacities_print_what_was_kept) {
    check_commands("capacities");
}

TEST(plots_print_what_was_kept) {
    check_commands("plots");
}

TEST(steps_print_what_was_kept) {
    check_commands("steps");
}

TEST(plans_print_what_was_kept) {
    check_commands("plans");
}

TEST(traces_print_what_was_kept) {
    check_commands("traces");
}

TEST(servers_print_what_was_kept) {
    check_commands("servers");
}

TEST(studies_print_what_was_kept) {
    check_commands("studies");
}

TEST(reports_print_what_was_kept) {
    check_commands("reports");
}

TEST(drawings_print_what_was_kept) {
    check_commands("drawings");
}

TEST(jobs_print_what_was_kept) {
    check_commands("jobs");
}

TEST(lists_print_what_was_kept) {
    check_commands("lists");
}

TEST(recordings_print_what_was_kept) {
    check_commands("recordings");
}

SUITE("kept_commands")
