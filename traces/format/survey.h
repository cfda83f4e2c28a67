/* What the rows of a file tell of what its format leaves open: the unit of its times, how many
 * tokens a hash id stands for, whether tenants are texts; and which columns and keys are not read.
 * A file is read once for it before it is read for its rows. */
#ifndef UNMASK_TRACES_FORMAT_SURVEY_H
#define UNMASK_TRACES_FORMAT_SURVEY_H

#include "traces/format/format.h"

/* The sizes of a block that fit all rows so far. */
struct block_range {
    uint64_t least, most;
};

struct survey_names {
    char **items;
    size_t n, room;
};

struct format_survey {
    const struct format *format;
    struct layout *layout;
    const char *path;
    /* Times. */
    uint64_t n_times, n_dates, n_epochs; /* dates as texts; numbers of as many digits as such */
    uint64_t n_fractions, fraction_line; /* written with a point; where the first one is */
    double first, last;                  /* as numbers */
    char shown[40];                      /* the first, or the first with a point */
    char odd[40];                        /* the first that is neither date nor number; "" */
    uint64_t odd_line;
    /* Hash ids: a block is ceil or, where a tool leaves unfinished ones out, floor of them. */
    struct block_range filled, whole;
    uint64_t n_hashed, hashed_line;     /* rows with ids; the last that has more than one */
    uint32_t hashed_ids, hashed_tokens; /* of that row */
    bool tenants_are_texts, has_sessions;
    struct survey_names unread;
};

/* Whether a file of the format has to be surveyed. */
bool survey_is_needed(const struct format *format, const struct layout *layout);

void survey_begin(struct format_survey *survey, const struct format *format, struct layout *layout,
                  const char *path);
/* One row; a row that is not as it must be is left to the reading. */
void survey_row(struct format_survey *survey, const struct record *record);
/* Of CSV: names of the header that are not read. */
void survey_header(struct format_survey *survey);

/* Completes the layout with the user's values, else with what the rows tell, which is added to
 * `notes` in sentences. `unit_ns` UNIT_ASKED and `hash_tokens` 0: the user gave none. ERR_USAGE:
 * neither tells, or the rows contradict; the sentence names what would fit. */
int survey_settle(struct format_survey *survey, int64_t unit_ns, uint32_t hash_tokens, FILE *notes,
                  struct err *err);
void survey_end(struct format_survey *survey);

/* Adds the name of something that is not read, once. */
void survey_add_name(struct survey_names *names, const char *name, size_t length);

#endif
