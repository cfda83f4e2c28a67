/* Reference pages in Markdown, man pages in roff. */
#include <string.h>

#include "engine/supported.h"
#include "experiments/package/manual.h"
#include "experiments/serve/api.h"
#include "sim/base/build.h"
#include "sim/base/input/datadir.h"
#include "sim/base/warning.h"
#include "sim/model/gpu.h"
#include "sim/model/model.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/runtime.h"
#include "sim/system/host.h"
#include "sim/system/settings.h"
#include "sim/system/system_reads.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/marks.h"
#include "traces/workload.h"
#include "traces/workload_parts.h"

static const char *dashes(const struct option *option) {
    return option->name[1] == '\0' ? "-" : "--";
}

/* ---- Markdown ---- */

/* A cell of a table: bars and angles stand for themselves. */
static void cell(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        if (strchr("|<>*_", *text) != NULL) {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

/* A doc without its condition, and that one's words. */
static void doc_cell(const char *doc, const char *before, const char *after, FILE *out) {
    char meaning[1024], text[CONDITION_CHARS];
    const char *condition = condition_of(doc, text);
    snprintf(meaning, sizeof meaning, "%.*s", (int)condition_doc_length(doc), doc);
    cell(meaning, out);
    if (condition != NULL) {
        fprintf(out, "%s", before);
        cell(condition, out);
        fprintf(out, "%s", after);
    }
}

/* Paragraphs as they stand; lines that are set in, such as examples, within a fence. */
static void paragraphs(const char *text, FILE *out) {
    bool is_fenced = false;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        bool is_set_in = text[0] == ' ' || (is_fenced && length == 0 && text[1] == ' ');
        if (is_set_in != is_fenced) {
            fprintf(out, is_set_in ? "```text\n" : "```\n");
        }
        is_fenced = is_set_in;
        fprintf(out, "%.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
    fprintf(out, is_fenced ? "```\n" : "");
}

static void command_section(const struct command *c, FILE *out) {
    fprintf(out, "\n## %s\n\n`unmask %s%s%s [OPTION...]`: %s\n\n", c->name, c->name,
            c->words[0] != '\0' ? " " : "", c->words, c->doc);
    if (c->more != NULL) {
        paragraphs(c->more, out);
        fputc('\n', out);
    }
    fprintf(out, "| option | meaning |\n|---|---|\n");
    for (size_t g = 0; c->options[g] != NULL; g++) {
        for (const struct option *o = c->options[g]; o->name != NULL; o++) {
            fprintf(out, "| `%s%s%s%s` | ", dashes(o), o->name, o->value != NULL ? " " : "",
                    o->value != NULL ? o->value : "");
            doc_cell(o->doc, " (read where ", ")", out);
            fprintf(out, " |\n");
        }
    }
}

static size_t group_length(const struct command *command) {
    return strcspn(command->name, " ");
}

/* The first command of each group alone. */
static bool begins_group(size_t i) {
    const size_t n = group_length(commands[i]);
    return i == 0 || n != group_length(commands[i - 1]) ||
           strncmp(commands[i]->name, commands[i - 1]->name, n) != 0;
}

void manual_groups(FILE *out) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (begins_group(i)) {
            fprintf(out, "%.*s\n", (int)group_length(commands[i]), commands[i]->name);
        }
    }
}

bool manual_group(const char *group, FILE *out) {
    bool found = false;
    for (size_t i = 0; commands[i] != NULL; i++) {
        const size_t n = group_length(commands[i]);
        if (n == strlen(group) && strncmp(commands[i]->name, group, n) == 0) {
            if (!found) {
                fprintf(out,
                        "# unmask %s\n\nMade by `make reference` from the program's own tables; "
                        "`unmask %s --help` prints the same. [All commands](../commands.md)\n",
                        group, commands[i]->name);
            }
            found = true;
            command_section(commands[i], out);
        }
    }
    return found;
}

void manual_commands(FILE *out) {
    fprintf(out, "# Commands\n\nMade by `make reference` from the program's own tables; "
                 "`unmask COMMAND --help` prints what its page says.\n\n| command | what it does "
                 "|\n|---|---|\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "| [%s](commands/%.*s.md) | ", commands[i]->name,
                (int)group_length(commands[i]), commands[i]->name);
        cell(commands[i]->doc, out);
        fprintf(out, " |\n");
    }
}

static void key_heading(const char *title, const char *about, FILE *out) {
    fprintf(out,
            "\n## %s\n\n%s\n\n| key | unit | values | initial | meaning | read where "
            "|\n|---|---|---|---|---|---|\n",
            title, about);
}

static void keys(const char *of, const char *prefix, const struct param *params, size_t n,
                 FILE *out) {
    for (size_t i = 0; i < n; i++) {
        const struct param *p = &params[i];
        fprintf(out, "| `%s%s` | %s | ", prefix, p->name, p->unit);
        if (p->type == PARAM_WORD) {
            for (size_t w = 0; p->words[w] != NULL; w++) {
                fprintf(out, "%s%s", w > 0 ? ", " : "", p->words[w]);
            }
        } else if (p->type == PARAM_BOOL) {
            fprintf(out, "on, off");
        } else {
            fprintf(out, "%.10g to %.10g", p->min, p->max);
        }
        fprintf(out, " | %s | %s%s", p->initial != NULL ? p->initial : "must be given", of,
                of[0] != '\0' ? ": " : "");
        doc_cell(p->doc, " | ", "", out);
        fprintf(out, condition_doc_length(p->doc) == strlen(p->doc) ? " | |\n" : " |\n");
    }
}

/* What conditions may name other than keys. */
static void facts(FILE *out) {
    fprintf(out,
            "\n## Facts\n\nWhat conditions may name other than keys. `asked.KEY` is a key as it "
            "was set, before 0 became a number.\n\n| fact | says |\n|---|---|\n"
            "| `backend` | sim, cpu or cuda; step: explain and plan; lmax: plan lmax |\n"
            "| `serves` | on: requests are served (sim, cpu, cuda) |\n"
            "| `priced` | on: all but lmax |\n"
            "| `run.draws` | on: another seed gives another run |\n"
            "| `played` | on: decisions are those of a decode trace (`--decode`) |\n"
            "| `run.answers` | on: workload, decode trace or checkpoint say where texts end |\n");
    for (size_t i = 0; system_fact_doc(i) != NULL; i++) {
        fprintf(out, "| `%s` | ", system_fact_doc(i)->name);
        cell(system_fact_doc(i)->doc, out);
        fprintf(out, " |\n");
    }
    for (size_t i = 0; workload_fact_docs[i].name != NULL; i++) {
        fprintf(out, "| `%s` | ", workload_fact_docs[i].name);
        cell(workload_fact_docs[i].doc, out);
        fprintf(out, " |\n");
    }
}

/* What is named: "scheduler", and where it is read. */
static void choosers(FILE *out) {
    key_heading("Parts", "Keys that choose what a system is put together from.", out);
    for (size_t i = 0; system_part_at(i) != NULL; i++) {
        fprintf(out, "| `%s` | 1 | a name | | ", system_part_at(i));
        doc_cell(system_part_doc(system_part_at(i)), " | ", "", out);
        const char *doc = system_part_doc(system_part_at(i));
        fprintf(out, condition_doc_length(doc) == strlen(doc) ? " | |\n" : " |\n");
    }
}

static void policy_keys(enum policy_kind kind, const char *title, const char *about, FILE *out) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", policy_kind_names[kind]);
    key_heading(title, about, out);
    for (size_t i = 0; i < policy_count(kind); i++) {
        const struct policy *policy = policy_at(kind, i);
        keys(policy->name, prefix, policy->params, policy->n_params, out);
    }
}

void manual_features(FILE *out) {
    fprintf(out, "# What runs where\n\nMade by `make reference` from the table that refuses "
                 "(`engine/supported.c`). A simulation has all of it; `unmask list systems` says "
                 "which system runs live on a GPU, and `unmask list features` prints this "
                 "table.\n\n| what a system has | CPU | GPU | several GPUs | why not | set "
                 "instead |\n|---|---|---|---|---|---|\n");
    for (const struct feature *f = feature_table; f->name != NULL; f++) {
        fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", f->name,
                feature_runs(f, WHERE_CPU) ? "yes" : "no",
                feature_runs(f, WHERE_CUDA) ? "yes" : "no",
                feature_runs(f, WHERE_CUDA | WHERE_RANKS) ? "yes" : "no", f->why,
                f->instead != NULL ? f->instead : "");
    }
}

void manual_cautions(FILE *out) {
    fprintf(out, "# Cautions\n\nWhat could mislead in a result. A terminal has them in one line at "
                 "the end (`2 cautions: saturated (1 of 3), host assumed; --verbose explains`), "
                 "JSON in `warnings`. `--verbose` prints a sentence for each, with its numbers. "
                 "Made by `make reference`; `unmask list cautions` prints this list.\n\n");
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        fprintf(out, "- `%s`: %s\n", warning_words[code], warning_meanings[code]);
    }
}

void manual_endpoints(FILE *out) {
    fprintf(out, "# Endpoints\n\nMade by `make reference` from the tables by which `unmask serve` "
                 "answers; [serve.md](../serve.md) says how it is used.\n\n");
    api_list(out);
    fprintf(
        out,
        "\nErrors are OpenAI's: `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`, of "
        "status 400 (what cannot be honoured), 401, 404, 405, 413, 429 (with Retry-After) and "
        "503. A reply has `usage` with `prompt_tokens_details.cached_tokens`; a stream is an "
        "event for each committed block, one with `finish_reason`, with `include_usage` one "
        "with `usage`, and `[DONE]`.\n\n## Fields of a request\n\nWhat is not listed is "
        "refused. What has no model is taken at the values listed, and refused at others.\n\n");
    ask_list(out);
    fprintf(out,
            "\n## Metrics\n\nEach has the label `model_name`. The serving clock is that of the "
            "simulation, at whatever speed, or the device's.\n\n");
    tally_list(out);
}

void manual_keys(FILE *out) {
    fprintf(out,
            "# Keys\n\nMade by `make reference` from the program's own tables. All but those "
            "of a model's and a GPU's own file are set with `--set KEY=VALUE` or in a "
            "section of a systems file; `model.KEY` changes one value of a model. Sizes and "
            "times take a unit (`1.5GiB`, `30ms`).\n\n"
            "*Read where* says what has to hold for a key to do anything: a condition over other "
            "keys as they are resolved, and over [facts](#facts). Parameters of schedulers, "
            "decoders and routers are read where `serves = on` as well, decoders' where "
            "`played = off`, hosts' as the key `host`. Nothing stands there for what is always "
            "read. A key that was set and that "
            "nothing reads is a warning, `setting-unused` ([cautions.md](cautions.md)).\n");
    key_heading("Systems",
                "Of every system, in `experiments/study/systems.ini` or a file of your own.", out);
    keys("", "", system_params, system_n_params, out);
    choosers(out);
    policy_keys(POLICY_SCHEDULER, "Schedulers", "Key `scheduler` names one.", out);
    policy_keys(POLICY_CACHE, "Cache policies", "Key `cache` names one.", out);
    policy_keys(POLICY_DECODER, "Decoders", "Key `decoder` names one.", out);
    policy_keys(POLICY_ROUTER, "Routers", "Key `router` names one.", out);
    key_heading("Runtimes", "Key `runtime` names one of `sim/price/runtimes`, or a file.", out);
    keys("", "runtime.", runtime_params, runtime_n_params, out);
    key_heading("Hosts", "Key `host` names one of `experiments/study/hosts`, or a file.", out);
    keys("", "host.", host_params, host_n_params, out);
    key_heading("Workloads",
                "Of a workload's file (`traces/workload.h`), which has names and texts besides: "
                "`arrivals`, `trace`, `input`, `output`, `answer`, `note`; and of how its trace is "
                "read `columns`, `time_unit`, `where`, `passes_over`.",
                out);
    keys("", "workload.", workload_params, workload_n_params, out);
    key_heading("Arrivals", "Of a workload, which names the process as `arrivals`.", out);
    for (size_t i = 0; process_at(i) != NULL; i++) {
        const struct process *p = process_at(i);
        keys(p->name, "workload.arrivals.", p->params, p->n_params, out);
    }
    key_heading("Lengths",
                "Of a workload, which names the model as `input`; `output` and `answer` take the "
                "same keys.",
                out);
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        const struct length_model *m = length_model_at(i);
        keys(m->name, "workload.input.", m->params, m->n_params, out);
    }
    key_heading("Marks",
                "Of a workload, whose keys `tenant`, `priority`, `deadline` and `predicted` name a "
                "model; without it they are as the trace has them.",
                out);
    for (size_t i = 0; mark_model_at(i) != NULL; i++) {
        const struct mark_model *m = mark_model_at(i);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "workload.%s.", mark_words[m->mark]);
        keys(m->name, prefix, m->params, m->n_params, out);
    }
    key_heading("Models", "Section `[model]` of a file of `sim/model/models`.", out);
    keys("", "", model_params, model_n_params, out);
    key_heading("GPUs", "Section `[gpu]` of a file of `sim/model/gpus`.", out);
    keys("", "", gpu_params, gpu_n_params, out);
    facts(out);
}

/* ---- roff ---- */

static void roff(const char *text, size_t length, FILE *out) {
    if (length > 0 && (text[0] == '.' || text[0] == '\'')) {
        fprintf(out, "\\&");
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\' || text[i] == '-') {
            fprintf(out, text[i] == '-' ? "\\-" : "\\e");
        } else {
            fputc(text[i], out);
        }
    }
    fputc('\n', out);
}

static void roff_paragraphs(const char *text, FILE *out) {
    bool is_set_in = false;
    for (; *text != '\0'; text += text[0] == '\n') {
        size_t length = strcspn(text, "\n");
        if (length == 0) {
            fprintf(out, ".PP\n");
        } else if ((text[0] == ' ') != is_set_in) {
            is_set_in = !is_set_in;
            fprintf(out, is_set_in ? ".nf\n" : ".fi\n");
        }
        if (length > 0) {
            roff(text, length, out);
        }
        text += length;
    }
    fprintf(out, is_set_in ? ".fi\n" : "");
}

static void roff_options(const struct command *command, FILE *out) {
    fprintf(out, ".SH OPTIONS\n");
    for (size_t g = 0; command->options[g] != NULL; g++) {
        for (const struct option *o = command->options[g]; o->name != NULL; o++) {
            fprintf(out, ".TP\n\\fB%s", o->name[1] == '\0' ? "\\-" : "\\-\\-");
            for (const char *c = o->name; *c != '\0'; c++) {
                fprintf(out, *c == '-' ? "\\-" : "%c", *c);
            }
            fprintf(out, "\\fR%s%s%s\n", o->value != NULL ? " \\fI" : "",
                    o->value != NULL ? o->value : "", o->value != NULL ? "\\fR" : "");
            roff(o->doc, strlen(o->doc), out);
        }
    }
}

/* "unmask\-plan\-lmax". */
static void page_name(const struct command *command, FILE *out) {
    fprintf(out, "unmask");
    for (const char *c = command == NULL ? "" : command->name; *c != '\0'; c++) {
        fprintf(out, "%s%s", c == command->name ? "\\-" : "", *c == ' ' || *c == '-' ? "\\-" : "");
        if (*c != ' ' && *c != '-') {
            fputc(*c, out);
        }
    }
}

static void roff_ending(FILE *out) {
    fprintf(out,
            ".SH EXIT STATUS\n0: success; 1: run-time failure (file, device, data); 2: invalid "
            "command line or configuration. Errors are one sentence on standard error.\n"
            ".SH ENVIRONMENT\n.TP\n\\fBUNMASK_DATA\\fR\nThe folder with systems, models, GPUs, "
            "profiles, workloads and studies. Without it: share/unmask of the nearest folder "
            "above the program, or that folder itself.\n");
}

void manual_page(const struct command *command, FILE *out) {
    fprintf(out, ".TH UNMASK 1 \"\" \"unmask %s\" \"unmask\"\n.SH NAME\n", UNMASK_VERSION);
    page_name(command, out);
    fprintf(out, " \\- ");
    if (command == NULL) {
        fprintf(out, "what happens when a diffusion language model is served\n"
                     ".SH SYNOPSIS\n\\fBunmask\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
                     ".SH DESCRIPTION\nSimulates throughput, latency and memory of traffic on a "
                     "GPU under a policy, and runs the same schedule on a real one. Each command "
                     "has a page of its own.\n.SH COMMANDS\n");
        for (size_t i = 0; commands[i] != NULL; i++) {
            fprintf(out, ".TP\n\\fB");
            page_name(commands[i], out);
            fprintf(out, "\\fR(1)\n");
            roff(commands[i]->doc, strlen(commands[i]->doc), out);
        }
    } else {
        roff(command->doc, strlen(command->doc), out);
        fprintf(out, ".SH SYNOPSIS\n\\fBunmask %s\\fR%s%s [\\fIOPTION\\fR...]\n", command->name,
                command->words[0] != '\0' ? " " : "", command->words);
        if (command->more != NULL) {
            fprintf(out, ".SH DESCRIPTION\n");
            roff_paragraphs(command->more, out);
        }
        roff_options(command, out);
    }
    roff_ending(out);
    fprintf(out, command != NULL ? ".SH SEE ALSO\n\\fBunmask\\fR(1)\n" : "");
}
