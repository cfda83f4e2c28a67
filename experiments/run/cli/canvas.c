#include "experiments/run/cli/canvas.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "sim/base/mem.h"

#define MASK_TEXT "\xe2\x96\x91"

bool canvas_open(struct canvas *canvas, FILE *out, const struct tokenizer *tokenizer,
                 int32_t mask) {
    struct winsize size;
    *canvas = (struct canvas){out, tokenizer, mask, 80, 24, 0};
    if (!isatty(fileno(out))) {
        return false;
    }
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && size.ws_row > 1) {
        canvas->columns = size.ws_col;
        canvas->rows = size.ws_row;
    }
    return true;
}

void canvas_clear(struct canvas *canvas) {
    if (canvas->n_drawn > 1) {
        fprintf(canvas->out, "\033[%uA", canvas->n_drawn - 1);
    }
    if (canvas->n_drawn > 0) {
        fprintf(canvas->out, "\r\033[J");
    }
    canvas->n_drawn = 0;
    fflush(canvas->out);
}

/* Tokens between masks are turned into text together: a single token may be half a character. */
static char *text_of(const struct canvas *canvas, const int32_t *tokens, uint32_t n) {
    char *text = NULL;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        while (end < n && tokens[end] != canvas->mask) {
            end++;
        }
        char *part = tokenizer_decode(canvas->tokenizer, tokens + i, end - i, false, NULL);
        fputs(part, out);
        free(part);
        for (i = end; i < n && tokens[i] == canvas->mask; i++) {
            fputs(MASK_TEXT, out);
        }
    }
    mem_stream_close(out);
    return text;
}

/* Where each row of a text begins on the terminal, which breaks long lines; rows[0..n) */
static size_t break_rows(const struct canvas *canvas, const char *text, const char **rows,
                         size_t room) {
    size_t n = 0;
    unsigned used = 0;
    rows[n++] = text;
    for (const char *at = text; *at != '\0' && n < room;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)at, -1, &c);
        unsigned width = length > 0 && c >= 32 ? (unsigned)utf8proc_charwidth(c) : 0;
        if (*at == '\n') {
            rows[n++] = at + 1;
            used = 0;
        } else if (used + width > canvas->columns - 1) {
            rows[n++] = at;
            used = width;
        } else {
            used += width;
        }
        at += length > 0 ? length : 1;
    }
    return n;
}

/* Without what would move the cursor. */
static void put_row(FILE *out, const char *from, const char *end) {
    for (; from < end && *from != '\n'; from++) {
        if ((unsigned char)*from >= 32 && *from != 127) {
            fputc(*from, out);
        }
    }
}

void canvas_draw(struct canvas *canvas, const int32_t *tokens, uint32_t n) {
    char *text = text_of(canvas, tokens, n);
    size_t room = strlen(text) + 2;
    const char **rows = mem_unwritten(room, sizeof *rows);
    size_t n_rows = break_rows(canvas, text, rows, room);
    size_t first = n_rows >= canvas->rows ? n_rows - canvas->rows + 1 : 0;
    canvas_clear(canvas);
    for (size_t i = first; i < n_rows; i++) {
        put_row(canvas->out, rows[i], i + 1 < n_rows ? rows[i + 1] : text + strlen(text));
        fputs(i + 1 < n_rows ? "\n" : "", canvas->out);
    }
    canvas->n_drawn = (unsigned)(n_rows - first);
    fflush(canvas->out);
    free(rows);
    free(text);
}
