/* Drawing tokens: one block a row, by the steps of kernels/decode/draw_row.h. A row is read once to
 * sum its masses, twice more for each of top_k and top_p, once for what they leave, and then as far
 * as one thread's tokens are to be walked. Over ranks a part of it is a kernel. */
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

static __global__ void __launch_bounds__(DRAW_THREADS)
    draw_part_kernel(const struct call_draw_part call) {
    __shared__ struct draw_work work;
    draw_part_row(&call, blockIdx.x, &work);
}

extern "C" cudaError_t kernel_draw(const struct call_draw *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0 ||
        call->n_vocab > DRAW_MAX_VOCAB) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        launch(draw_kernel, (unsigned)call->n_rows, DRAW_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_draw_part(const struct call_draw_part *call, cudaStream_t stream) {
    const struct call_draw *of = &call->of;
    if (of->dtype != KERNEL_BF16 || of->n_rows < 0 || of->n_vocab <= 0 || call->n_ranks < 1 ||
        of->n_vocab > DRAW_MAX_VOCAB / call->n_ranks || call->rank < 0 ||
        call->rank >= call->n_ranks || call->part < 0) {
        return cudaErrorInvalidValue;
    }
    if (of->n_rows > 0) {
        draw_part_kernel<<<(unsigned)of->n_rows, DRAW_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}
