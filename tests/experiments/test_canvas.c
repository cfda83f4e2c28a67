/* A canvas as a terminal is sent it. */
#include "experiments/run/cli/canvas.h"
#include "tests/support/scratch.h"

enum { MASK = 1000 };

/* One draw on an empty terminal of so many columns and rows. */
static char *drawn(struct canvas *canvas, const int32_t *tokens, uint32_t n) {
    char *text = NULL;
    size_t size;
    canvas->out = open_memstream(&text, &size);
    canvas_draw(canvas, tokens, n);
    fclose(canvas->out);
    return text;
}

#define BLOCK "\xe2\x96\x91"

TEST(masks_fill_in_and_rows_are_drawn_over_themselves) {
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    struct token_ids ids = {0};
    char *json = scratch_read("experiments/train/models/sdar-2m/tokenizer.json");
    ck_assert_int_eq(tokenizer_parse("x", json, strlen(json), &tokenizer, &err), 0);
    free(json);
    /* Half of a character, and what would move the cursor, are shown as harmless. */
    ck_assert_int_eq(tokenizer_encode(tokenizer, "12\n3\r4", 6, &ids, &err), 0);
    ck_assert_uint_eq(ids.n, 6);
    struct canvas canvas = {.tokenizer = tokenizer, .mask = MASK, .columns = 20, .rows = 4};
    const int32_t first[] = {MASK, ids.ids[1], MASK};
    char *text = drawn(&canvas, first, 3);
    ck_assert_str_eq(text, BLOCK "2" BLOCK);
    ck_assert_uint_eq(canvas.n_drawn, 1);
    free(text);
    text = drawn(&canvas, ids.ids, 6);
    ck_assert_str_eq(text, "\r\033[J12\n34");
    ck_assert_uint_eq(canvas.n_drawn, 2);
    free(text);
    /* Up to the first row; a long line is broken, and of too many rows the last ones stay. */
    int32_t many[100];
    for (int i = 0; i < 100; i++) {
        many[i] = i < 30 ? ids.ids[0] : i == 30 ? ids.ids[2] : MASK;
    }
    text = drawn(&canvas, many, 32);
    ck_assert_str_eq(text, "\033[1A\r\033[J1111111111111111111\n11111111111\n" BLOCK);
    ck_assert_uint_eq(canvas.n_drawn, 3);
    free(text);
    text = drawn(&canvas, many, 100);
    ck_assert_uint_eq(canvas.n_drawn, 3);
    ck_assert_ptr_null(strstr(text, "1\n"));
    free(text);
    free(ids.ids);
    tokenizer_close(tokenizer);
}

SUITE("canvas")
