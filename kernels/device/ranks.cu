/* Sums over ranks and gatherings of what they have, by writing into each other's memory.
 *
 * A block sends its part to the blocks of the same number on the other ranks, then raises a word
 * there, waits until theirs are raised here, and goes on with what it was sent. Nothing else is
 * synchronised. A rank's next call but one writes where this one reads: by then every other rank
 * has begun its next call, and so has ended this one. Sums are added in the order of the ranks, so
 * that all have the same bits. */
#include "kernels/device.cuh"
#include "kernels/device/ranks.cuh"
#include "kernels/kernels.h"
#include "kernels/launches.h"

enum { THREADS = RANKS_THREADS, IN_FLIGHT = 4 };

/* A rank that does not come within this many nanoseconds has stopped. */
static const uint64_t PATIENCE_NS = 120ull * 1000 * 1000 * 1000;

static __device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Everything that this thread's block has written before, whoever's memory it is in, is seen by
 * whoever sees the word. */
static __device__ __forceinline__ void raise_word(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

static __device__ __forceinline__ void await_word(const uint32_t *word, uint32_t value) {
    const uint64_t begin = now_ns();
    uint32_t seen;
    do {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
        if (now_ns() - begin > PATIENCE_NS) {
            __trap();
        }
    } while ((int32_t)(seen - value) < 0);
}

/* How many calls there have been with this one. The block that reads it last moves it on, for the
 * next call. */
static __device__ __forceinline__ uint32_t count_call(struct rank_words *words) {
    __shared__ uint32_t shared;
    if (threadIdx.x == 0) {
        const uint32_t n = *reinterpret_cast<volatile uint32_t *>(&words->n_calls);
        __threadfence();
        if (atomicAdd(&words->n_readers, 1) == gridDim.x - 1) {
            words->n_readers = 0;
            words->n_calls = n + 1;
        }
        shared = n + 1;
    }
    __syncthreads();
    return shared;
}

/* The block's word on every other rank, and theirs here. */
static __device__ __forceinline__ void meet(const struct rank_peers &peers, int round,
                                            uint32_t call) {
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other < peers.n && other != peers.rank) {
        __threadfence_system();
        raise_word(&peers.words[other]->sent[round][blockIdx.x][peers.rank], call);
        await_word(&peers.words[peers.rank]->sent[round][blockIdx.x][other], call);
    }
    __syncthreads();
}

template <typename T> struct sixteen; /* bytes, as floats */

template <> struct sixteen<__nv_bfloat16> {
    float x[8] = {};
    __device__ __forceinline__ void add(const uint4 &v) {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] += __uint_as_float(words[i] << 16);
            x[2 * i + 1] += __uint_as_float(words[i] & 0xffff0000u);
        }
    }
    __device__ __forceinline__ uint4 round() const {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            words[i] = *reinterpret_cast<const uint32_t *>(&pair);
        }
        return {words[0], words[1], words[2], words[3]};
    }
};

template <> struct sixteen<float> {
    float x[4] = {};
    __device__ __forceinline__ void add(const uint4 &v) {
        x[0] += __uint_as_float(v.x);
        x[1] += __uint_as_float(v.y);
        x[2] += __uint_as_float(v.z);
        x[3] += __uint_as_float(v.w);
    }
    __device__ __forceinline__ uint4 round() const {
        return {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                __float_as_uint(x[3])};
    }
};

/* From global memory past the first-level cache, which does not see what others write. */
static __device__ __forceinline__ uint4 fetch(const uint4 *from) {
    return __ldcg(from);
}

/* The block's own of the vectors [begin, end): its share of them, a multiple of a row of threads.
 */
struct share {
    int64_t begin, end;
};

static __device__ __forceinline__ struct share share_of(int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const int64_t each = (n + gridDim.x - 1) / gridDim.x;
    struct share share = {begin + each * blockIdx.x, begin + each * (blockIdx.x + 1)};
    share.begin = share.begin < end ? share.begin : end;
    share.end = share.end < end ? share.end : end;
    return share;
}

static __device__ __forceinline__ uint4 *slot_of(const struct rank_peers &peers, int rank,
                                                 uint32_t call) {
    return reinterpret_cast<uint4 *>(peers.staging[rank] + (call & 1) * (int64_t)RANKS_SLOT_BYTES);
}

/* Vectors of x to the same offsets from `to`. */
static __device__ __forceinline__ void send(const uint4 *x, uint4 *to, struct share share) {
    for (int64_t base = share.begin + threadIdx.x; base < share.end;
         base += (int64_t)THREADS * IN_FLIGHT) {
        uint4 v[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            if (base + i * THREADS < share.end) {
                v[i] = fetch(x + base + i * THREADS);
            }
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            if (base + i * THREADS < share.end) {
                to[base + i * THREADS] = v[i];
            }
        }
    }
}

/* Everybody has everything: slot[g] is what rank g sent, `stride` vectors apart. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    direct_kernel(const struct rank_peers peers, const uint4 *x, uint4 *y, int64_t n_vectors) {
    const uint32_t call = count_call(peers.words[peers.rank]);
    const struct share share = share_of(0, n_vectors);
    const int64_t stride = n_vectors;
    for (int i = 1; i < N; i++) {
        const int other = (peers.rank + i) % N;
        send(x, slot_of(peers, other, call) + peers.rank * stride, share);
    }
    meet(peers, 0, call);
    const uint4 *slot = slot_of(peers, peers.rank, call);
    for (int64_t base = share.begin + threadIdx.x; base < share.end; base += (int64_t)THREADS * 2) {
        uint4 v[2][N];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int rank = 0; rank < N; rank++) {
                if (base + i * THREADS < share.end) {
                    v[i][rank] =
                        fetch((rank == peers.rank ? x : slot + rank * stride) + base + i * THREADS);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (base + i * THREADS < share.end) {
                struct sixteen<T> sum;
#pragma unroll
                for (int rank = 0; rank < N; rank++) {
                    sum.add(v[i][rank]);
                }
                y[base + i * THREADS] = sum.round();
            }
        }
    }
}

/* Rank r adds up the r-th of N slices and sends the sum. A slot holds what N ranks sent of the
 * slice, then all slices' sums. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    sliced_kernel(const struct rank_peers peers, const uint4 *x, uint4 *y, int64_t n_vectors) {
    const uint32_t call = count_call(peers.words[peers.rank]);
    const int64_t slice = (n_vectors + N - 1) / N;
    struct share shares[N];
#pragma unroll
    for (int rank = 0; rank < N; rank++) {
        const int64_t begin = rank * slice < n_vectors ? rank * slice : n_vectors;
        const int64_t end = begin + slice < n_vectors ? begin + slice : n_vectors;
        shares[rank] = share_of(begin, end);
    }
    for (int i = 1; i < N; i++) {
        const int other = (peers.rank + i) % N;
        const int64_t begin = other * slice < n_vectors ? other * slice : n_vectors;
        /* A vector's place in its slice is its place in the sender's part of the slot. */
        send(x, slot_of(peers, other, call) + peers.rank * slice - begin, shares[other]);
    }
    meet(peers, 0, call);
    const int64_t first = peers.rank * slice < n_vectors ? peers.rank * slice : n_vectors;
    const uint4 *slot = slot_of(peers, peers.rank, call);
    const struct share mine = shares[peers.rank];
    for (int64_t at = mine.begin + threadIdx.x; at < mine.end; at += THREADS) {
        uint4 v[N];
#pragma unroll
        for (int rank = 0; rank < N; rank++) {
            v[rank] = fetch(rank == peers.rank ? x + at : slot + rank * slice + at - first);
        }
        struct sixteen<T> sum;
#pragma unroll
        for (int rank = 0; rank < N; rank++) {
            sum.add(v[rank]);
        }
        const uint4 rounded = sum.round();
#pragma unroll
        for (int i = 1; i < N; i++) {
            slot_of(peers, (peers.rank + i) % N, call)[N * slice + at] = rounded;
        }
        y[at] = rounded;
    }
    meet(peers, 1, call);
    for (int i = 1; i < N; i++) {
        const int other = (peers.rank + i) % N;
        send(slot + N * slice, y, shares[other]);
    }
}

static __global__ void __launch_bounds__(THREADS)
    gather_kernel(const struct rank_peers peers, const uint32_t *x, uint32_t *y, int64_t n_words,
                  int64_t stride_words) {
    const uint32_t call = count_call(peers.words[peers.rank]);
    const struct share share = share_of(0, n_words);
    for (int64_t at = share.begin + threadIdx.x; at < share.end; at += THREADS) {
        const uint32_t word = x[at];
        for (int i = 1; i < peers.n; i++) {
            const int other = (peers.rank + i) % peers.n;
            reinterpret_cast<uint32_t *>(slot_of(peers, other, call))[peers.rank * n_words + at] =
                word;
        }
        y[peers.rank * stride_words + at] = word;
    }
    meet(peers, 0, call);
    const uint32_t *slot = reinterpret_cast<const uint32_t *>(slot_of(peers, peers.rank, call));
    for (int i = 1; i < peers.n; i++) {
        const int other = (peers.rank + i) % peers.n;
        for (int64_t at = share.begin + threadIdx.x; at < share.end; at += THREADS) {
            y[other * stride_words + at] = __ldcg(slot + other * n_words + at);
        }
    }
}

static unsigned blocks_for(int64_t n) {
    const int64_t blocks = (n + THREADS - 1) / THREADS, most = RANKS_MAX_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

template <typename T, int N>
static void start(const struct rank_peers *peers, const void *x, void *y, int64_t bytes,
                  cudaStream_t stream) {
    const int64_t n_vectors = bytes / (int64_t)sizeof(uint4);
    const uint4 *from = static_cast<const uint4 *>(x);
    uint4 *to = static_cast<uint4 *>(y);
    if (N == 2 || bytes <= RANKS_DIRECT_BYTES) {
        direct_kernel<T, N>
            <<<blocks_for(n_vectors), THREADS, 0, stream>>>(*peers, from, to, n_vectors);
    } else {
        sliced_kernel<T, N>
            <<<blocks_for(n_vectors / N), THREADS, 0, stream>>>(*peers, from, to, n_vectors);
    }
}

template <typename T>
static cudaError_t start_among(const struct rank_peers *peers, const void *x, void *y,
                               int64_t bytes, cudaStream_t stream) {
    switch (peers->n) {
    case 2:
        start<T, 2>(peers, x, y, bytes, stream);
        break;
    case 4:
        start<T, 4>(peers, x, y, bytes, stream);
        break;
    case 8:
        start<T, 8>(peers, x, y, bytes, stream);
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

cudaError_t ranks_all_reduce(const struct rank_peers *peers, const void *x, void *y, int64_t bytes,
                             enum kernel_dtype dtype, cudaStream_t stream) {
    if (bytes < 0 || bytes > RANKS_MOST_BYTES || bytes % (int64_t)sizeof(uint4) != 0) {
        return cudaErrorInvalidValue;
    }
    if (bytes == 0) {
        return cudaSuccess;
    }
    return dtype == KERNEL_BF16 ? start_among<__nv_bfloat16>(peers, x, y, bytes, stream)
                                : start_among<float>(peers, x, y, bytes, stream);
}

cudaError_t ranks_all_gather(const struct rank_peers *peers, const void *x, void *y, int64_t bytes,
                             int64_t stride, cudaStream_t stream) {
    if (bytes < 0 || bytes > RANKS_SLOT_BYTES / peers->n || bytes % 4 != 0 || stride % 4 != 0) {
        return cudaErrorInvalidValue;
    }
    if (bytes > 0) {
        gather_kernel<<<blocks_for(bytes / 4), THREADS, 0, stream>>>(
            *peers, static_cast<const uint32_t *>(x), static_cast<uint32_t *>(y), bytes / 4,
            stride / 4);
    }
    return cudaGetLastError();
}

/* ---- candidates ---- */

static __global__ void combine_ranks_kernel(const struct call_combine call) {
    const int64_t n = call.n_rows, row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) {
        return;
    }
    const int n_fields = call.margin ? 5 : 3;
    const int64_t rank_words = n_fields * n;
    const int32_t *token = static_cast<const int32_t *>(call.gathered) + row;
    const float *share = static_cast<const float *>(call.gathered) + n + row;
    const float *logit = share + (n_fields - 2) * n;
    int64_t best = 0;
    for (int rank = 1; rank < call.n_ranks; rank++) {
        best = logit[rank_words * rank] > logit[rank_words * best] ? rank : best;
    }
    float sum = 0;
    for (int rank = 0; rank < call.n_ranks; rank++) {
        sum += expf(logit[rank_words * rank] - logit[rank_words * best]) / share[rank_words * rank];
    }
    call.token[row] = token[rank_words * best] + (int32_t)best * call.n_vocab;
    call.confidence[row] = 1.0f / sum;
    if (call.logit) {
        call.logit[row] = logit[rank_words * best];
    }
    if (!call.margin) {
        return;
    }
    float second = 0, entropy = 0;
    for (int rank = 0; rank < call.n_ranks; rank++) {
        const float *at = share + rank_words * rank;
        const float weight =
            expf(logit[rank_words * rank] - logit[rank_words * best]) / (at[0] * sum);
        second = fmaxf(second, weight * (rank == best ? at[0] - at[n] : at[0]));
        entropy += weight > 0 ? weight * (at[2 * n] + logf(weight)) : 0;
    }
    /* fmaxf would lose what is no number. */
    call.margin[row] = sum == sum ? 1.0f / sum - second : sum;
    call.entropy[row] = sum == sum ? entropy : sum;
}

extern "C" cudaError_t kernel_combine(const struct call_combine *call, cudaStream_t stream) {
    if (call->n_ranks < 1 || call->n_ranks > CALL_MAX_RANKS || call->n_rows < 0 ||
        call->n_vocab <= 0 || !call->margin != !call->entropy) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        combine_ranks_kernel<<<(unsigned)((call->n_rows - 1) / RANKS_COMBINE_THREADS + 1),
                               RANKS_COMBINE_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}
