/* unmask figure: fill a study's tables, draw its figure, and compare with what a paper printed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/plot/plot.h"
#include "experiments/command/commands.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/cli/progress.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/study/changed.h"
#include "experiments/study/score.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

enum { MOST_SEEDS = 64, PATH_CHARS = 1024 };

static const struct option own_options[] = {
    {"all", NULL, "every figure of experiments/study/studies", false},
    {"scores", NULL, "every figure's comparison, but only the table of scores is printed", false},
    {"out", "DIR", "where the files go; without it nothing is drawn, only printed", false},
    {"gpu", "NAME,...", "these GPUs instead of the figure's", false},
    {"model", "NAME,...", "these models instead of the figure's", false},
    {"set", "KEY=VALUE,...", "of runs: a key of every system, instead of the figure's", true},
    {"host", "NAME", "of runs: the host of every system (list hosts); default: each system's own",
     false},
    {"seeds", "N", "of runs: N seeds, of which a query takes means and intervals (default: 1)",
     false},
    {"j", "N", "threads (default: 2)", false},
    {"width", "INCHES",
     "width of each figure as it is printed, where its text has 9 points (default: by its panels) "
     "[--out != none]",
     false},
    {"font", "NAME", "default: sans-serif [--out != none]", false},
    {"note", "TEXT",
     "below each figure (default: where its numbers come from); \"\" for none [--out != none]",
     false},
    {"format", "FORMAT", FORMAT_DOC, false},
    {"verbose", NULL, "every warning in a sentence, not all of them in one line", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const groups[] = {own_options, NULL};

/* The paths of the studies that are asked for, in the order in which they are drawn. */
struct paths {
    char (*path)[PATH_CHARS];
    size_t n;
};

static void add_path(struct paths *paths, const char *path) {
    paths->path = mem_resized(paths->path, paths->n + 1, sizeof *paths->path);
    snprintf(paths->path[paths->n++], PATH_CHARS, "%s", path);
}

static bool is_path(const char *word) {
    return strchr(word, '/') != NULL || name_ends(word, ".ini");
}

/* The name of a study: its file's, without folder and suffix. */
static const char *name_of(const char *path, char name[STUDY_NAME_CHARS]) {
    const char *slash = strrchr(path, '/'), *stem = slash != NULL ? slash + 1 : path;
    snprintf(name, STUDY_NAME_CHARS, "%.*s", (int)strcspn(stem, "."), stem);
    return name;
}

static int compare_names(const void *a, const void *b) {
    char one[STUDY_NAME_CHARS], other[STUDY_NAME_CHARS];
    return strcmp(name_of(a, one), name_of(b, other));
}

static int find_named(char *const *shipped, size_t n, const char *word, struct paths *paths,
                      struct err *err) {
    const char **names = mem_zeroed(n + 1, sizeof *names);
    char(*text)[STUDY_NAME_CHARS] = mem_zeroed(n, sizeof *text);
    size_t found = n;
    for (size_t i = 0; i < n; i++) {
        names[i] = name_of(shipped[i], text[i]);
        found = strcmp(names[i], word) == 0 ? i : found;
    }
    char hint[NAME_HINT_CHARS];
    if (found < n) {
        add_path(paths, shipped[found]);
    } else {
        err_usage(err,
                  "unknown figure '%s'%s (`unmask list experiments` prints them all; a file of "
                  "your own is given by its path)",
                  word, name_hint(word, names, hint));
    }
    free(names);
    free(text);
    return (int)err->kind;
}

static int choose(const struct options *options, struct paths *paths, struct err *err) {
    bool all = options_has(options, "all") || options_has(options, "scores");
    if (all == (options->n_words > 0)) {
        return err_usage(err, "figure takes names, paths or --all; `unmask list experiments` "
                              "prints the names");
    }
    char **shipped = data_files("experiments/study/studies", 1, ".ini", err);
    size_t n = 0;
    for (; shipped[n] != NULL; n++) {
        if (all) {
            add_path(paths, shipped[n]);
        }
    }
    if (paths->n > 0) {
        qsort(paths->path, paths->n, sizeof *paths->path, compare_names);
    }
    for (size_t i = 0; i < options->n_words && err->kind == ERR_NONE; i++) {
        if (is_path(options->words[i])) {
            add_path(paths, options->words[i]);
        } else {
            find_named(shipped, n, options->words[i], paths, err);
        }
    }
    names_free(shipped);
    return (int)err->kind;
}

struct tick {
    struct progress progress;
    _Atomic uint64_t n_done;
};

static void tick(void *state) {
    ((struct tick *)state)->n_done++;
}

/* What all figures of one command share. */
struct making {
    const char *inches, *font, *note; /* NULL: as the figures have them */
    const char *out;                  /* NULL: nothing is drawn */
    struct study_changes changes;
    const char *sets[OPTIONS_MOST_GIVEN];
    unsigned n_threads;
    bool scores_only; /* no figure is drawn nor its table printed */
    struct config calibrated, papers, causes;
    struct score *score;
};

/* ---- what is printed and written of one figure ---- */

static int write_tables(const struct paper_result *rows, size_t n, const char *stem,
                        struct err *err) {
    char path[PATH_CHARS];
    snprintf(path, sizeof path, "%s-paper.csv", stem);
    int status = paper_write(rows, n, PAPER_CSV, path, err);
    if (status == 0) {
        snprintf(path, sizeof path, "%s-paper.md", stem);
        status = paper_write(rows, n, PAPER_MARKDOWN, path, err);
    }
    return status;
}

/* The rows of a study of the kind `table`. */
static int print_rows(struct tables *tables, struct err *err) {
    struct table *table = NULL;
    int status = tables_show(tables, "SELECT * FROM drawn ORDER BY rowid", &table, err);
    if (table != NULL) {
        table_print(table, stdout);
        table_close(table);
    }
    return status;
}

static int draw(const struct making *making, const struct study *study, struct tables *tables,
                const struct paper_result *rows, size_t n, struct err *err) {
    char stem[PATH_CHARS / 2];
    snprintf(stem, sizeof stem, "%s/%s", making->out, study->name);
    bool is_table = study_is_table(study);
    int status = study_draw(study, tables, stem, FIGURE_ALL, err);
    if (status == 0 && n > 0) {
        status = write_tables(rows, n, stem, err);
    }
    if (status == 0) {
        printf("wrote %s%s%s\n", stem, is_table ? ".csv" : figure_endings(),
               n > 0      ? ", .csv, -paper.csv and -paper.md"
               : is_table ? ""
                          : " and .csv");
        if (!is_table) {
            study_print_note(study, tables, stdout);
        }
    }
    return status;
}

/* As --format says: ours for each number that was printed. */
static void print_printed(const struct finding_of_study *found) {
    struct table *table =
        table_open("source|row|quantity|unit|printed|ours|ours / printed|role|cause");
    if (table_is_text()) {
        paper_print(found->rows, found->n, PAPER_TEXT, stdout);
    }
    for (size_t i = 0; i < found->n; i++) {
        const struct paper_result *result = &found->rows[i];
        const struct paper_row *row = result->row;
        char label[512], ratio[64];
        table_add(table, "s s s s", row->source, paper_label(result, label, sizeof label),
                  row->quantity, row->unit);
        table_three(table, row->value);
        table_three(table, result->ours);
        table_add(table, "s s s", paper_ratio_text(result, ratio, sizeof ratio),
                  paper_role_name(result->role), row->cause);
    }
    if (!table_is_text()) {
        table_print(table, stdout);
    }
    table_close(table);
}

/* Prints a figure's rows: next to the paper's, where there is one. */
static int show_rows(struct making *making, const struct study *study,
                     const struct finding_of_study *found, struct err *err) {
    const char *file = study_text(study, "paper", NULL);
    if (file != NULL && score_add(making->score, file, found->rows, found->n, err) != 0) {
        return err_status(err);
    }
    if (!making->scores_only && found->n > 0) {
        print_printed(found);
    } else if (!making->scores_only && file != NULL) {
        printf("the paper prints no number of this figure\n");
    }
    const bool is_all = making->out == NULL && found->n == 0; /* else it would give no number */
    const char *x = study_text(study, "x_label", NULL), *y = study_text(study, "y_label", NULL);
    if (!making->scores_only && is_all && !study_is_table(study) && table_is_text() && y != NULL) {
        printf("x: %s; y: %s\n", x != NULL ? x : "-", y);
    }
    return !making->scores_only && (study_is_table(study) || is_all)
               ? print_rows(found->tables, err)
               : 0;
}

/* Of a changed one: it, and the figure as it is. */
static int show_change(const struct study *study, const struct finding_of_study *before,
                       const struct finding_of_study *found, struct err *err) {
    struct table *table = NULL;
    if (study_is_table(study)) {
        printf("unchanged:\n");
        int status = print_rows(before->tables, err);
        printf("changed:\n");
        return status != 0 ? status : print_rows(found->tables, err);
    }
    int status = changed_table(before, found, &table, err);
    if (status == 0) {
        table_print(table, stdout);
    }
    table_close(table);
    return status;
}

/* Print and draw what a study found; `before`: without the changes, NULL where there are none. */
static int show(struct making *making, const struct study *study,
                const struct finding_of_study *before, const struct finding_of_study *found,
                struct err *err) {
    if (!making->scores_only) {
        printf("%s%s\n", study_text(study, "title", NULL), study->changed);
        if (before != NULL && study_text(study, "paper", NULL) != NULL) {
            printf("%s\n", study_printed_note);
        }
    }
    int status = before == NULL        ? show_rows(making, study, found, err)
                 : making->scores_only ? 0
                                       : show_change(study, before, found, err);
    if (status == 0 && !making->scores_only) {
        study_print_spread(study, found->tables, stdout);
        study_print_warnings(found->tables, study_runs(study), stdout);
        status = tables_failed(found->tables, err);
        status = status != 0 || making->out == NULL
                     ? status
                     : draw(making, study, found->tables, found->rows,
                            before == NULL ? found->n : 0, err);
        printf("\n");
    }
    return status;
}

static int load_paper(const struct study *study, struct paper *paper, struct err *err) {
    char path[PATH_CHARS], relative[PATH_CHARS / 2];
    const char *file = study_text(study, "paper", NULL);
    if (file == NULL || paper->n_rows > 0) {
        return 0;
    }
    snprintf(relative, sizeof relative, "experiments/study/paper/%s", file);
    return paper_load(data_path(path, sizeof path, relative), paper, err);
}

/* A title describes what the study runs: changes to that are appended. */
static void say_changes(const struct study_changes *changes, struct study *study) {
    const char *const parts[][2] = {
        {"gpu=", changes->gpu}, {"model=", changes->model}, {"host=", changes->host}};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    char text[128] = "";
    for (size_t i = 0; i < PARTS + changes->n_sets; i++) {
        const char *value = i < PARTS ? parts[i][1] : changes->sets[i - PARTS];
        size_t used = strlen(text);
        if (value != NULL) {
            snprintf(text + used, sizeof text - used, "%s%s%s", used > 0 ? ", " : "",
                     i < PARTS ? parts[i][0] : "", value);
        }
    }
    if (text[0] != '\0') {
        snprintf(study->changed, sizeof study->changed, " (changed: %s)", text);
    }
}

static bool is_changed(const struct study_changes *changes) {
    return changes->gpu != NULL || changes->model != NULL || changes->host != NULL ||
           changes->n_sets > 0;
}

/* Runs a study and puts its numbers next to the paper's. */
static int find(struct making *making, const struct study *study, struct paper *paper,
                struct tick *ticks, struct finding_of_study *out, struct err *err) {
    bool has_paper = study_text(study, "paper", NULL) != NULL;
    out->tables = tables_open();
    int status = load_paper(study, paper, err);
    status = status != 0 || !has_paper ? status : study_print(study, paper, out->tables, err);
    status =
        status != 0 ? status : study_fill(study, making->n_threads, tick, ticks, out->tables, err);
    status = status != 0 ? status : study_select(study, out->tables, err);
    status = status != 0 ? status : study_ask(study, out->tables, err);
    return status != 0 || !has_paper ? status
                                     : study_compare(study, out->tables, paper, &making->calibrated,
                                                     &out->rows, &out->n, err);
}

static void forget(struct finding_of_study *found) {
    tables_close(found->tables);
    free(found->rows);
}

/* With its changes and, where there are any, without: a slip in a change ends it at once. */
static int find_all(struct making *making, const char *path, const struct study *study,
                    struct err *err) {
    struct finding_of_study found = {NULL, NULL, 0}, before = {NULL, NULL, 0};
    struct study_changes none = {.n_seeds = making->changes.n_seeds};
    struct paper paper = {0};
    struct study unchanged = {.n_configs = 0};
    struct tick ticks = {0};
    bool is_needed = is_changed(&making->changes) && !making->scores_only;
    progress_start(&ticks.progress, "points", study->n_places * (is_needed ? 2 : 1));
    int status = is_needed ? study_open(path, &none, &unchanged, err) : 0;
    status = status != 0 ? status : find(making, study, &paper, &ticks, &found, err);
    status =
        status == 0 && is_needed ? find(making, &unchanged, &paper, &ticks, &before, err) : status;
    progress_end(&ticks.progress);
    if (status == 0) {
        status = show(making, study, is_changed(&making->changes) ? &before : NULL, &found, err);
    }
    forget(&found);
    forget(&before);
    study_close(&unchanged);
    paper_fini(&paper);
    return status;
}

/* Other ranks fill the same tables in the same order, and keep nothing. */
static int help(const struct making *making, const char *path, const struct study *study,
                struct err *err) {
    struct study_changes none = {.n_seeds = making->changes.n_seeds};
    struct study unchanged = {.n_configs = 0};
    bool is_needed = is_changed(&making->changes) && !making->scores_only;
    struct tables *tables = tables_open(), *others = tables_open();
    int status = is_needed ? study_open(path, &none, &unchanged, err) : 0;
    status = status != 0 ? status : study_fill(study, making->n_threads, NULL, NULL, tables, err);
    status = status == 0 && is_needed
                 ? study_fill(&unchanged, making->n_threads, NULL, NULL, others, err)
                 : status;
    study_close(&unchanged);
    tables_close(others);
    tables_close(tables);
    return status;
}

/* Draw and compare one figure; of those without a paper there is no score. */
static int make_figure(const char *path, struct making *making, struct err *err) {
    struct study study;
    int status = study_open(path, &making->changes, &study, err);
    study.inches = making->inches;
    study.font = making->font;
    study.note = making->note;
    say_changes(&making->changes, &study);
    if (status == 0 && (!making->scores_only || study_text(&study, "paper", NULL) != NULL)) {
        status = ranks_is_helper() ? help(making, path, &study, err)
                                   : find_all(making, path, &study, err);
    }
    study_close(&study);
    return status;
}

/* One of the two tables of scores. */
struct score_table {
    const char *name;
    void (*print)(const struct score *score, enum paper_format format, FILE *out);
    struct table *(*table)(const struct score *score);
};

static int write_score(const struct making *making, const struct score_table *table,
                       enum paper_format format, struct err *err) {
    char path[PATH_CHARS];
    struct output out;
    snprintf(path, sizeof path, "%s/%s.%s", making->out, table->name,
             format == PAPER_CSV ? "csv" : "md");
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    table->print(making->score, format, out.file);
    return output_close(&out, true, err);
}

/* As --format says. */
static void print_score(const struct making *making, const struct score_table *which) {
    if (table_is_text()) {
        which->print(making->score, PAPER_TEXT, stdout);
        return;
    }
    struct table *table = which->table(making->score);
    table_print(table, stdout);
    table_close(table);
}

/* The tables of scores, and their files where every figure was drawn. */
static int finish(const struct making *making, bool all, struct err *err) {
    static const struct score_table tables[] = {{"scores", score_print, score_table},
                                                {"causes", score_print_causes, score_causes_table}};
    int status = score_judge(making->score, err);
    if (status != 0) {
        return status;
    }
    printf("%s", making->scores_only ? "" : "score by paper\n");
    for (size_t t = 0; t < 2; t++) {
        print_score(making, &tables[t]);
        printf("%s", t == 0 ? "\n" : "");
    }
    for (size_t t = 0; all && making->out != NULL && t < 2 && status == 0; t++) {
        status = write_score(making, &tables[t], PAPER_CSV, err);
        status = status != 0 ? status : write_score(making, &tables[t], PAPER_MARKDOWN, err);
    }
    if (all && making->out != NULL && status == 0) {
        printf("wrote %s/scores.csv, scores.md, causes.csv and causes.md\n", making->out);
    }
    return status;
}

static int read_tables(struct making *making, struct err *err) {
    const struct {
        const char *path;
        struct config *config;
    } files[] = {{"experiments/study/calibrated.ini", &making->calibrated},
                 {"experiments/study/paper/papers.ini", &making->papers},
                 {"experiments/study/paper/causes.ini", &making->causes}};
    char path[PATH_CHARS];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (config_read(data_path(path, sizeof path, files[i].path), files[i].config, err) != 0) {
            return (int)err->kind;
        }
    }
    making->score = score_open(&making->papers, &making->causes,
                               data_path(path, sizeof path, "experiments/study/paper"), err);
    return (int)err->kind;
}

static int make_all(const struct paths *paths, bool all, struct making *making, struct err *err) {
    int status = read_tables(making, err);
    for (size_t i = 0; status == 0 && i < paths->n; i++) {
        status = make_figure(paths->path[i], making, err);
    }
    if (status == 0 && paths->n > 1 && score_has_rows(making->score) && !ranks_is_helper()) {
        status = finish(making, all, err);
    }
    score_close(making->score);
    config_fini(&making->causes);
    config_fini(&making->papers);
    config_fini(&making->calibrated);
    return status;
}

static int read_making(const struct options *options, struct making *making, struct err *err) {
    uint64_t n_threads = 2;
    *making = (struct making){.out = options_text(options, "out"),
                              .inches = options_text(options, "width"),
                              .font = options_text(options, "font"),
                              .note = options_text(options, "note"),
                              .scores_only = options_has(options, "scores"),
                              .changes = {.gpu = options_text(options, "gpu"),
                                          .model = options_text(options, "model"),
                                          .host = options_text(options, "host"),
                                          .n_seeds = 1}};
    making->changes.sets = making->sets;
    making->changes.n_sets = options_values(options, "set", making->sets);
    int status = study_check_looks(making->inches != NULL ? making->inches : "",
                                   making->font != NULL ? making->font : "", err);
    status = status != 0 ? status : options_whole(options, "j", 1, 256, &n_threads, err);
    making->n_threads = (unsigned)n_threads;
    return status != 0
               ? status
               : options_whole(options, "seeds", 1, MOST_SEEDS, &making->changes.n_seeds, err);
}

static int run(const struct options *options, struct err *err) {
    struct paths paths = {.n = 0};
    struct making making;
    int status = read_making(options, &making, err);
    status = status != 0 ? status : choose(options, &paths, err);
    if (status == 0 && making.out != NULL && mkdir(making.out, 0777) != 0 && errno != EEXIST) {
        status = err_world(err, "cannot make the folder %s: %s", making.out, strerror(errno));
    }
    bool all = options_has(options, "all") || making.scores_only;
    status = status != 0 ? status : make_all(&paths, all, &making, err);
    free(paths.path);
    return status;
}

const struct command command_figure = {
    .name = "figure",
    .words = "NAME|FILE...",
    .doc = "draws the figure of a study: of one's own, of a paper or of a measured server",
    .more =
        "A study is an INI file: what to run, and a query over the results.\n"
        "\n"
        "  [figure]\n"
        "  title = p99 latency over the rate\n"
        "  kind = lines\n"
        "  x_label = requests a second\n"
        "  y_label = seconds\n"
        "  query = SELECT system AS series, rate AS x, latency_s_p99 AS y FROM run\n"
        "\n"
        "  [run]\n"
        "  system = dllm-serve, sparse-dllm\n"
        "  gpu = l40s\n"
        "  workload = osc\n"
        "  rate = 0.2, 0.4, 0.6\n"
        "  set cache.retention = 0.3\n"
        "\n"
        "The table `run` has a row for every combination of the lists, and every field of\n"
        "`run --json` as a column (latency_s.p99 is latency_s_p99). Kinds are lines, bars, "
        "stacked\n"
        "and table. Writes NAME.svg, .png, .pdf and .csv into the folder of --out.\n"
        "experiments/study/studies has the papers' figures, and README.md there all keys and "
        "jobs.\n"
        "A comparison with a paper goes to NAME-paper.csv and .md: calibration points,\n"
        "quotients of other rows and readings other than the declared one are marked and not\n"
        "counted. --all ends with the score of each paper and the causes of what is missed and of "
        "what\n"
        "left the count (experiments/study/paper/causes.ini), in scores and causes.csv and .md "
        "where\n"
        "--out names a folder; --scores prints them alone.",
    .options = groups,
    .max_words = 16,
    .takes_ranks = true,
    .run = run,
};
