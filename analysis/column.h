/* Columns: the facts of a run, of its requests and of its course, each declared once.
 *
 * A run's stand in analysis/run_columns.c, those of requests in sim/serve/request.def, those of a
 * course in analysis/plot/course.c. From these tables are made the object of `run --json` (in their
 * order), the table `requests` of databases, what plots and pages show of a request, units and
 * labels, `unmask list fields` and docs/reference/fields.md. */
#ifndef UNMASK_ANALYSIS_COLUMN_H
#define UNMASK_ANALYSIS_COLUMN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "analysis/summary.h"

/* What a run's columns are computed from. */
struct result {
    const struct summary *summary;
    const struct run_facts *facts; /* NULL where only its requests count */
    const struct group *group;     /* whose the summary is; NULL: the run's */
    enum grouping by;              /* of a group, */
    const struct summary *run;     /* and the run's */
};

enum column_kind {
    COLUMN_ELSEWHERE,    /* made by a plot, or a member of an object that another column makes */
    COLUMN_U32,          /* from here on what lies at an offset: a number, */
    COLUMN_U64,          /* */
    COLUMN_I64,          /* a negative one of a run is not known, */
    COLUMN_REAL,         /* one that is always known, */
    COLUMN_SHARE,        /* one that is not known where it is negative, */
    COLUMN_FLAG,         /* a bool, */
    COLUMN_TEXT,         /* a text, not known where it is NULL, */
    COLUMN_DISTRIBUTION, /* a struct distribution, without figures where it is of nothing */
    COLUMN_DERIVED,      /* what `number` or `of_request` returns; NaN: not known */
    COLUMN_OBJECT,       /* what `object` returns */
};

struct column {
    const char *name;  /* in JSON; a member of an object has a dot: "offered.load" */
    const char *label; /* on an axis, before the unit; NULL: no axis has it. "": of a request, the
                          label of the run's column of this name */
    const char *unit;  /* "": a plain number */
    const char *doc;   /* one line */
    const char *more;  /* what the reference says besides; NULL: nothing */

    enum column_kind kind;
    bool is_fact;  /* a member of struct run_facts; else of the summary or of a request's record */
    size_t offset; /* of that member */
    double (*number)(const struct result *result);
    json_t *(*object)(const struct result *result);
    bool (*is_there)(const struct result *result); /* whether JSON has it; NULL: always */
    bool of_groups;                                /* a group's object has it as well */

    /* Of requests, as sim/serve/request.def has them. */
    int since;          /* 0: it is not kept */
    const char *before; /* "": not known */
    int less;           /* of a LINK 1, else 0: it is kept less by this, and NULL of 0 */
    double (*of_request)(const struct request_record *record);
};

/* The kind of a member, by its type. */
#define COLUMN_KIND(member)                                                                        \
    _Generic((member),                                                                             \
        uint32_t: COLUMN_U32,                                                                      \
        uint64_t: COLUMN_U64,                                                                      \
        int64_t: COLUMN_I64,                                                                       \
        double: COLUMN_REAL,                                                                       \
        bool: COLUMN_FLAG,                                                                         \
        const char *: COLUMN_TEXT,                                                                 \
        struct distribution: COLUMN_DISTRIBUTION)

enum column_owner { OF_PLOTS, OF_RUN, OF_RUN_REQUESTS, OF_RUN_RESULT, OF_GROUP, OF_REQUEST };

/* Columns that end with one without a name, under a title of the reference. */
struct column_group {
    const char *title, *what;
    /* OF_RUN: of a run's JSON, what ran; OF_RUN_REQUESTS: the same, and known of its requests
     * alone; OF_RUN_RESULT: the same, of all that came out. */
    enum column_owner owner;
    const struct column *columns;
};

/* All, in the order of `list fields`, and so in that of JSON; ends with a title of NULL. */
extern const struct column_group column_groups[];

extern const struct column request_columns[];

/* Puts a run's columns into `object`: of OF_RUN all, of OF_RUN_REQUESTS those alone; of OF_GROUP
 * those and a group's of the run's. Not 0 where a text is not UTF-8, or a number not finite. */
int columns_put(const struct result *result, enum column_owner owner, json_t *object);

/* A kept column of a record. */
int64_t column_whole(const struct column *column, const struct request_record *record);
void column_set_whole(const struct column *column, struct request_record *record, int64_t value);

#endif
