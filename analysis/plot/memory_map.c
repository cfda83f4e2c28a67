#include "analysis/plot/memory_map.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analysis/output.h"
#include "analysis/plot/gnuplot.h"

/* Okabe and Ito's palette, "Color Universal Design" (2008), of which black text can be read on all
 * but the darkest. */
static const char *const colours[MEMORY_MAP_MOST_KINDS] = {"#C4C4C4", "#56B4E9", "#E69F00",
                                                           "#CC79A7", "#F0E442", "#009E73"};
static const char *const level_colours[] = {"#D55E00", "#0072B2", "#555555"};
enum { N_LEVEL_COLOURS = sizeof level_colours / sizeof level_colours[0] };

static const char live_name[] = "live bytes";

/* Strips, margins and texts in pixels of the SVG. */
enum {
    LEFT_PX = 84,
    RIGHT_PX = 24,
    TITLE_PX = 34,
    LEGEND_ROW_PX = 22,
    LEGEND_SAMPLE_PX = 56,
    LEGEND_CHARACTER_PX = 10, /* as wide as gnuplot takes them to be when it makes columns */
    STRETCH_PX = 20,
    ALONE_PX = 470, /* plotted height, of one view and of each of two */
    PAIRED_PX = 350,
    BETWEEN_PX = 34,
    AXIS_LABEL_PX = 26,
    NUMBERS_PX = 28,
    NOTE_PX = 18,
    TIC_PX = 52,           /* of an operator's column */
    NUMBERED_PX = 1000,    /* the plotted width where tics are numbers */
    LEAST_WIDTH_PX = 760,  /* plotted */
    CHARACTER_PX = 6,      /* of the 9-point font, about */
    NOTE_CHARACTER_PX = 7, /* of the same in a PNG, where it is widest */
    LINE_PX = 13,          /* from one line of text to the next */
    MOST_LINES = 5,
    LINE_CHARS = 64,
};

/* The map up to some offset: all of it, or its lower part once more, magnified. */
struct view {
    double unit_bytes; /* of the axis */
    const char *unit;
    double top; /* of the axis, in units */
    int top_px;
};

struct layout {
    const struct memory_map *map;
    int width, height; /* of the picture */
    int plot_width, plot_height, legend_columns, legend_rows, stretch_px;
    struct view views[2];
    int n_views;
    bool png;
};

/* ---- the file ---- */

static bool ends_in(const char *path, const char *suffix) {
    size_t length = strlen(path), n = strlen(suffix);
    return length > n && strcmp(path + length - n, suffix) == 0;
}

int memory_map_check_path(const char *path, struct err *err) {
    if (strpbrk(path, "\n\r") != NULL || (!ends_in(path, ".png") && !ends_in(path, ".svg"))) {
        return err_usage(err, "'%s': a picture is a file that ends in .png or .svg", path);
    }
    bool png = ends_in(path, ".png");
    return output_may_replace(path, png ? "\x89PNG" : "<?xml", png ? "a PNG" : "an SVG", err);
}

/* ---- layout ---- */

static int64_t highest_bytes(const struct memory_map *map) {
    int64_t most = 1;
    for (size_t i = 0; i < map->n_blocks; i++) {
        most = map->blocks[i].high_bytes > most ? map->blocks[i].high_bytes : most;
    }
    for (size_t i = 0; i < map->n_levels; i++) {
        most = map->levels[i].bytes > most ? map->levels[i].bytes : most;
    }
    return most;
}

static struct view view_up_to(double bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    double unit_bytes = 1;
    while (i + 1 < sizeof units / sizeof units[0] && bytes >= 1024 * unit_bytes) {
        unit_bytes *= 1024;
        i++;
    }
    return (struct view){unit_bytes, units[i], 1.04 * bytes / unit_bytes, 0};
}

/* Where one stretch dwarfs the others: how high these reach; 0 where none does. */
static int64_t dwarfed_bytes(const struct memory_map *map) {
    int64_t most = 0, second = 0;
    for (size_t s = 0; s < map->n_stretches; s++) {
        int64_t end = 0;
        for (size_t i = 0; i < map->n_blocks; i++) {
            const struct map_block *b = &map->blocks[i];
            bool begins = map->stretches[s].from <= b->from && b->from < map->stretches[s].to;
            end = begins && b->high_bytes > end ? b->high_bytes : end;
        }
        second = end > most ? most : end > second ? end : second;
        most = end > most ? end : most;
    }
    return second < most / 8 ? second : 0;
}

static int longest_tic(const struct memory_map *map) {
    size_t length = 0;
    for (size_t i = 0; i < map->n_tics; i++) {
        length = strlen(map->tics[i]) > length ? strlen(map->tics[i]) : length;
    }
    return (int)length;
}

static bool has_kind(const struct memory_map *map, size_t kind) {
    for (size_t i = 0; i < map->n_blocks; i++) {
        if (map->blocks[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static void lay_out_legend(struct layout *layout) {
    const struct memory_map *map = layout->map;
    int n_entries = 1, longest = (int)strlen(live_name);
    for (size_t i = 0; i < map->n_kinds; i++) {
        int length = (int)strlen(map->kinds[i]);
        n_entries += has_kind(map, i);
        longest = length > longest ? length : longest;
    }
    for (size_t i = 0; i < map->n_levels; i++) {
        int length = (int)strlen(map->levels[i].name);
        n_entries++;
        longest = length > longest ? length : longest;
    }
    int fit = layout->width / (LEGEND_SAMPLE_PX + LEGEND_CHARACTER_PX * longest);
    fit = fit < 1 ? 1 : fit;
    layout->legend_rows = (n_entries + fit - 1) / fit;
    layout->legend_columns = (n_entries + layout->legend_rows - 1) / layout->legend_rows;
}

static void lay_out(const struct memory_map *map, bool png, struct layout *layout) {
    *layout = (struct layout){.map = map, .png = png, .n_views = 1};
    layout->views[0] = view_up_to((double)highest_bytes(map));
    int64_t dwarfed = dwarfed_bytes(map);
    if (dwarfed > 0) {
        layout->views[layout->n_views++] = view_up_to((double)dwarfed);
    }
    int width = map->tics == NULL ? NUMBERED_PX : TIC_PX * (int)map->n_tics;
    layout->plot_width = width < LEAST_WIDTH_PX ? LEAST_WIDTH_PX : width;
    layout->plot_height = layout->n_views == 1 ? ALONE_PX : PAIRED_PX;
    layout->width = LEFT_PX + layout->plot_width + RIGHT_PX;
    lay_out_legend(layout);
    layout->stretch_px = map->n_stretches > 0 ? STRETCH_PX : 6;
    int y = TITLE_PX + layout->legend_rows * LEGEND_ROW_PX + layout->stretch_px;
    for (int i = 0; i < layout->n_views; i++) {
        y += i > 0 ? BETWEEN_PX : 0;
        layout->views[i].top_px = y;
        y += layout->plot_height;
    }
    /* Names slant by 40 degrees. */
    int slant_px = map->tics == NULL ? 0 : (int)(0.65 * CHARACTER_PX * longest_tic(map));
    layout->height = y + NUMBERS_PX + slant_px + AXIS_LABEL_PX + NOTE_PX;
}

/* ---- text in rectangles ---- */

struct text {
    char line[MOST_LINES][LINE_CHARS];
    int n_lines;
    bool upright;
    double x[MOST_LINES], y[MOST_LINES]; /* centres; on the axes */
    double half_width[MOST_LINES], half_height[MOST_LINES];
};

/* Words in lines of at most `most_chars`; false when a word is longer or the lines are too many. */
static bool wrap(const char *words, int most_chars, int most_lines, struct text *out) {
    *out = (struct text){0};
    most_chars = most_chars < LINE_CHARS - 1 ? most_chars : LINE_CHARS - 1;
    while (*words != '\0') {
        int length = (int)strcspn(words, " ");
        char *line = out->n_lines > 0 ? out->line[out->n_lines - 1] : NULL;
        int used = line != NULL ? (int)strlen(line) : 0;
        if (length > most_chars) {
            return false;
        }
        if (line != NULL && used + 1 + length <= most_chars) {
            snprintf(line + used, (size_t)(LINE_CHARS - used), " %.*s", length, words);
        } else if (out->n_lines == most_lines) {
            return false;
        } else {
            snprintf(out->line[out->n_lines++], LINE_CHARS, "%.*s", length, words);
        }
        words += length;
        words += strspn(words, " ");
    }
    return out->n_lines > 0;
}

/* The name and, where there is room left, the size; upright in what is high and narrow. False where
 * not even the name fits. */
static bool place_text(const struct layout *layout, const struct view *view,
                       const struct map_block *block, struct text *out) {
    double px_x = (layout->map->to - layout->map->from) / layout->plot_width;
    double px_y = view->top / layout->plot_height;
    double low = (double)block->low_bytes / view->unit_bytes;
    double high = (double)block->high_bytes / view->unit_bytes;
    if (low >= view->top) {
        return false;
    }
    high = high < view->top ? high : view->top;
    int width = (int)((block->to - block->from) / px_x) - 6, height = (int)((high - low) / px_y);
    int most_lines = height / LINE_PX < MOST_LINES ? height / LINE_PX : MOST_LINES;
    if (wrap(block->name, width / CHARACTER_PX, most_lines, out)) {
        int size_chars = block->size != NULL ? (int)strlen(block->size) : LINE_CHARS;
        if (out->n_lines < most_lines && size_chars <= width / CHARACTER_PX) {
            snprintf(out->line[out->n_lines++], LINE_CHARS, "%s", block->size);
        }
    } else if (width + 6 >= LINE_PX && height > width &&
               wrap(block->name, (height - 6) / CHARACTER_PX, 1, out)) {
        out->upright = true;
    } else {
        return false;
    }
    for (int i = 0; i < out->n_lines; i++) {
        double along = 0.5 * CHARACTER_PX * (double)strlen(out->line[i]), across = 0.45 * LINE_PX;
        out->x[i] = 0.5 * (block->from + block->to);
        out->y[i] = 0.5 * (low + high) - (i - 0.5 * (out->n_lines - 1)) * LINE_PX * px_y;
        out->half_width[i] = px_x * (out->upright ? across : along);
        out->half_height[i] = px_y * (out->upright ? along : across);
    }
    return true;
}

/* The texts, and under them grounds of the rectangles' colours, so that no line runs through. */
static void write_texts(FILE *out, const struct layout *layout, const struct view *view) {
    const struct memory_map *map = layout->map;
    struct text text;
    for (size_t kind = 0; kind < map->n_kinds; kind++) {
        fprintf(out, "$ground%zu << EOD\n", kind);
        for (size_t i = 0; i < map->n_blocks; i++) {
            bool fits =
                map->blocks[i].kind == kind && place_text(layout, view, &map->blocks[i], &text);
            for (int k = 0; fits && k < text.n_lines; k++) {
                double x = text.x[k], y = text.y[k];
                fprintf(out, "%.17g %.17g %.9g %.9g\n", x - text.half_width[k],
                        x + text.half_width[k], y - text.half_height[k], y + text.half_height[k]);
            }
        }
        fputs("EOD\n", out);
    }
    for (size_t i = 0; i < map->n_blocks; i++) {
        bool fits = place_text(layout, view, &map->blocks[i], &text);
        for (int k = 0; fits && k < text.n_lines; k++) {
            fputs("set label ", out);
            gnuplot_quote(out, text.line[k]);
            fprintf(out, " at first %.17g, first %.9g center %s font ',9' front\n", text.x[k],
                    text.y[k], text.upright ? "rotate by 90" : "norotate");
        }
    }
}

/* ---- the script ---- */

static void write_data(FILE *out, const struct memory_map *map) {
    for (size_t kind = 0; kind < map->n_kinds; kind++) {
        fprintf(out, "$kind%zu << EOD\n", kind);
        for (size_t i = 0; i < map->n_blocks; i++) {
            const struct map_block *b = &map->blocks[i];
            if (b->kind == kind) {
                fprintf(out, "%.17g %.17g %" PRId64 " %" PRId64 "\n", b->from, b->to, b->low_bytes,
                        b->high_bytes);
            }
        }
        fputs("EOD\n", out);
    }
    fputs("$live << EOD\n", out);
    for (size_t i = 0; i < map->n_live; i++) {
        double end = i + 1 < map->n_live ? map->live[i + 1].from : map->to;
        fprintf(out, "%.17g %" PRId64 "\n%.17g %" PRId64 "\n", map->live[i].from,
                map->live[i].bytes, end, map->live[i].bytes);
    }
    fputs("EOD\n", out);
}

/* What belongs to no view, drawn with the first: title, legend, note. */
static void write_frame(FILE *out, const struct layout *layout) {
    const struct memory_map *map = layout->map;
    double height = layout->height;
    fputs("set label ", out);
    gnuplot_quote(out, map->title);
    fprintf(out, " at screen 0.5, screen %.6f center font ',13'\n", 1 - 0.55 * TITLE_PX / height);
    char note[256];
    snprintf(note, sizeof note, "%.*s", layout->width / NOTE_CHARACTER_PX, map->note);
    fputs("set label ", out);
    gnuplot_quote(out, note);
    fprintf(out, " at screen 0.5, screen %.6f center font ',9' tc rgb '#555555'\n",
            0.5 * NOTE_PX / height);
    fprintf(out,
            "set key center center at screen 0.5, screen %.6f horizontal maxcols %d maxrows %d "
            "samplen 3 spacing 1.1 Left reverse\n",
            1 - (TITLE_PX + 0.5 * layout->legend_rows * LEGEND_ROW_PX) / height,
            layout->legend_columns, layout->legend_rows);
}

static void write_times(FILE *out, const struct layout *layout) {
    const struct memory_map *map = layout->map;
    fputs("set label ", out);
    gnuplot_quote(out, map->x_label);
    fprintf(out, " at graph 0.5, screen %.6f center\n",
            (NOTE_PX + 0.5 * AXIS_LABEL_PX) / layout->height);
    if (map->tics == NULL) {
        fputs("set format x '%.12g'\nset xtics nomirror out autofreq\n", out);
        return;
    }
    fputs("set xtics nomirror out scale 0.4 rotate by 40 right offset 0.4,0.2 font ',9' (", out);
    for (size_t i = 0; i < map->n_tics; i++) {
        fputs(i > 0 ? ", " : "", out);
        gnuplot_quote(out, map->tics[i]);
        fprintf(out, " %.9g", map->from + (double)i + 0.5);
    }
    fputs(")\n", out);
}

static void write_axes(FILE *out, const struct layout *layout, const struct view *view) {
    const struct memory_map *map = layout->map;
    double width = layout->width, height = layout->height;
    fprintf(out, "set lmargin at screen %.6f\nset rmargin at screen %.6f\n", LEFT_PX / width,
            (LEFT_PX + layout->plot_width) / width);
    fprintf(out, "set tmargin at screen %.6f\nset bmargin at screen %.6f\n",
            1 - view->top_px / height, 1 - (view->top_px + layout->plot_height) / height);
    fprintf(out, "set xrange [%.17g:%.17g]\nset yrange [0:%.9g]\n", map->from, map->to, view->top);
    fprintf(out,
            "set border 3 lc rgb '#444444'\nset ytics nomirror out offset 0.4,0\n"
            "set ylabel 'offset, live bytes (%s)'\n",
            view->unit);
}

static void write_stretches(FILE *out, const struct layout *layout) {
    const struct memory_map *map = layout->map;
    double px = (map->to - map->from) / layout->plot_width;
    double above = (double)layout->stretch_px / layout->plot_height;
    for (size_t i = 0; i < map->n_stretches; i++) {
        const struct map_stretch *s = &map->stretches[i];
        fprintf(out,
                "set arrow from first %.17g, graph 0 to first %.17g, graph %.6f nohead lw 0.8 dt 3 "
                "lc rgb '#666666' front\n",
                s->from, s->from, 1 + above);
        if ((int)((s->to - s->from) / px) >= CHARACTER_PX * (int)strlen(s->name)) {
            fputs("set label ", out);
            gnuplot_quote(out, s->name);
            fprintf(out, " at first %.17g, graph %.6f center font ',9' tc rgb '#444444'\n",
                    0.5 * (s->from + s->to), 1 + 0.5 * above);
        }
    }
}

/* Rectangles first, then live bytes (on white, to be seen on any colour), the levels, and the
 * grounds of the texts. */
static void write_curves(FILE *out, const struct layout *layout, const struct view *view) {
    const struct memory_map *map = layout->map;
    double unit = view->unit_bytes;
    const char *separator = "plot ";
    for (size_t kind = 0; kind < map->n_kinds; kind++) {
        if (!has_kind(map, kind)) {
            continue;
        }
        fprintf(out,
                "%s$kind%zu using 1:($3/%.0f):1:2:($3/%.0f):($4/%.0f) with boxxyerror fs solid 1 "
                "border rgb '#333333' fc rgb '%s' lw 0.7 title ",
                separator, kind, unit, unit, unit, colours[kind]);
        gnuplot_quote(out, map->kinds[kind]);
        separator = ", ";
    }
    fprintf(out,
            "%s$live using 1:($2/%.0f) with lines lw 3.6 lc rgb '#FFFFFF' notitle, "
            "$live using 1:($2/%.0f) with lines lw 1.8 lc rgb '#000000' title '%s'",
            separator, unit, unit, live_name);
    for (size_t i = 0; i < map->n_levels; i++) {
        fprintf(out, ", %.9g with lines lw 2 dt %s lc rgb '%s' title ",
                (double)map->levels[i].bytes / unit, i == 0 ? "(16,8)" : "(4,6)",
                level_colours[i % N_LEVEL_COLOURS]);
        gnuplot_quote(out, map->levels[i].name);
    }
    for (size_t kind = 0; kind < map->n_kinds; kind++) {
        if (has_kind(map, kind)) {
            fprintf(out,
                    ", $ground%zu using 1:3:1:2:3:4 with boxxyerror fs solid 1 noborder fc rgb "
                    "'%s' notitle",
                    kind, colours[kind]);
        }
    }
    fputc('\n', out);
}

static void write_view(FILE *out, const struct layout *layout, int i) {
    const struct view *view = &layout->views[i];
    fputs("unset label\nunset arrow\nunset key\nset format x ''\nset xtics scale 0 autofreq\n",
          out);
    if (i == 0) {
        write_frame(out, layout);
        write_stretches(out, layout);
    } else {
        fputs("set label 'the same, magnified' at graph 0, graph 1 offset 0.5,0.8 font ',9' "
              "tc rgb '#444444'\n",
              out);
    }
    write_axes(out, layout, view);
    if (i + 1 == layout->n_views) {
        write_times(out, layout);
    }
    write_texts(out, layout, view);
    write_curves(out, layout, view);
}

static void write_script(FILE *out, const struct layout *layout, const char *path) {
    write_data(out, layout->map);
    gnuplot_set_output(out, path, layout->png ? GNUPLOT_PNG : GNUPLOT_SVG, layout->width,
                       layout->height);
    fputs("set multiplot\n", out);
    for (int i = 0; i < layout->n_views; i++) {
        write_view(out, layout, i);
    }
    fputs("unset multiplot\nunset output\n", out);
}

static int draw(const struct layout *layout, const char *path, struct err *err) {
    FILE *script = tmpfile();
    if (script == NULL) {
        return err_world(err, "cannot make a temporary file for gnuplot: %s", strerror(errno));
    }
    write_script(script, layout, path);
    int status = gnuplot_run(script, err);
    fclose(script);
    return status == 0 ? gnuplot_check_output(path, "", err) : status;
}

int memory_map_draw(const struct memory_map *map, const char *path, struct err *err) {
    ASSERT(map->n_kinds <= MEMORY_MAP_MOST_KINDS && map->n_live > 0 && map->to > map->from);
    char beside[4096];
    int status = memory_map_check_path(path, err);
    if (status != 0) {
        return status;
    }
    if (snprintf(beside, sizeof beside, "%s.part", path) >= (int)sizeof beside) {
        return err_usage(err, "'%.60s...': the name of the picture is too long", path);
    }
    FILE *file = fopen(beside, "w");
    if (file == NULL) {
        return err_world(err, "cannot write '%s': %s", path, strerror(errno));
    }
    fclose(file);
    struct layout layout;
    lay_out(map, ends_in(path, ".png"), &layout);
    status = draw(&layout, beside, err);
    if (status == 0 && rename(beside, path) != 0) {
        status = err_world(err, "cannot write '%s': %s", path, strerror(errno));
    }
    if (status != 0) {
        remove(beside);
    }
    return status;
}
