#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <algorithm>
#include <vector>
struct args { float *p; long pad[20]; int n; };
template <int I> __global__ void k(args a) { long t = clock64(); while (clock64() - t < 20000) {} if (a.n == 12345 + I) a.p[0] = 1; }
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
static void step(cudaStream_t s, float *p, int n) {
    args a = {p, {0}, 0};
    for (int i = 0; i < n; i++) switch (i % 6) {
        case 0: k<0><<<132 + n, 128, 0, s>>>(a); break; case 1: k<1><<<264, 256, 0, s>>>(a); break;
        case 2: k<2><<<132, 128, 0, s>>>(a); break; case 3: k<3><<<100, 384, 0, s>>>(a); break;
        case 4: k<4><<<10, 128, 0, s>>>(a); break; case 5: k<5><<<132, 64, 0, s>>>(a); break; }
}
struct row { double c, i, u, l; int at; };
static void round_(const char *name, cudaStream_t s, float *p, int N, bool busy, std::vector<cudaGraphExec_t> &out) {
    std::vector<row> r;
    for (int j = 0; j < N; j++) {
        if (busy) step(s, p, 430);
        double a = now(); cudaGraph_t g; cudaGraphExec_t e;
        cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal); step(s, p, 420 + j % 7); cudaStreamEndCapture(s, &g);
        double b = now(); cudaGraphInstantiate(&e, g, 0); double c = now(); cudaGraphDestroy(g);
        cudaGraphUpload(e, s); double d = now();
        cudaGraphLaunch(e, s); double f = now(); cudaStreamSynchronize(s);
        out.push_back(e); r.push_back({b - a, c - b, d - c, f - d, j});
    }
    std::vector<row> q = r;
    double m[4]; 
    std::sort(q.begin(), q.end(), [](row x, row y) { return x.c < y.c; }); m[0] = q[N / 2].c;
    std::sort(q.begin(), q.end(), [](row x, row y) { return x.i < y.i; }); m[1] = q[N / 2].i;
    std::sort(q.begin(), q.end(), [](row x, row y) { return x.u < y.u; }); m[2] = q[N / 2].u;
    std::sort(q.begin(), q.end(), [](row x, row y) { return x.l < y.l; }); m[3] = q[N / 2].l;
    printf("%-28s medians capture %.2f instantiate %.2f upload %.2f launch %.2f ms; slow:", name, m[0], m[1], m[2], m[3]);
    for (auto &x : r) if (x.c + x.i + x.u + x.l > m[0] + m[1] + m[2] + m[3] + 2) printf(" #%d(%.1f %.1f %.1f %.1f)", x.at, x.c, x.i, x.u, x.l);
    printf("\n");
}
int main() {
    float *p; cudaMalloc(&p, 1 << 20); cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    std::vector<cudaGraphExec_t> e;
    step(s, p, 430); cudaStreamSynchronize(s);
    round_("busy, first", s, p, 64, true, e);
    double a = now(); for (auto x : e) cudaGraphExecDestroy(x); printf("destroying 64: %.1f ms\n", now() - a); e.clear();
    round_("busy, after destroying", s, p, 64, true, e);
    round_("busy, 64 more", s, p, 64, true, e);
    for (auto x : e) cudaGraphExecDestroy(x); e.clear();
    round_("idle", s, p, 64, false, e);
    a = now(); for (auto x : e) { double b = now(); cudaGraphExecDestroy(x); if (now() - b > 2) printf("slow destroy %.1f\n", now() - b); }
    return cudaGetLastError();
}
