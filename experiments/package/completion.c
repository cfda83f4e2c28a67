/* Completion for bash, zsh and fish. */
#include <string.h>

#include "experiments/package/manual.h"

const char *manual_values(const struct option *option) {
    static const char *const words[][2] = {
        {"system", "systems"},
        {"systems", "systems"},
        {"model", "models"},
        {"models", "models"},
        {"gpu", "gpus"},
        {"gpus", "gpus"},
        {"scheduler", "schedulers"},
        {"cache", "caches"},
        {"decoder", "decoders"},
        {"router", "routers"},
        {"planner", "planners"},
        {"runtime", "runtimes"},
        {"host", "hosts"},
        {"workload", "workloads"},
        {"workloads", "workloads"},
        {"arrivals", "arrivals"},
        {"process", "confidences"},
    };
    for (size_t i = 0; option->value != NULL && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(option->name, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return NULL;
}

bool manual_is_path(const struct option *option) {
    static const char *const paths[] = {"FILE", "FOLDER", "PATH", "DIR", NULL};
    for (size_t i = 0; option->value != NULL && paths[i] != NULL; i++) {
        if (strstr(option->value, paths[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static const char *dashes(const struct option *option) {
    return option->name[1] == '\0' ? "-" : "--";
}

/* "run) echo '--system ...' ;;" for each command. */
static void options_by_command(FILE *out) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "    '%s') echo '", commands[i]->name);
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                fprintf(out, "%s%s ", dashes(o), o->name);
            }
        }
        fprintf(out, "--help' ;;\n");
    }
}

/* "--system) echo systems ;;" for each option that names something. */
static void values_by_option(FILE *out) {
    const char *seen[256] = {NULL};
    size_t n = 0;
    for (size_t i = 0; commands[i] != NULL; i++) {
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                size_t s = 0;
                while (s < n && strcmp(seen[s], o->name) != 0) {
                    s++;
                }
                const char *list = manual_values(o);
                if (s == n && n < sizeof seen / sizeof seen[0] && list != NULL) {
                    seen[n++] = o->name;
                    fprintf(out, "    %s%s) echo %s ;;\n", dashes(o), o->name, list);
                }
            }
        }
    }
}

/* Whether no command before the i-th begins with the same word, of `*length` characters. */
static bool is_first_of_word(size_t i, size_t *length) {
    *length = strcspn(commands[i]->name, " ");
    for (size_t k = 0; k < i; k++) {
        if (strcspn(commands[k]->name, " ") == *length &&
            strncmp(commands[k]->name, commands[i]->name, *length) == 0) {
            return false;
        }
    }
    return true;
}

/* "plan) echo 'lmax latency ...' ;;" for each word that begins commands of two words. */
static void verbs_by_noun(FILE *out) {
    for (size_t i = 0, length; commands[i] != NULL; i++) {
        if (!is_first_of_word(i, &length)) {
            continue;
        }
        bool has_verb = false;
        for (size_t k = i; commands[k] != NULL; k++) {
            if (strncmp(commands[k]->name, commands[i]->name, length) == 0 &&
                commands[k]->name[length] == ' ') {
                if (!has_verb) {
                    fprintf(out, "    %.*s) echo '", (int)length, commands[i]->name);
                }
                has_verb = true;
                fprintf(out, "%s ", commands[k]->name + length + 1);
            }
        }
        fprintf(out, has_verb ? "' ;;\n" : "");
    }
}

/* Functions that POSIX shells share: a command's options, what an option names, names of things. */
static void functions(FILE *out) {
    fprintf(out, "_unmask_options() {\n    case \"$1\" in\n");
    options_by_command(out);
    fprintf(out, "    esac\n}\n_unmask_what() {\n    case \"$1\" in\n");
    values_by_option(out);
    fprintf(out, "    esac\n}\n_unmask_names() {\n"
                 "    unmask list \"$1\" 2>/dev/null | sed -n '1d;/^$/q;s/ .*//p'\n}\n"
                 "_unmask_commands='");
    for (size_t i = 0, length; commands[i] != NULL; i++) {
        if (is_first_of_word(i, &length)) {
            fprintf(out, "%.*s ", (int)length, commands[i]->name);
        }
    }
    fprintf(out, "'\n_unmask_verbs() {\n    case \"$1\" in\n");
    verbs_by_noun(out);
    fprintf(out, "    list) unmask list 2>/dev/null | grep -E '^[a-z]+$' ;;\n"
                 "    figure) _unmask_names experiments ;;\n    esac\n}\n");
}

void manual_bash(FILE *out) {
    fprintf(out, "# bash completion for unmask, made from its option tables\n");
    functions(out);
    fprintf(
        out, "%s",
        "_unmask() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} what\n"
        "    local command=${COMP_WORDS[1]}\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"$_unmask_commands --help --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \" $(_unmask_verbs \"$command\") \" in\n"
        "    *\" ${COMP_WORDS[2]} \"*) [ -n \"$(_unmask_options \"$command ${COMP_WORDS[2]}\")\" ] "
        "&&\n"
        "        command=\"$command ${COMP_WORDS[2]}\" ;;\n"
        "    esac\n"
        "    what=$(_unmask_what \"$before\")\n"
        "    if [ -n \"$what\" ]; then\n"
        "        local first=\n"
        "        case $word in *,*) first=${word%,*}, ;; esac\n"
        "        COMPREPLY=($(compgen -P \"$first\" -W \"$(_unmask_names \"$what\")\" -- "
        "\"${word##*,}\"))\n"
        "    elif [ \"${word#-}\" != \"$word\" ]; then\n"
        "        COMPREPLY=($(compgen -W \"$(_unmask_options \"$command\")\" -- \"$word\"))\n"
        "    elif [ \"$COMP_CWORD\" = 2 ]; then\n"
        "        COMPREPLY=($(compgen -W \"$(_unmask_verbs \"$command\")\" -- \"$word\"))\n"
        "    fi\n"
        "}\n"
        "complete -o bashdefault -o default -F _unmask unmask\n");
}

/* Brackets, colons and quotes have a meaning of their own in zsh's specifications. */
static void zsh_text(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fprintf(out, "'\\''");
        } else {
            fprintf(out, strchr("[]:\\", *text) != NULL ? "\\%c" : "%c", *text);
        }
    }
}

static void zsh_option(const struct option *o, FILE *out) {
    fprintf(out, " \\\n            '%s%s%s[", o->repeats ? "*" : "", dashes(o), o->name);
    zsh_text(o->doc, out);
    fprintf(out, "]");
    if (o->value != NULL) {
        fprintf(out, ":");
        zsh_text(o->value, out);
        const char *list = manual_values(o);
        if (list != NULL) {
            fprintf(out, ":_unmask_list %s", list);
        } else {
            fprintf(out, manual_is_path(o) ? ":_files" : ": ");
        }
    }
    fprintf(out, "'");
}

void manual_zsh(FILE *out) {
    fprintf(out, "#compdef unmask\n# zsh completion for unmask, made from its option tables\n");
    functions(out);
    fprintf(out, "%s",
            "_unmask_list() {\n"
            "    local -a names=(${(f)\"$(_unmask_names $1)\"})\n"
            "    _values -s , $1 $names\n"
            "}\n"
            "_unmask() {\n"
            "    local name=$words[2]\n"
            "    if (( CURRENT == 2 )); then\n"
            "        compadd -- ${=_unmask_commands} --help --version\n"
            "        return\n"
            "    fi\n"
            "    if (( CURRENT == 3 )) && [[ $words[3] != -* ]]; then\n"
            "        compadd -- $(_unmask_verbs $name)\n"
            "    fi\n"
            "    [[ -n $(_unmask_options \"$name $words[3]\") ]] && name=\"$name $words[3]\"\n"
            "    case $name in\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "    '%s')\n        _arguments '*:file:_files'", commands[i]->name);
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                zsh_option(o, out);
            }
        }
        fprintf(out, " \\\n            '--help[print this]' ;;\n");
    }
    fprintf(out, "    esac\n}\n_unmask \"$@\"\n");
}

static void fish_text(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static void fish_option(const char *condition, const struct option *o, FILE *out) {
    fprintf(out, "complete -c unmask -n '%s' %s %s", condition, o->name[1] == '\0' ? "-s" : "-l",
            o->name);
    if (o->value != NULL) {
        const char *list = manual_values(o);
        if (list != NULL) {
            fprintf(out, " -x -a '(__unmask_names %s)'", list);
        } else {
            fprintf(out, manual_is_path(o) ? " -r -F" : " -x");
        }
    }
    fprintf(out, " -d '");
    fish_text(o->doc, out);
    fprintf(out, "'\n");
}

void manual_fish(FILE *out) {
    fprintf(out, "%s",
            "# fish completion for unmask, made from its option tables\n"
            "function __unmask_names\n"
            "    unmask list $argv[1] 2>/dev/null | sed -n '1d;/^$/q;s/ .*//p'\n"
            "end\n"
            "complete -c unmask -f\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        const char *name = commands[i]->name, *verb = strchr(name, ' ');
        int noun = (int)strcspn(name, " ");
        char condition[192];
        if (verb == NULL) {
            snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", name);
            fprintf(out, "complete -c unmask -n __fish_use_subcommand -a %s -d '", name);
        } else {
            snprintf(condition, sizeof condition,
                     "__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s", noun,
                     name, verb + 1);
            fprintf(out, "complete -c unmask -n '__fish_seen_subcommand_from %.*s' -a %s -d '",
                    noun, name, verb + 1);
        }
        fish_text(commands[i]->doc, out);
        fprintf(out, "'\n");
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                fish_option(condition, o, out);
            }
        }
    }
    fprintf(out, "complete -c unmask -n '__fish_seen_subcommand_from figure' -a "
                 "'(__unmask_names experiments)'\n");
}
