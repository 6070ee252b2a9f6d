// What a conditional node costs and saves in a replayed graph: a pass of 30 layers of 7 small kernels, bare; the same behind one
// conditional node, taken and not taken; the same with one conditional node for each layer, all taken and half of them.
// nvcc -O2 -arch=sm_90 conditional.cu -o conditional && ./conditional
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define OK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("%s: %s\n", #call, cudaGetErrorString(e)); return 1; } } while (0)

constexpr int LAYERS = 30, KERNELS = 7, ROUNDS = 9, REPLAYS = 200;

__global__ void work(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 1.0001f + 0.5f;
}
__global__ void decide(cudaGraphConditionalHandle handle, const int *depth, int layer) {
    cudaGraphSetConditional(handle, layer < *depth ? 1 : 0);
}

static float *x;
static int *depth, n = 1 << 16;

static cudaError_t layers(cudaStream_t s, int count) {
    for (int i = 0; i < count * KERNELS; i++) work<<<(n + 255) / 256, 256, 0, s>>>(x, n);
    return cudaGetLastError();
}

// Fills `body` with launches, by a capture into it.
static cudaError_t fill(cudaStream_t s, cudaGraph_t body, int count) {
    cudaError_t e = cudaStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) return e;
    if ((e = layers(s, count)) != cudaSuccess) return e;
    cudaGraph_t same;
    return cudaStreamEndCapture(s, &same);
}

// A graph of `nodes` conditional nodes one behind the other, LAYERS layers in all.
static cudaError_t conditional(cudaStream_t s, int nodes, cudaGraph_t *out) {
    cudaGraph_t g; cudaError_t e = cudaGraphCreate(&g, 0);
    if (e != cudaSuccess) return e;
    cudaGraphNode_t last = nullptr;
    for (int node = 0; node < nodes; node++) {
        cudaGraphConditionalHandle handle;
        if ((e = cudaGraphConditionalHandleCreate(&handle, g, 0, 0)) != cudaSuccess) return e;
        int layer = node * (LAYERS / nodes);
        const int *d = depth;
        void *arguments[] = {&handle, &d, &layer};
        cudaKernelNodeParams kernel = {};
        kernel.func = (void *)decide; kernel.gridDim = kernel.blockDim = dim3(1); kernel.kernelParams = arguments;
        cudaGraphNode_t setter;
        if ((e = cudaGraphAddKernelNode(&setter, g, last ? &last : nullptr, last ? 1 : 0, &kernel)) != cudaSuccess) return e;
        cudaGraphNodeParams p = {};
        p.type = cudaGraphNodeTypeConditional;
        p.conditional.handle = handle; p.conditional.type = cudaGraphCondTypeIf; p.conditional.size = 1;
#if CUDART_VERSION >= 13000
        if ((e = cudaGraphAddNode(&last, g, &setter, nullptr, 1, &p)) != cudaSuccess) return e;
#else
        if ((e = cudaGraphAddNode(&last, g, &setter, 1, &p)) != cudaSuccess) return e;
#endif
        if ((e = fill(s, p.conditional.phGraph_out[0], LAYERS / nodes)) != cudaSuccess) return e;
    }
    *out = g;
    return cudaSuccess;
}

static float replay(cudaGraphExec_t exec, cudaStream_t s) {
    cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
    std::vector<float> times;
    for (int round = 0; round < ROUNDS; round++) {
        cudaGraphLaunch(exec, s);
        cudaEventRecord(a, s);
        for (int i = 0; i < REPLAYS; i++) cudaGraphLaunch(exec, s);
        cudaEventRecord(b, s); cudaEventSynchronize(b);
        float ms; cudaEventElapsedTime(&ms, a, b); times.push_back(ms * 1e3f / REPLAYS);
    }
    std::sort(times.begin(), times.end());
    return times[ROUNDS / 2];
}

int main() {
    cudaStream_t s; OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMalloc(&x, n * sizeof(float))); OK(cudaMalloc(&depth, sizeof(int)));
    OK(cudaMemset(x, 0, n * sizeof(float)));
    cudaGraph_t plain, half; cudaGraphExec_t exec;
    for (int count : {LAYERS, LAYERS / 2}) {
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        OK(layers(s, count));
        OK(cudaStreamEndCapture(s, count == LAYERS ? &plain : &half));
        OK(cudaGraphInstantiate(&exec, count == LAYERS ? plain : half, 0));
        printf("fixed graph of %d layers: %.2f us\n", count, replay(exec, s));
    }
    for (int nodes : {1, 2, LAYERS}) {
        cudaGraph_t g; OK(conditional(s, nodes, &g)); OK(cudaGraphInstantiate(&exec, g, 0));
        for (int d : {LAYERS, LAYERS / 2, 0}) {
            OK(cudaMemcpyAsync(depth, &d, sizeof d, cudaMemcpyHostToDevice, s)); OK(cudaStreamSynchronize(s));
            printf("%d conditional nodes, %d layers run: %.2f us\n", nodes, nodes == 1 && d ? LAYERS : d, replay(exec, s));
        }
    }
    return 0;
}
