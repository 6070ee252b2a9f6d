// Kernels of a crate other than memtier-cuda: nothing is included, so that any compiler takes them.
typedef unsigned short u16;
typedef unsigned long long u64;
#define THREADS 128

// y[i] += factor * x[i]
extern "C" __global__ void __launch_bounds__(THREADS) axpy_f32(float *__restrict__ y, const float *__restrict__ x,
                                                               float factor, u64 n) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}

// One value of every size, stored by one thread: out[0..6].
extern "C" __global__ void every_value(double *out, signed char a, u16 half_bits, int b, long long c, double d, bool e) {
    out[0] = a;
    out[1] = half_bits;
    out[2] = b;
    out[3] = (double)c;
    out[4] = d;
    out[5] = e ? 1.0 : 0.0;
}

// x[row] of rows x columns, a block for each row: needs its grid.
extern "C" __global__ void __launch_bounds__(64) fill_rows(float *out, const unsigned int *values, unsigned int columns) {
    for (unsigned int i = threadIdx.x; i < columns; i += blockDim.x) {
        out[(u64)blockIdx.x * columns + i] = (float)values[blockIdx.x];
    }
}
