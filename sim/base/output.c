#include "sim/base/output.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int output_may_replace(const char *path, const char *head, const char *what, struct err *err) {
    struct stat found;
    if (path[0] == '\0') {
        return err_usage(err, "%s needs the name of a file", what);
    }
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) {
        return 0; /* whatever else is wrong shows when it is opened */
    }
    char start[64] = "";
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        size_t n = fread(start, 1, sizeof start - 1, file);
        start[n] = '\0';
        fclose(file);
    }
    if (strncmp(start, head, strlen(head)) == 0) {
        return 0;
    }
    return err_usage(err, "'%s' exists and is not %s: it is not overwritten", path, what);
}

/* What is being written; more at once than anybody writes. */
enum { MOST_UNFINISHED = 64 };
static _Atomic(const char *) unfinished[MOST_UNFINISHED];

void output_claim(const char *path) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&unfinished[i], &none, path)) {
            return;
        }
    }
}

void output_release(const char *path) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *same = path;
        if (atomic_compare_exchange_strong(&unfinished[i], &same, NULL)) {
            return;
        }
    }
}

void output_abandon(void) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *path = atomic_exchange(&unfinished[i], NULL);
        if (path != NULL) {
            unlink(path);
        }
    }
}

int output_open(const char *path, struct output *out, struct err *err) {
    struct stat found;
    bool replaces = stat(path, &found) != 0 || S_ISREG(found.st_mode);
    *out = (struct output){.path = path};
    if (snprintf(out->beside, sizeof out->beside, "%s%s", path, replaces ? ".part" : "") >=
        (int)sizeof out->beside) {
        return err_usage(err, "'%.60s...' is too long for the name of a file", path);
    }
    out->file = fopen(out->beside, "w");
    if (out->file == NULL) {
        return err_world(err, "cannot write '%s': %s", path, strerror(errno));
    }
    if (replaces) {
        output_claim(out->beside);
    }
    return 0;
}

int output_close(struct output *out, bool keeps, struct err *err) {
    bool is_beside = strcmp(out->beside, out->path) != 0, failed = ferror(out->file) != 0;
    failed = fclose(out->file) != 0 || failed;
    failed = failed || (keeps && is_beside && rename(out->beside, out->path) != 0);
    int cause = errno;
    if (is_beside && (failed || !keeps)) {
        remove(out->beside);
    }
    output_release(out->beside);
    return failed && keeps ? err_world(err, "cannot write '%s': %s", out->path, strerror(cause))
                           : 0;
}

void output_csv_text(FILE *out, const char *text) {
    if (strpbrk(text, ",\"\n\r") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        fputs(*c == '"' ? "\"\"" : (char[]){*c, '\0'}, out);
    }
    fputc('"', out);
}

void output_xml_text(FILE *out, const char *text) {
    static const char special[] = "&<>\"'";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (const char *c = text; *c != '\0'; c++) {
        const char *at = strchr(special, *c);
        fputs(at != NULL ? written[at - special] : (char[]){*c, '\0'}, out);
    }
}
