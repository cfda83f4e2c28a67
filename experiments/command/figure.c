/* unmask figure: run a figure's grid, draw it, and compare with what the paper printed. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/paper_score.h"
#include "experiments/cli/cmd.h"
#include "experiments/cli/progress.h"
#include "experiments/server/server.h"
#include "experiments/study/figure.h"
#include "sim/base/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { MOST_FIGURES = 64, MOST_ROWS = 256, PATH_CHARS = 1024 };

static const struct option own_options[] = {
    {"all", NULL, "every figure of experiments/figures", false},
    {"scores", NULL, "every figure's comparison, but only the table of scores is printed", false},
    {"out", "DIR", "where the files go; without it nothing is drawn, only compared", false},
    {"host", "NAME", "of runs: the host of every system (list hosts); default: each system's own",
     false},
    {"seeds", "N", "of runs: means over N seeds, with 95 % intervals as error bars (default: 1)",
     false},
    {"j", "N", "threads (default 2)", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const groups[] = {own_options, NULL};

struct names {
    char name[MOST_FIGURES][GRID_WORD];
    size_t n;
};

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static int list_figures(struct names *names, struct err *err) {
    char path[PATH_CHARS];
    data_path(path, sizeof path, "experiments/figures");
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    names->n = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && length < GRID_WORD && names->n < MOST_FIGURES &&
            strcmp(entry->d_name + length - 4, ".ini") == 0) {
            snprintf(names->name[names->n++], GRID_WORD, "%.*s", (int)(length - 4), entry->d_name);
        }
    }
    closedir(folder);
    qsort(names->name, names->n, sizeof names->name[0], compare_names);
    return 0;
}

static int known_figure(const struct names *names, const char *name, struct err *err) {
    const char *texts[MOST_FIGURES + 1] = {NULL};
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->name[i], name) == 0) {
            return 0;
        }
        texts[i] = names->name[i];
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, texts, hint);
    return err_usage(err, "unknown figure '%s'%s (`unmask list experiments` prints them all)", name,
                     hint);
}

struct tick {
    struct progress progress;
    _Atomic uint64_t n_done;
};

static void tick(void *state) {
    ((struct tick *)state)->n_done++;
}

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

/* The kind whose numbers to compare with are a server's, not a paper's. */
static int make_server(const struct grid *grid, const char *out, struct err *err) {
    char path[PATH_CHARS], stem[PATH_CHARS / 2];
    struct server *server = malloc(sizeof *server);
    ASSERT(server != NULL);
    int status = server_read(data_path(path, sizeof path, grid->requests_of), grid->requests_of,
                             server, err);
    for (size_t i = 0; status == 0 && i < grid->systems.n; i++) {
        struct run_request request = {.system = grid->systems.word[i],
                                      .gpu = grid->gpu,
                                      .options = {.seed = grid->seed, .requests = grid->requests}};
        status = server_add_run(server, &request, grid->labels.word[i], err);
    }
    status = status != 0 ? status : server_compare(server, err);
    if (status == 0) {
        printf("%s\n", grid->title);
        server_print(server, stdout);
    }
    if (status == 0 && out != NULL) {
        snprintf(stem, sizeof stem, "%s/%s", out, grid->name);
        status = server_draw(server, grid->title, stem, err);
        if (status == 0) {
            printf("wrote %s.svg, .png, .csv, -server.csv and -server.md\n", stem);
        }
    }
    printf("\n");
    server_fini(server);
    free(server);
    return status;
}

/* What the figures of one command share. */
struct making {
    const char *out;  /* NULL: nothing is drawn */
    const char *host; /* of every system; NULL: each one's own */
    unsigned n_threads;
    uint64_t n_seeds;
    bool scores_only; /* no figure is drawn nor its table printed */
    struct config calibrated, papers;
    struct paper_score score;
};

/* The paper whose numbers a file of experiments/paper has: a section of papers.ini. */
static const char *paper_of(const struct config *papers, const char *file) {
    for (size_t i = 0; i < papers->n_entries; i++) {
        const struct config_entry *entry = &papers->entries[i];
        struct words files;
        struct err err = {0};
        bool lists = strcmp(entry->key, "files") == 0 &&
                     words_split(entry->value, &files, papers->path, &err) == 0;
        for (size_t f = 0; lists && f < files.n; f++) {
            if (strcmp(files.word[f], file) == 0) {
                return entry->section;
            }
        }
    }
    return file;
}

static int draw(const struct making *making, const struct grid *grid,
                const struct grid_results *results, const struct paper *paper,
                const struct paper_result *rows, size_t n, struct err *err) {
    char stem[PATH_CHARS / 2];
    snprintf(stem, sizeof stem, "%s/%s", making->out, grid->name);
    int status = figure_draw(grid, results, paper, stem, err);
    if (status == 0 && n > 0) {
        status = write_tables(rows, n, stem, err);
    }
    if (status == 0) {
        printf("wrote %s.svg, .png%s\n", stem,
               n > 0 ? ", .csv, -paper.csv and -paper.md" : " and .csv");
    }
    return status;
}

/* Print and draw what a grid found beside the paper, and add it to the score. */
static int show(struct making *making, const struct grid *grid, const struct grid_results *results,
                const struct paper *paper, struct err *err) {
    struct paper_result rows[MOST_ROWS];
    size_t n = figure_compare(grid, results, paper, &making->calibrated, rows, MOST_ROWS);
    int status =
        paper_score_add(&making->score, paper_of(&making->papers, grid->paper), rows, n, err);
    if (status != 0 || making->scores_only) {
        return status;
    }
    printf("%s\n", grid->title);
    if (n > 0) {
        paper_print(rows, n, PAPER_TEXT, stdout);
    } else {
        printf("the paper prints no number of this figure\n");
    }
    figure_print_warnings(grid, results, stdout);
    if (making->out != NULL) {
        status = draw(making, grid, results, paper, rows, n, err);
    }
    printf("\n");
    return status;
}

/* --host of the command line, which comes before what a workload of the figure sets. */
static int set_host(struct grid *grid, const char *host, struct err *err) {
    if (host == NULL) {
        return 0;
    }
    if (grid->kind > GRID_JITTER) {
        return err_usage(err, "--host: %s runs no system", grid->name);
    }
    if (grid->sets.n == GRID_MOST || strlen(host) + sizeof "host=" > GRID_WORD) {
        return err_usage(err, "--host: %s has no room for '%s' among its keys", grid->name, host);
    }
    snprintf(grid->sets.word[grid->sets.n++], GRID_WORD, "host=%s", host);
    return 0;
}

/* Draw and compare one figure. */
static int make_figure(const char *name, struct making *making, struct err *err) {
    char path[PATH_CHARS], relative[PATH_CHARS / 2];
    struct grid *grid = malloc(sizeof *grid);
    struct paper paper = {0};
    struct grid_results results = {0};
    ASSERT(grid != NULL);
    snprintf(relative, sizeof relative, "experiments/figures/%s.ini", name);
    int status = grid_load(data_path(path, sizeof path, relative), name, grid, err);
    if (status == 0 && grid->kind == GRID_SERVER) {
        status = making->scores_only ? 0 : make_server(grid, making->out, err);
        free(grid);
        return status;
    }
    status = status == 0 ? set_host(grid, making->host, err) : status;
    if (status == 0) {
        snprintf(relative, sizeof relative, "experiments/paper/%s", grid->paper);
        status = paper_load(data_path(path, sizeof path, relative), &paper, err);
    }
    grid->n_seeds = grid_runs(grid) ? making->n_seeds : 1;
    if (status == 0) {
        struct tick ticks = {0};
        progress_start(&ticks.progress, "runs", grid_n_points(grid));
        status = grid_run(grid, making->n_threads, tick, &ticks, &results, err);
        progress_end(&ticks.progress);
    }
    if (status == 0) {
        status = show(making, grid, &results, &paper, err);
        grid_results_fini(&results);
    }
    paper_fini(&paper);
    free(grid);
    return status;
}

static int choose(const struct options *options, struct names *names, struct err *err) {
    int status = list_figures(names, err);
    bool all = options_has(options, "all") || options_has(options, "scores");
    if (status == 0 && all == (options->n_words > 0)) {
        return err_usage(err, "figure takes names or --all; `unmask list experiments` prints them");
    }
    for (size_t i = 0; status == 0 && i < options->n_words; i++) {
        status = known_figure(names, options->words[i], err);
    }
    if (status == 0 && !all) {
        names->n = options->n_words;
        for (size_t i = 0; i < names->n; i++) {
            snprintf(names->name[i], GRID_WORD, "%s", options->words[i]);
        }
    }
    return status;
}

/* The table of scores, and its files where every figure was drawn. */
static int finish(const struct making *making, bool all, struct err *err) {
    char path[PATH_CHARS];
    printf("%s", making->scores_only ? "" : "score by paper (independent rows alone)\n");
    paper_score_print(&making->score, PAPER_TEXT, stdout);
    if (!all || making->out == NULL) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/scores.csv", making->out);
    int status = paper_score_write(&making->score, PAPER_CSV, path, err);
    if (status == 0) {
        snprintf(path, sizeof path, "%s/scores.md", making->out);
        status = paper_score_write(&making->score, PAPER_MARKDOWN, path, err);
    }
    if (status == 0) {
        printf("wrote %s/scores.csv and scores.md\n", making->out);
    }
    return status;
}

static int make_all(const struct names *names, bool all, struct making *making, struct err *err) {
    char path[PATH_CHARS];
    if (config_read(data_path(path, sizeof path, "experiments/calibrated.ini"), &making->calibrated,
                    err) != 0) {
        return (int)err->kind;
    }
    int status = config_read(data_path(path, sizeof path, "experiments/paper/papers.ini"),
                             &making->papers, err);
    if (status != 0) {
        config_fini(&making->calibrated);
        return status;
    }
    paper_score_init(&making->score);
    for (size_t i = 0; status == 0 && i < names->n; i++) {
        status = make_figure(names->name[i], making, err);
    }
    if (status == 0 && names->n > 1) {
        status = finish(making, all, err);
    }
    paper_score_fini(&making->score);
    config_fini(&making->papers);
    config_fini(&making->calibrated);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct names names;
    struct making making = {.out = options_text(options, "out"),
                            .scores_only = options_has(options, "scores")};
    uint64_t n_threads = 2;
    uint64_t n_seeds = 1;
    int status = options_whole(options, "j", 1, 256, &n_threads, err);
    status =
        status != 0 ? status : options_whole(options, "seeds", 1, FIGURE_MOST_SEEDS, &n_seeds, err);
    if (status == 0) {
        status = choose(options, &names, err);
    }
    if (status == 0 && making.out != NULL && mkdir(making.out, 0777) != 0 && errno != EEXIST) {
        status = err_world(err, "cannot make the folder %s: %s", making.out, strerror(errno));
    }
    making.n_threads = (unsigned)n_threads;
    making.n_seeds = n_seeds;
    making.host = options_text(options, "host");
    bool all = options_has(options, "all") || making.scores_only;
    return status == 0 ? make_all(&names, all, &making, err) : status;
}

const struct command command_figure = {
    .name = "figure",
    .words = "NAME...",
    .doc = "draws a paper's figure, or a measured server's, and compares",
    .more =
        "Writes NAME.svg, .png, .csv and the paper-versus-ours table as NAME-paper.csv and .md.\n"
        "Calibration points, quotients of other rows and readings other than the declared one are\n"
        "marked and not counted. --all ends with the score of each paper, in scores.csv and .md\n"
        "where --out names a folder; --scores prints it alone.",
    .options = groups,
    .max_words = 16,
    .run = run,
};
