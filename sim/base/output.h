/* Output files: what replaces others, only its own kind and only once it is whole; XML and CSV. */
#ifndef UNMASK_SIM_BASE_OUTPUT_H
#define UNMASK_SIM_BASE_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/base/err.h"

/* 0 when nothing stands at `path`, or a device, or an empty file, or a file that begins with
 * `head`, as the output itself does; ERR_USAGE else, so that a results database or an input given
 * by mistake is not overwritten. `what` ("a timeline") goes into the sentence. */
int output_may_replace(const char *path, const char *head, const char *what, struct err *err);

enum { OUTPUT_PATH_CHARS = 4096 };

/* A file that is written under a temporary name in its folder (FILE.part-...) until it is complete.
 * It replaces the target of a link, not the link, and keeps that file's mode. What is not a regular
 * file, such as /dev/stdout, is written directly. Not to be moved in memory. */
struct output {
    FILE *file;
    const char *path; /* borrowed */
    /* `path` with its links followed, and the temporary path, "" where it is no regular file. */
    char target[OUTPUT_PATH_CHARS], beside[OUTPUT_PATH_CHARS];
};

/* Begin it; ERR_WORLD, or ERR_USAGE of a path that is too long. */
int output_open(const char *path, struct output *out, struct err *err);

/* The same for what others write, such as SQLite and gnuplot: the temporary file exists and is
 * empty, `file` is NULL. ERR_WORLD where the path is not of a regular file. */
int output_reserve(const char *path, struct output *out, struct err *err);

/* End it: rename the temporary file to its target where `keeps`, else remove it. After an error,
 * also one of writing, the target is unchanged. 0 where nothing is kept. */
int output_close(struct output *out, bool keeps, struct err *err);

/* From now on what is unfinished stays as it is where the program ends. */
void output_keep(const struct output *out);

/* Removes what is unfinished, of all threads, because the program ends. A handler may call it. */
void output_abandon(void);

/* A file that grows over several runs of the program, begun where it is not there, to be read and
 * written at its end through `file`; only one process has it open at a time. ERR_WORLD of a link,
 * which may lead to anything, of what is no file, and while another has it: `who` ("calibration")
 * that is. */
int output_grow(const char *path, const char *who, FILE **file, struct err *err);

/* A text between the tags, or in the quotes, of XML and HTML. */
void output_xml_text(FILE *out, const char *text);

/* A cell of a CSV line, in quotes where it needs them. */
void output_csv_text(FILE *out, const char *text);

#endif
