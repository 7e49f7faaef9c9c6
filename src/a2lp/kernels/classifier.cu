// A thread block trains a linear classifier of one task by plain descent with momentum, on its logits; see
// `methods.ilpc`. Compiled with DOUBLE, whether numbers are float64 (float32 else); GROUP, how many classes a thread
// multiplies at once; RESIDENT, whether shared memory has room for the matrix of products. Sizes: n points, c classes.
//
// Sums over classes have a thread for each point, sums over points one for each point and GROUP classes. Every loop is
// over blockDim, so that any number of threads, one included, computes the same numbers.

#if DOUBLE
typedef double real;
__device__ real exponential(real x) { return exp(x); }
__device__ real logarithm(real x) { return log(x); }
#else
typedef float real;
__device__ real exponential(real x) { return expf(x); }
__device__ real logarithm(real x) { return logf(x); }
#endif

struct Params {
    double rate, momentum, decay;
    int n, c, steps;
};

extern "C" __global__ void __launch_bounds__(512)
a2lp_classifier(const real* all_products, const real* all_targets, const real* all_logits, real* all_losses,
             const Params p) {
    extern __shared__ double memory[];
    const int n = p.n, c = p.c, groups = (c + GROUP - 1) / GROUP;
    const real rate = (real)p.rate, momentum = (real)p.momentum, decay = (real)p.decay;
    const long long task = blockIdx.x;
    const real *products = all_products + task * n * n, *targets = all_targets + task * c * n;
    real* logits = (real*)memory;    // (c, n) each
    real* velocity = logits + c * n;
    real* excess = velocity + c * n;  // probabilities minus targets
    real* target = excess + c * n;
    real* losses = target + c * n;   // n  sums over the steps
#if RESIDENT
    real* kept = losses + n;         // (n, n)
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) kept[e] = products[e];
    products = kept;
#endif
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) {
        logits[e] = all_logits[task * c * n + e];
        target[e] = targets[e];
        velocity[e] = 0;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) losses[i] = 0;
    __syncthreads();
    for (int step = 0; step < p.steps; step++) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            real top = logits[i], sum = 0, along = 0;
            for (int q = 1; q < c; q++) top = logits[q * n + i] > top ? logits[q * n + i] : top;
            for (int q = 0; q < c; q++) {
                const real logit = logits[q * n + i], share = exponential(logit - top);
                excess[q * n + i] = share;
                sum += share;
                along += target[q * n + i] * logit;
            }
            losses[i] += top + logarithm(sum) - along;
            for (int q = 0; q < c; q++) excess[q * n + i] = excess[q * n + i] / sum - target[q * n + i];
        }
        __syncthreads();
        for (int e = threadIdx.x; e < n * groups; e += blockDim.x) {
            const int i = e % n, q0 = e / n * GROUP;
            const real* rows[GROUP];
            real sums[GROUP];
#pragma unroll
            for (int g = 0; g < GROUP; g++) rows[g] = excess + (q0 + g < c ? q0 + g : c - 1) * n, sums[g] = 0;
#pragma unroll 4
            for (int j = 0; j < n; j++) {
                const real product = products[j * n + i];
#pragma unroll
                for (int g = 0; g < GROUP; g++) sums[g] += rows[g][j] * product;
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                if (q0 + g >= c) break;
                const int at = (q0 + g) * n + i;
                velocity[at] = momentum * velocity[at] + sums[g] + decay * logits[at];
                logits[at] -= rate * velocity[at];
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) all_losses[task * n + i] = losses[i] / p.steps;
}
