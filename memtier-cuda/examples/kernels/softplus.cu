// out[i] = log(1 + exp(x[i])), without overflow
extern "C" __global__ void __launch_bounds__(256) softplus_f32(float *out, const float *x, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f) + log1pf(expf(-fabsf(x[i])));
}
