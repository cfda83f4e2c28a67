/* Do conditional nodes work where streams are captured, with cuBLASLt products inside? A probe:
 *     nvcc -std=c++17 -O2 -arch=sm_90 -o probe kernels/lab/conditional_nodes.cu -lcublasLt
 *     ./probe
 * A stream is captured; in the midst of the capture a conditional node is added after what was
 * captured so far, the capture goes on behind it, and another stream captures into its bodies. Each
 * case prints what came out, and the while loop what an iteration costs.
 * One H200, driver 580.159.04: all of them work. */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call) must((int)(call), #call)

static void must(int status, const char *what) {
    if (status != 0) {
        printf("%s: error %d (%s)\n", what, status, cudaGetErrorString((cudaError_t)status));
        exit(1);
    }
}

/* A loop's state as the blocks of a batch would have it: how often to go on, and how often it did.
 */
struct state {
    int left, passes, path;
};

static __global__ void begin(struct state *s, int left, int path, cudaGraphConditionalHandle handle,
                             int value) {
    s->left = left;
    s->passes = 0;
    s->path = path;
    if (handle) {
        cudaGraphSetConditional(handle, value >= 0 ? value : path);
    }
}

static __global__ void step(struct state *s, cudaGraphConditionalHandle handle) {
    s->passes++;
    cudaGraphSetConditional(handle, --s->left > 0);
}

static __global__ void mark(struct state *s, int path) {
    s->passes += path;
}

struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t chosen;
    void *x, *w, *y, *workspace;
};

enum { N = 512, WORKSPACE = 32 << 20 };

static void product_open(struct product *p) {
    int found = 0;
    cublasLtMatmulPreference_t preference;
    size_t most = WORKSPACE;
    cublasOperation_t transposed = CUBLAS_OP_T;
    MUST(cublasLtCreate(&p->handle));
    MUST(cublasLtMatmulDescCreate(&p->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof transposed));
    MUST(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, N, N, N));
    MUST(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, N, N, N));
    MUST(cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, N, N, N));
    MUST(cublasLtMatmulPreferenceCreate(&preference));
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &most, sizeof most));
    MUST(cublasLtMatmulAlgoGetHeuristic(p->handle, p->matmul, p->a, p->b, p->c, p->c, preference, 1,
                                        &p->chosen, &found));
    MUST(cudaMalloc(&p->x, N * N * 2));
    MUST(cudaMalloc(&p->w, N * N * 2));
    MUST(cudaMalloc(&p->y, N * N * 2));
    MUST(cudaMalloc(&p->workspace, WORKSPACE));
    /* 1.0 in bf16 is 0x3f80: every element of the product is N = 512, 0x4400. */
    unsigned short *ones = (unsigned short *)malloc(N * N * 2);
    for (int i = 0; i < N * N; i++) {
        ones[i] = 0x3f80;
    }
    MUST(cudaMemcpy(p->x, ones, N * N * 2, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(p->w, ones, N * N * 2, cudaMemcpyHostToDevice));
    free(ones);
}

static void product_run(struct product *p, cudaStream_t stream) {
    const float one = 1, zero = 0;
    MUST(cublasLtMatmul(p->handle, p->matmul, &one, p->w, p->a, p->x, p->b, &zero, p->y, p->c, p->y,
                        p->c, &p->chosen.algo, p->workspace, WORKSPACE, stream));
}

static unsigned short product_result(struct product *p) {
    unsigned short y = 0;
    MUST(cudaMemcpy(&y, (char *)p->y + (N * N - 1) * 2, 2, cudaMemcpyDeviceToHost));
    MUST(cudaMemset(p->y, 0, N * N * 2));
    return y;
}

/* The graph that a stream is being captured to. */
static cudaGraph_t captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    MUST(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    return graph;
}

/* Adds a conditional node behind what the stream has captured; the capture goes on behind it. */
static cudaGraph_t *conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                                cudaGraphConditionalNodeType type, unsigned size) {
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    const cudaGraphNode_t *before;
    const cudaGraphEdgeData *edges;
    size_t n_before;
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    MUST(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &edges, &n_before));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    MUST(cudaGraphAddNode(&node, graph, before, edges, n_before, &params));
    MUST(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                             cudaStreamSetCaptureDependencies));
    return params.conditional.phGraph_out;
}

static void body_begin(cudaStream_t stream, cudaGraph_t body) {
    MUST(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                       cudaStreamCaptureModeThreadLocal));
}

static float play(cudaGraphExec_t graph, cudaStream_t stream, int times) {
    cudaEvent_t a, b;
    float ms;
    MUST(cudaEventCreate(&a));
    MUST(cudaEventCreate(&b));
    MUST(cudaGraphLaunch(graph, stream));
    MUST(cudaEventRecord(a, stream));
    for (int i = 0; i < times; i++) {
        MUST(cudaGraphLaunch(graph, stream));
    }
    MUST(cudaEventRecord(b, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaEventElapsedTime(&ms, a, b));
    MUST(cudaEventDestroy(a));
    MUST(cudaEventDestroy(b));
    return ms * 1000 / times;
}

static cudaGraphExec_t finished(cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main(void) {
    int driver, runtime;
    cudaStream_t stream, inner;
    struct state *s, host;
    struct product p = {};
    cudaGraphConditionalHandle handle;
    cudaGraph_t ignored;
    MUST(cudaDriverGetVersion(&driver));
    MUST(cudaRuntimeGetVersion(&runtime));
    printf("driver %d, runtime %d\n", driver, runtime);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking));
    MUST(cudaMalloc(&s, sizeof *s));
    product_open(&p);
    product_run(&p, stream); /* outside of any capture first */
    MUST(cudaStreamSynchronize(stream));
    printf("a product: 0x%04x, 0x4400 wanted\n", product_result(&p));

    for (int wanted = 0; wanted < 2; wanted++) { /* IF */
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        MUST(cudaGraphConditionalHandleCreate(&handle, captured(stream), 0,
                                              cudaGraphCondAssignDefault));
        begin<<<1, 1, 0, stream>>>(s, 0, 0, handle, wanted);
        cudaGraph_t *bodies = conditional(stream, handle, cudaGraphCondTypeIf, 2);
        for (int which = 0; which < 2; which++) {
            body_begin(inner, bodies[which]);
            mark<<<1, 1, 0, inner>>>(s, which ? 100 : 1);
            if (which == 0) {
                product_run(&p, inner);
            }
            MUST(cudaStreamEndCapture(inner, &ignored));
        }
        mark<<<1, 1, 0, stream>>>(s, 1000);
        play(finished(stream), stream, 1);
        MUST(cudaMemcpy(&host, s, sizeof host, cudaMemcpyDeviceToHost));
        printf("if %d, with else: passes %d, %d wanted; product 0x%04x, 0x%04x wanted\n", wanted,
               host.passes, wanted ? 1001 : 1100, product_result(&p), wanted ? 0x4400 : 0);
    }

    for (int with_product = 0; with_product < 2; with_product++) { /* WHILE */
        for (int passes = 1; passes <= 100; passes += 99) {
            MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            MUST(cudaGraphConditionalHandleCreate(&handle, captured(stream), 1,
                                                  cudaGraphCondAssignDefault));
            begin<<<1, 1, 0, stream>>>(s, passes, 0, 0, 0);
            cudaGraph_t *bodies = conditional(stream, handle, cudaGraphCondTypeWhile, 1);
            body_begin(inner, bodies[0]);
            for (int i = 0; with_product && i < 10; i++) {
                product_run(&p, inner);
            }
            step<<<1, 1, 0, inner>>>(s, handle);
            MUST(cudaStreamEndCapture(inner, &ignored));
            mark<<<1, 1, 0, stream>>>(s, 1000);
            const float us = play(finished(stream), stream, 20);
            MUST(cudaMemcpy(&host, s, sizeof host, cudaMemcpyDeviceToHost));
            printf("while, %d products a pass: passes %d, %d wanted; product 0x%04x; %.1f us a "
                   "launch\n",
                   with_product * 10, host.passes, passes + 1000, product_result(&p), us);
        }
    }

    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); /* to compare with */
    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 10; j++) {
            product_run(&p, stream);
        }
        mark<<<1, 1, 0, stream>>>(s, 1);
    }
    printf("the same 100 passes of 10 products in a line: %.1f us a launch\n",
           play(finished(stream), stream, 20));

    for (int path = 0; path < 5; path++) { /* SWITCH, the last value with no body */
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        MUST(cudaGraphConditionalHandleCreate(&handle, captured(stream), 0,
                                              cudaGraphCondAssignDefault));
        begin<<<1, 1, 0, stream>>>(s, 0, path, handle, -1);
        cudaGraph_t *bodies = conditional(stream, handle, cudaGraphCondTypeSwitch, 4);
        for (int which = 0; which < 4; which++) {
            body_begin(inner, bodies[which]);
            product_run(&p, inner);
            mark<<<1, 1, 0, inner>>>(s, 10 + which);
            MUST(cudaStreamEndCapture(inner, &ignored));
        }
        const float us = play(finished(stream), stream, 20);
        MUST(cudaMemcpy(&host, s, sizeof host, cudaMemcpyDeviceToHost));
        printf("switch %d: passes %d, %d wanted; product 0x%04x; %.1f us a launch\n", path,
               host.passes, path < 4 ? 10 + path : 0, product_result(&p), us);
    }

    /* A switch inside a loop: what a whole block of steps of varying width would need. */
    cudaGraphConditionalHandle inside;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(
        cudaGraphConditionalHandleCreate(&handle, captured(stream), 1, cudaGraphCondAssignDefault));
    begin<<<1, 1, 0, stream>>>(s, 10, 2, 0, 0);
    cudaGraph_t *loop = conditional(stream, handle, cudaGraphCondTypeWhile, 1);
    cudaStream_t innermost;
    MUST(cudaStreamCreateWithFlags(&innermost, cudaStreamNonBlocking));
    cudaError_t status =
        cudaGraphConditionalHandleCreate(&inside, loop[0], 1, cudaGraphCondAssignDefault);
    printf("a handle inside a body: %s\n", cudaGetErrorString(status));
    if (status == cudaSuccess) {
        body_begin(inner, loop[0]);
        product_run(&p, inner);
        cudaGraph_t *bodies = conditional(inner, inside, cudaGraphCondTypeSwitch, 2);
        for (int which = 0; which < 2; which++) {
            body_begin(innermost, bodies[which]);
            product_run(&p, innermost);
            mark<<<1, 1, 0, innermost>>>(s, which * 100);
            MUST(cudaStreamEndCapture(innermost, &ignored));
        }
        step<<<1, 1, 0, inner>>>(s, handle);
        MUST(cudaStreamEndCapture(inner, &ignored));
        const float us = play(finished(stream), stream, 20);
        MUST(cudaMemcpy(&host, s, sizeof host, cudaMemcpyDeviceToHost));
        printf("a switch in a loop: passes %d, %d wanted; %.1f us a launch\n", host.passes, 1010,
               us);
    }
    return 0;
}
