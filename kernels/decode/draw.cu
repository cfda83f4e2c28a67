/* Drawing tokens: one block a row, by the steps of kernels/decode/draw_row.h. A row is read once to
 * sum its masses, twice more for each of top_k and top_p, once for what they leave, and then as far
 * as one thread's tokens are to be walked. */
#include "kernels/decode/draw_row.h"
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

static __global__ void __launch_bounds__(DRAW_THREADS) draw_kernel(const struct call_draw call) {
    dependencies_wait();
    dependents_launch();
    __shared__ struct draw_work work;
    draw_row(&call, blockIdx.x, &work);
}

extern "C" cudaError_t kernel_draw(const struct call_draw *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0 ||
        call->n_vocab > DRAW_MAX_VOCAB || !(call->by.top_p >= 0) || !(call->by.temperature > 0)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        launch(draw_kernel, (unsigned)call->n_rows, DRAW_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}
