#include "engine/session/session_canvas.h"

uint32_t session_canvas_list(struct sessions *sessions, const struct request *request,
                             uint32_t slot, uint32_t member, int32_t *positions, uint8_t *masked) {
    const struct range run = request->rows.run;
    const uint8_t *is_masked = sessions->masked + sessions->by_slot[slot].canvas;
    uint32_t block_end = request->block_start + request->block_length, n = 0;
    (void)session_blocks_list(&sessions->blocks, request, slot, member, positions, masked);
    const uint8_t *listed = sessions->blocks.words[member].keep;
    for (uint32_t position = run.first; position < run.end; position++) {
        bool in_block = position >= request->block_start && position < block_end;
        if (in_block && request->rows.skips && !listed[position - request->block_start]) {
            continue;
        }
        if (n < request->span.queries) {
            positions[n] = (int32_t)position;
            masked[n] = is_masked[position];
        }
        n++;
    }
    return n;
}
