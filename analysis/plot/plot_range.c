/* The ranges of a figure's axes, and whether numbers over bars fit. */
#include <math.h>
#include <stdio.h>

#include "analysis/plot/plot_impl.h"

static double or_zero(double value) {
    return isfinite(value) ? value : 0;
}

static void widen(struct plot_range *range, double value) {
    if (!isfinite(value)) {
        return;
    }
    range->min = range->any && range->min < value ? range->min : value;
    range->max = range->any && range->max > value ? range->max : value;
    range->min_positive = value > 0 && value < range->min_positive ? value : range->min_positive;
    range->any = true;
}

struct plot_range plot_y_range(const struct panel *panel) {
    struct plot_range range = {.min_positive = INFINITY};
    for (size_t s = 0; s < panel->n_series; s++) {
        const struct plot_series *series = &panel->series[s];
        for (size_t i = 0; i < series->n; i++) {
            const struct plot_point *point = &series->points[i];
            widen(&range, point->y);
            widen(&range, point->low);
            widen(&range, point->high);
            widen(&range, point->paper);
        }
    }
    for (size_t i = 0; panel->kind == PANEL_STACKED && i < panel->n_categories; i++) {
        double sum = 0;
        for (size_t s = 0; s < panel->n_series; s++) {
            sum += or_zero(panel->series[s].points[i].y);
        }
        widen(&range, sum);
    }
    if (range.any && panel->y_line != 0) {
        widen(&range, panel->y_line);
    }
    return range;
}

static struct plot_range x_range(const struct panel *panel) {
    struct plot_range range = {.min_positive = INFINITY};
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t i = 0; i < panel->series[s].n; i++) {
            widen(&range, panel->series[s].points[i].x);
        }
    }
    return range;
}

/* A distance of 1, 2 or 5 times a power of ten between tics, so that their labels do not touch. */
static double tic_step(double span, double max, int width_px) {
    for (int n = 8;; n--) {
        double power = pow(10, floor(log10(span / n)));
        double mantissa = span / n / power;
        double step = power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
        double digits = fmax(1, floor(log10(fmax(max, 1))) + 1);
        digits += step < 1 ? 1 + ceil(-log10(step)) : 0;
        if (n <= 2 || span / step * (digits + 2) * CHARACTER_PX <= width_px) {
            return step;
        }
    }
}

/* A little room left and right, but never across zero; tics of logarithmic axes are gnuplot's to
 * choose. */
void plot_write_x_range(FILE *out, const struct panel *panel, int width_px) {
    struct plot_range range = x_range(panel);
    double span = range.max - range.min;
    if (panel->log_x || !(span > 0)) {
        if (range.min > 0 && span > 0) {
            fprintf(out, "set xrange [%.9g:%.9g]\n", range.min / 1.15, range.max * 1.15);
        } else {
            fputs("set xrange [*:*]\n", out);
        }
        fputs("set xtics nomirror scale 1 autofreq norotate offset 0,0.3\n", out);
        return;
    }
    double low = range.min - 0.03 * span;
    low = low < 0 && range.min >= 0 ? 0 : low;
    double high = range.max + 0.03 * span;
    fprintf(out, "set xrange [%.9g:%.9g]\n", low, high);
    fprintf(out, "set xtics nomirror scale 1 %.9g norotate offset 0,0.3\n",
            tic_step(high - low, fmax(fabs(low), fabs(high)), width_px));
}

struct limits {
    double low, high;
};

/* Of the y axis, without numbers that stand upright. */
static struct limits limits_of(const struct panel *panel, const struct plot_range *range) {
    if (panel->y_max > panel->y_min) {
        return (struct limits){panel->y_min, panel->y_max};
    }
    if (panel->log_y) {
        return (struct limits){pow(10, floor(log10(range->min_positive))),
                               range->max * (panel->values ? 2.2 : 1.4)};
    }
    double head = panel->values ? 1.14 : 1.06;
    struct limits limits = {range->min < 0 ? range->min * head : 0,
                            range->max > 0 ? range->max * head : 0};
    if (limits.high <= limits.low) {
        limits = (struct limits){limits.low - 0.5, limits.high + 0.5};
    }
    return limits;
}

/* The height of a place on the y axis, as a share of the axis. */
static double share_of_axis(const struct panel *panel, struct limits limits, double y) {
    return panel->log_y ? log(y / limits.low) / log(limits.high / limits.low)
                        : (y - limits.low) / (limits.high - limits.low);
}

/* A number over a bar; how many characters it has. */
int plot_value_text(double y, char text[PLOT_VALUE_CHARS]) {
    return snprintf(text, 32, y < 1000 ? "%.3g" : "%.0f", y);
}

/* What a number stands over; a NaN counts nothing. */
double plot_top_of(const struct plot_point *point) {
    return fmax(point->y, fmax(point->high, point->paper));
}

/* Whether the numbers over two bars of one category would touch. */
bool plot_values_touch(const struct layout *layout, const struct panel *panel) {
    struct plot_range range = plot_y_range(panel);
    struct limits limits = limits_of(panel, &range);
    int axis_px = layout->panel_width - LEFT_PX - RIGHT_PX;
    double bar_px = 0.8 / (double)panel->n_series * axis_px / ((double)panel->n_categories + 0.2);
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t other = 0; other < s; other++) {
            for (size_t i = 0; i < panel->n_categories; i++) {
                const struct plot_point *a = &panel->series[s].points[i];
                const struct plot_point *b = &panel->series[other].points[i];
                char text[32];
                if (!isfinite(a->y) || !isfinite(b->y)) {
                    continue;
                }
                int n = plot_value_text(a->y, text) + plot_value_text(b->y, text);
                double apart = fabs(share_of_axis(panel, limits, plot_top_of(a)) -
                                    share_of_axis(panel, limits, plot_top_of(b)));
                if (0.5 * n * VALUE_CHARACTER_PX + 4 > bar_px * (double)(s - other) &&
                    apart * layout->panel_height < VALUE_ROW_PX) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Room above the bars for the longest number, standing upright. */
static struct limits with_room(const struct layout *layout, const struct panel *panel,
                               struct limits limits) {
    double most = 0;
    char text[32];
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t i = 0; i < panel->n_categories; i++) {
            const struct plot_point *point = &panel->series[s].points[i];
            if (isfinite(point->y)) {
                double px = 24 + plot_value_text(point->y, text) * VALUE_CHARACTER_PX;
                most = fmax(most, share_of_axis(panel, limits, plot_top_of(point)) /
                                      (1 - px / layout->panel_height));
            }
        }
    }
    if (most > 1) {
        limits.high = panel->log_y ? limits.low * pow(limits.high / limits.low, most)
                                   : limits.low + most * (limits.high - limits.low);
    }
    return limits;
}

void plot_write_y_range(FILE *out, const struct layout *layout, const struct panel *panel,
                        const struct plot_range *range) {
    struct limits limits = limits_of(panel, range);
    if (panel->kind == PANEL_BARS && panel->values && layout->turns_values) {
        limits = with_room(layout, panel, limits);
    }
    fprintf(out, "%s logscale x\n", panel->log_x ? "set" : "unset");
    fprintf(out, "%s logscale y\n", panel->log_y ? "set" : "unset");
    fprintf(out, "set yrange [%.9g:%.9g]\n", limits.low, limits.high);
}
