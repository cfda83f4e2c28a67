#include "experiments/command/plan_picture.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

const struct option picture_options[] = {
    {"picture", "FILE", "draw the plan, offset over time, to FILE.svg", false},
    {NULL, NULL, NULL, false},
};

/* Okabe and Ito's palette, "Color Universal Design" (2008), of which black text can be read on all
 * but the darkest. */
static const char *const colours[] = {"#C4C4C4", "#56B4E9", "#E69F00",
                                      "#CC79A7", "#F0E442", "#009E73"};
static const char *const level_colours[] = {"#D55E00", "#0072B2", "#555555"};
enum {
    N_COLOURS = sizeof colours / sizeof colours[0],
    LEFT = 90,
    TOP = 84,
    HEIGHT = 480, /* plotted */
    LEAST_WIDTH = 900,
    TIME_WIDTH = 44, /* of a time with a name */
    NAMES = 130,     /* below the axis, for names that slant */
    LETTER = 6,      /* as wide, about */
};

/* From times and bytes to pixels. */
struct canvas {
    FILE *out;
    int width; /* plotted */
    int64_t from, to;
    double top_bytes;
};

int plan_picture_check(const struct options *options, bool compares, struct err *err) {
    const char *path = options_text(options, "picture");
    if (path == NULL) {
        return 0;
    }
    if (compares) {
        return err_usage(err, "--picture draws one plan: name one planner instead of all");
    }
    return name_ends(path, ".svg")
               ? output_may_replace(path, "<svg", "an SVG", err)
               : err_usage(err, "'%s': a picture is a file that ends in .svg", path);
}

static double x_of(const struct canvas *c, double time) {
    return LEFT + c->width * (time - (double)c->from) / (double)(c->to - c->from);
}

static double y_of(const struct canvas *c, int64_t bytes) {
    return TOP + HEIGHT * (1 - (double)bytes / c->top_bytes);
}

static void write_text(const struct canvas *c, double x, double y, const char *more,
                       const char *text) {
    fprintf(c->out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    output_xml_text(c->out, text);
    fprintf(c->out, "</text>\n");
}

static void write_line(const struct canvas *c, double x1, double y1, double x2, double y2,
                       const char *more) {
    fprintf(c->out, "<path d=\"M%.1f %.1fL%.1f %.1f\" %s/>\n", x1, y1, x2, y2, more);
}

/* The name, and below it the size, where there is room for them. */
static void write_block(const struct canvas *c, const struct plan_block *b) {
    char size[32];
    double x = x_of(c, (double)b->from), width = x_of(c, (double)b->to) - x;
    double y = y_of(c, b->low_bytes + b->bytes), height = y_of(c, b->low_bytes) - y;
    num_format_bytes(size, sizeof size, (double)b->bytes);
    fprintf(c->out, "<g><title>");
    output_xml_text(c->out, b->name);
    fprintf(c->out,
            ", %s from %" PRId64 " on</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\" fill=\"%s\" stroke=\"#333\" stroke-width=\".6\"/>\n",
            size, b->low_bytes, x, y, width, height, colours[b->kind % N_COLOURS]);
    if (height > 13 && width > LETTER * (double)strlen(b->name)) {
        bool has_two = height > 28;
        write_text(c, x + width / 2, y + height / 2 + (has_two ? -2 : 4), "class=\"m\"", b->name);
        if (has_two && width > LETTER * (double)strlen(size)) {
            write_text(c, x + width / 2, y + height / 2 + 11, "class=\"m\"", size);
        }
    }
    fprintf(c->out, "</g>\n");
}

/* Live bytes change where a block begins or ends. */
static void write_live(const struct canvas *c, const struct plan_map *map) {
    fprintf(c->out, "<path fill=\"none\" stroke=\"#000\" stroke-width=\"2\" d=\"M%d %d", LEFT,
            TOP + HEIGHT);
    for (int64_t at = c->from, next; at < c->to; at = next) {
        int64_t live = 0;
        next = c->to;
        for (size_t i = 0; i < map->n_blocks; i++) {
            const struct plan_block *b = &map->blocks[i];
            live += b->from <= at && at < b->to ? b->bytes : 0;
            next = b->from > at && b->from < next ? b->from : next;
            next = b->to > at && b->to < next ? b->to : next;
        }
        fprintf(c->out, "V%.1fH%.1f", y_of(c, live), x_of(c, (double)next));
    }
    fprintf(c->out, "\"/>\n");
}

static void write_level(const struct canvas *c, const char *name, int64_t bytes, int i) {
    char text[96], size[32], style[64];
    snprintf(text, sizeof text, "%s %s", name, num_format_bytes(size, sizeof size, (double)bytes));
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"",
             level_colours[i], i == 0 ? "16 8" : "4 6");
    write_line(c, LEFT, y_of(c, bytes), LEFT + c->width, y_of(c, bytes), style);
    snprintf(style, sizeof style, "fill=\"%s\" text-anchor=\"end\"", level_colours[i]);
    write_text(c, LEFT + c->width - 220 * i, TOP - 24, style, text);
}

static void write_levels(const struct canvas *c, const struct plan_map *map) {
    if (map->capacity_bytes > 0) {
        write_level(c, "capacity", map->capacity_bytes, 2);
    }
    if (map->peak_bytes == map->lower_bound_bytes) {
        write_level(c, "peak = lower bound", map->peak_bytes, 0);
        return;
    }
    write_level(c, "peak", map->peak_bytes, 0);
    write_level(c, "lower bound", map->lower_bound_bytes, 1);
}

/* The segments of the step graph, each once however often it repeats. */
static void write_segments(const struct canvas *c, const struct graph *graph) {
    for (uint32_t i = 0, first = 0; i < graph->n_ops; i++) {
        const struct segment *segment = &graph->segments[graph->ops[i].segment];
        char text[96];
        if (i + 1 < graph->n_ops && graph->ops[i + 1].segment == graph->ops[i].segment) {
            continue;
        }
        snprintf(text, sizeof text, segment->repeat > 1 ? "%s, %" PRIu32 " times" : "%s",
                 segment->name, segment->repeat);
        write_text(c, (x_of(c, first) + x_of(c, i + 1)) / 2, TOP - 6, "class=\"m\"", text);
        write_line(c, x_of(c, i + 1), TOP - 16, x_of(c, i + 1), TOP + HEIGHT,
                   "stroke=\"#666\" stroke-dasharray=\"2 3\"");
        first = i + 1;
    }
}

static void write_axes(const struct canvas *c, const struct plan_map *map) {
    for (int i = 0; i <= 4; i++) {
        char text[32];
        const int64_t at = c->from + (c->to - c->from) * i / 4;
        double bytes = c->top_bytes * i / 4, time = (double)at;
        write_text(c, LEFT - 8, y_of(c, (int64_t)bytes) + 4, "text-anchor=\"end\"",
                   num_format_bytes(text, sizeof text, bytes));
        snprintf(text, sizeof text, "%.0f", time);
        if (map->times == NULL) {
            write_text(c, x_of(c, time), TOP + HEIGHT + 18, "class=\"m\"", text);
        }
    }
    for (int64_t t = c->from; map->times != NULL && t < c->to; t++) {
        char turn[96];
        double x = x_of(c, (double)t + 0.5), y = TOP + HEIGHT + 12;
        snprintf(turn, sizeof turn, "text-anchor=\"end\" transform=\"rotate(-40 %.1f %.1f)\"", x,
                 y);
        write_text(c, x, y, turn, map->times[t]);
    }
    write_line(c, LEFT, TOP, LEFT, TOP + HEIGHT, "stroke=\"#444\"");
    write_line(c, LEFT, TOP + HEIGHT, LEFT + c->width, TOP + HEIGHT, "stroke=\"#444\"");
    write_text(c, 10, TOP - 24, "", "offset, live bytes (line)");
    write_text(c, LEFT + c->width / 2.0, TOP + HEIGHT + NAMES - 10, "class=\"m\"", map->x_label);
}

static void write_legend(const struct canvas *c, const struct plan_map *map) {
    for (unsigned kind = 0; kind < map->n_kinds && map->n_kinds > 1; kind++) {
        double x = LEFT + 130.0 * kind;
        fprintf(c->out, "<rect x=\"%.1f\" y=\"28\" width=\"14\" height=\"12\" fill=\"%s\"/>\n", x,
                colours[kind % N_COLOURS]);
        write_text(c, x + 20, 39, "", map->kinds[kind]);
    }
}

static void write_map(FILE *out, const struct plan_map *map) {
    struct canvas c = {.out = out, .width = LEAST_WIDTH, .from = INT64_MAX, .to = INT64_MIN};
    int64_t top_bytes = map->capacity_bytes;
    for (size_t i = 0; i < map->n_blocks; i++) {
        const struct plan_block *b = &map->blocks[i];
        c.from = b->from < c.from ? b->from : c.from;
        c.to = b->to > c.to ? b->to : c.to;
        top_bytes = b->low_bytes + b->bytes > top_bytes ? b->low_bytes + b->bytes : top_bytes;
    }
    c.top_bytes = 1.04 * (double)(top_bytes > 0 ? top_bytes : 1);
    if (map->times != NULL && TIME_WIDTH * (c.to - c.from) > c.width) {
        c.width = (int)(TIME_WIDTH * (c.to - c.from));
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<style>.m{text-anchor:middle}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + c.width + 24, TOP + HEIGHT + NAMES);
    write_text(&c, LEFT, 18, "font-size=\"14\"", map->title);
    write_legend(&c, map);
    for (size_t i = 0; i < map->n_blocks; i++) {
        write_block(&c, &map->blocks[i]);
    }
    write_live(&c, map);
    write_levels(&c, map);
    if (map->graph != NULL) {
        write_segments(&c, map->graph);
    }
    write_axes(&c, map);
    fprintf(out, "</svg>\n");
}

int plan_picture_draw(const struct options *options, const struct plan_map *map, struct err *err) {
    const char *path = options_text(options, "picture");
    struct output out;
    if (path == NULL) {
        return 0;
    }
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    write_map(out.file, map);
    return output_close(&out, true, err);
}
