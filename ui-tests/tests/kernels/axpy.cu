// What the launch wrappers of the cases are compared with. Never compiled here.
#define THREADS 128

// y[i] += factor * x[i]
extern "C" __global__ void __launch_bounds__(THREADS) axpy_f32(float *y, const float *x, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}
