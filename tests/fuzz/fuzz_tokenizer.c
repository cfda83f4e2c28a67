/* Any bytes as a tokenizer.json: one sentence with the file's name, or a tokenizer whose ids stand
 * for the bytes of the text. */
#include <stdlib.h>
#include <string.h>

#include "engine/weights/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "Q: it's 12 * 345\xc2\xbd <|im_end|> e\xcc\x81\n\n  \xe6\x97\xa5 ab\t#### 42";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    if (tokenizer_parse("x.json", (const char *)data, size, &tokenizer, &err) != 0) {
        ASSERT(err.kind == ERR_WORLD && strncmp(err.text, "x.json: ", 8) == 0 && !tokenizer);
        return 0;
    }
    struct token_ids ids = {0};
    tokenizer_begin(tokenizer, &ids);
    int status = tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, &err);
    ASSERT((status == 0) == (err.kind == ERR_NONE));
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
        ASSERT(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_n_ids(tokenizer));
        ASSERT((bytes == NULL) == (n == 0));
    }
    free(tokenizer_decode(tokenizer, ids.ids, ids.n, true, NULL));
    free(ids.ids);
    tokenizer_close(tokenizer);
    return 0;
}
