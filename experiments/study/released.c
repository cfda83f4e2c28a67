#include "experiments/study/released.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/condition.h"
#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"

static const char ending[] = "-published";

static int is_it(void *state, const char *name, const char *doc) {
    (void)doc;
    return strcmp(name, state) == 0;
}

static void take(const struct config *config, const char *name, const char *key, char *out,
                 size_t size) {
    const struct config_entry *entry = config_find(config, name, key);
    snprintf(out, size, "%s", entry != NULL ? entry->value : "");
}

int released_named(const char *name, struct released *out, struct err *err) {
    struct config config;
    char path[1024], published[2 * RELEASED_NAME_CHARS];
    *out = (struct released){.is_published = false};
    data_path(path, sizeof path, "experiments/study/released.ini");
    if (config_read(path, &config, err) != 0) {
        return err_status(err);
    }
    take(&config, name, "program", out->program, sizeof out->program);
    take(&config, name, "command", out->command, sizeof out->command);
    take(&config, name, "file", out->file, sizeof out->file);
    take(&config, name, "near", out->near, sizeof out->near);
    config_fini(&config);
    out->is_published = out->program[0] != '\0' || strstr(name, ending) != NULL;
    snprintf(published, sizeof published, "%.*s%s", RELEASED_NAME_CHARS, name, ending);
    if (!out->is_published && out->near[0] == '\0' && system_list(is_it, published, err) == 1) {
        snprintf(out->near, sizeof out->near, "%.*s", RELEASED_NAME_CHARS - 1, published);
    }
    return (int)err->kind;
}

/* The first base that the file does not have itself; "": the system has none. */
static int find_base(const char *name, const char *systems_path, char *out, size_t size,
                     struct err *err) {
    enum { MOST_BASES = 8 };
    struct config config;
    out[0] = '\0';
    if (config_read(systems_path, &config, err) != 0) {
        return err_status(err);
    }
    for (int depth = 0; depth < MOST_BASES; depth++) {
        const struct config_entry *base = config_find(&config, depth == 0 ? name : out, "base");
        if (base == NULL) {
            break;
        }
        snprintf(out, size, "%s", base->value);
    }
    config_fini(&config);
    return 0;
}

int released_based(const char *name, const char *systems_path, struct released *out,
                   struct err *err) {
    char base[RELEASED_NAME_CHARS];
    struct released of_base;
    int status = released_named(name, out, err);
    if (status != 0 || systems_path == NULL || out->is_published || out->near[0] != '\0') {
        return status;
    }
    status = find_base(name, systems_path, base, sizeof base, err);
    if (status == 0 && base[0] != '\0') {
        status = released_named(base, &of_base, err);
        memcpy(out->near, of_base.is_published ? base : of_base.near, sizeof out->near);
    }
    return status;
}

int released_lacks(const char *name, const struct feature **out, struct err *err) {
    const struct system_request request = {.system = name, .gpu = "h200", .roofline = true};
    struct system *system = NULL;
    const int status = system_open(&request, &system, err);
    *out = status == 0 ? feature_lacked(system, WHERE_CUDA) : NULL;
    system_close(system);
    return status;
}

/* What a line says of the systems that it names. */
enum line { RUN_LIVE, AS_DESIGNED, PUBLISHED, LINES };

static const char *const begins[LINES] = {"designs", "designs", "published"};
static const char *const says[LINES] = {
    "no released programs, on our own runtime",
    "no released programs, simulated only as shipped (`unmask list systems` says why)",
    "stand for released programs, simulated only"};

/* A system that is named, or LINES: it is not shipped, cannot be read, or was named before. */
struct named {
    enum line line;
    char near[RELEASED_NAME_CHARS];
};

static void look_at(const char *name, struct named *out) {
    struct err err = {0};
    struct released released;
    const struct feature *lacked = NULL;
    *out = (struct named){.line = LINES};
    if (system_list(is_it, (void *)(uintptr_t)name, &err) != 1 ||
        released_named(name, &released, &err) != 0 ||
        (!released.is_published && released_lacks(name, &lacked, &err) != 0)) {
        return;
    }
    out->line = released.is_published ? PUBLISHED : lacked != NULL ? AS_DESIGNED : RUN_LIVE;
    memcpy(out->near, released.near, sizeof out->near);
}

/* A line of those of which it says the same. Of designs also what was released. */
static void print_those(const char *const *systems, const struct named *named, size_t n,
                        enum line line, FILE *out) {
    char near[16 * RELEASED_NAME_CHARS] = "";
    size_t n_named = 0;
    for (size_t i = 0; i < n; i++) {
        if (named[i].line != line) {
            continue;
        }
        if (n_named == 0) {
            fprintf(out, "%-13s", begins[line]);
        }
        fprintf(out, "%s%s", n_named > 0 ? ", " : "", systems[i]);
        n_named++;
        size_t used = strlen(near);
        if (named[i].near[0] != '\0' && strstr(near, named[i].near) == NULL) {
            snprintf(near + used, sizeof near - used, "%s%s", used > 0 ? ", " : "", named[i].near);
        }
    }
    if (n_named > 0) {
        bool has_near = line != PUBLISHED && near[0] != '\0';
        fprintf(out, ": %s%s%s\n", says[line], has_near ? "; nearest released: " : "",
                has_near ? near : "");
    }
}

void released_print(const char *const *systems, size_t n, FILE *out) {
    struct named *named = mem_zeroed(n, sizeof *named);
    for (size_t i = 0; i < n; i++) {
        bool is_again = systems[i] == NULL;
        for (size_t k = 0; !is_again && k < i; k++) {
            is_again = systems[k] != NULL && strcmp(systems[k], systems[i]) == 0;
        }
        named[i].line = LINES;
        if (!is_again) {
            look_at(systems[i], &named[i]);
        }
    }
    for (int line = 0; line < LINES; line++) {
        print_those(systems, named, n, (enum line)line, out);
    }
    free(named);
}

/* The model's name on Hugging Face, that for these blocks first, or ours where it has none there.
 */
static int name_checkpoint(const struct system *system, char *out, size_t size, struct err *err) {
    struct config config;
    char path[1024], of_blocks[RELEASED_NAME_CHARS + 16];
    data_path(path, sizeof path, "experiments/study/released.ini");
    if (config_read(path, &config, err) != 0) {
        return err_status(err);
    }
    const char *name = system->model->name;
    snprintf(of_blocks, sizeof of_blocks, "%.*s %u", RELEASED_NAME_CHARS, name,
             system->settings.block_tokens);
    take(&config, "checkpoints", of_blocks, out, size);
    if (out[0] == '\0') {
        take(&config, "checkpoints", name, out, size);
    }
    if (out[0] == '\0') {
        snprintf(out, size, "%s", name);
    }
    config_fini(&config);
    return 0;
}

/* What {KEY} or {KEY=VALUE:TEXT} stands for; `word` begins after the bracket. */
static void put_value(const struct system *system, const char *checkpoint, const char *word,
                      size_t length, char *out, size_t size) {
    const struct system_in in = {system, "sim"};
    char name[64], text[FACT_CHARS] = "";
    const size_t key = strcspn(word, "=}"), value = strcspn(word, ":}");
    snprintf(name, sizeof name, "%.*s", (int)key, word);
    const char *is = strcmp(name, "checkpoint") == 0 ? checkpoint : system_in_fact(&in, name, text);
    is = is != NULL ? is : "";
    double number;
    if (num_f64(is, &number)) {
        snprintf(text, sizeof text, "%.9g", number);
        is = text;
    }
    if (key == length) {
        snprintf(out, size, "%s", is);
    } else if (strlen(is) == value - key - 1 && strncmp(is, word + key + 1, strlen(is)) == 0) {
        snprintf(out, size, "%.*s", (int)(length - value - 1), word + value + 1);
    }
}

/* Every {KEY} of a text as the system has it, its lines as one. */
static void fill(const struct system *system, const char *checkpoint, char text[RELEASED_CHARS]) {
    char filled[RELEASED_CHARS] = "";
    size_t used = 0;
    for (const char *c = text; *c != '\0' && used + 1 < sizeof filled;) {
        const size_t length = *c == '{' ? strcspn(c, "}") - 1 : 0;
        if (*c == '{') {
            put_value(system, checkpoint, c + 1, length, filled + used, sizeof filled - used);
            used += strlen(filled + used);
            c += length + 2;
        } else {
            filled[used++] = *c == '\n' ? ' ' : *c;
            c++;
        }
    }
    memcpy(text, filled, sizeof filled);
}

int released_of(const struct system *system, const char *systems_path, struct released *out,
                struct err *err) {
    char checkpoint[1024];
    if (released_based(system->name, systems_path, out, err) != 0 ||
        name_checkpoint(system, checkpoint, sizeof checkpoint, err) != 0) {
        return err_status(err);
    }
    fill(system, checkpoint, out->command);
    fill(system, checkpoint, out->file);
    return 0;
}
