/* manual WHAT: prints a page or script of manual.h; `manual pages` lists the man pages. */
#include "experiments/package/manual.h"

#include <string.h>

static int print_page(const char *name) {
    if (strcmp(name, "unmask") == 0) {
        manual_page(NULL, stdout);
        return 0;
    }
    for (size_t i = 0; commands[i] != NULL; i++) {
        char page[64] = "unmask-";
        strncat(page, commands[i]->name, sizeof page - sizeof "unmask-");
        for (char *space = strchr(page, ' '); space != NULL; space = strchr(space, ' ')) {
            *space = '-';
        }
        if (strcmp(page, name) == 0) {
            manual_page(commands[i], stdout);
            return 0;
        }
    }
    fprintf(stderr, "manual: there is no page '%s'\n", name);
    return ERR_USAGE;
}

static void list_pages(FILE *out) {
    fprintf(out, "unmask\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "unmask-");
        for (const char *c = commands[i]->name; *c != '\0'; c++) {
            fputc(*c == ' ' ? '-' : *c, out);
        }
        fputc('\n', out);
    }
}

static const struct {
    const char *name;
    void (*print)(FILE *out);
} parts[] = {
    {"commands", manual_commands},   {"keys", manual_keys},
    {"features", manual_features},   {"fields", manual_fields},
    {"endpoints", manual_endpoints}, {"pages", list_pages},
    {"bash", manual_bash},           {"zsh", manual_zsh},
    {"fish", manual_fish},           {"python", manual_python},
    {"groups", manual_groups},       {"cautions", manual_cautions},
};

int main(int argc, char **argv) {
    int status = ERR_USAGE;
    if (argc == 3 && strcmp(argv[1], "page") == 0) {
        status = print_page(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "group") == 0 && manual_group(argv[2], stdout)) {
        status = 0;
    }
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].print(stdout);
            status = 0;
        }
    }
    if (status != 0) {
        fprintf(stderr,
                "usage: manual commands|groups|group NAME|keys|features|cautions|fields|endpoints|"
                "pages|page NAME|bash|zsh|fish|python\n");
    }
    return fflush(stdout) != 0 ? ERR_WORLD : status;
}
