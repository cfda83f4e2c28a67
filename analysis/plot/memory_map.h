/* A memory map: buffers as rectangles, offset over time, drawn by gnuplot as a child process.
 *
 * Rectangles are coloured by kind and carry their names where these fit. Over them lie the live
 * bytes as steps, and horizontal lines such as the peak. Offsets are in bytes; the axis has the
 * unit that suits the largest. The map is plain data of the caller's; no text is a command. */
#ifndef UNMASK_ANALYSIS_PLOT_MEMORY_MAP_H
#define UNMASK_ANALYSIS_PLOT_MEMORY_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

enum { MEMORY_MAP_MOST_KINDS = 6 };

struct map_block {
    const char *name; /* broken between words where it has to be */
    const char *size; /* below the name, where there is room; NULL: none */
    size_t kind;
    double from, to; /* live from `from` up to, not including, `to` */
    int64_t low_bytes, high_bytes;
};

/* Live bytes from a time on, until the next such point. */
struct map_point {
    double from;
    int64_t bytes;
};

struct map_level {
    const char *name; /* in the legend, its value included */
    int64_t bytes;
};

/* A stretch of time with a name, marked off by thin lines. */
struct map_stretch {
    const char *name;
    double from, to;
};

struct memory_map {
    const char *title, *note; /* above and below the map */
    const char *x_label;
    double from, to;         /* all the time shown */
    const char *const *tics; /* NULL: numbers; else the names of the times from, from + 1, ... */
    size_t n_tics;
    const char *const *kinds;
    size_t n_kinds;
    const struct map_block *blocks;
    size_t n_blocks;
    const struct map_point *live; /* at least one */
    size_t n_live;
    const struct map_level *levels;
    size_t n_levels;
    const struct map_stretch *stretches;
    size_t n_stretches;
};

/* ERR_USAGE unless the name ends in .png or .svg and nothing but such a picture would be replaced.
 */
int memory_map_check_path(const char *path, struct err *err);

/* Draw to PATH: the whole picture, or nothing. */
int memory_map_draw(const struct memory_map *map, const char *path, struct err *err);

#endif
