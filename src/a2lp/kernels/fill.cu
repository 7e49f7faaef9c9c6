// A thread block scales the soft labels of one task, points to 1 and small classes to a least size in turn; see
// `methods.bms`. Compiled with DOUBLE, whether numbers are float64 (float32 else). Sizes: n points, c classes.
//
// Sums over classes have a thread for each point, sums over points PARTS threads for each class. Every loop is over
// blockDim, so that any number of threads, one included, computes the same numbers.

#define PARTS 8

#if DOUBLE
typedef double real;
#else
typedef float real;
#endif

struct Params {
    double tiny;  // mass that is never divided by
    int n, c, rounds;
};

__device__ real at_least(real x, real least) { return x < least ? least : x; }

extern "C" __global__ void __launch_bounds__(256)
a2lp_fill(const real* all_shares, const real* all_least, real* all_found, const Params p) {
    extern __shared__ double memory[];
    const int n = p.n, c = p.c;
    const long long task = blockIdx.x;
    const real tiny = (real)p.tiny, least = all_least[task];
    real* shares = (real*)memory;      // (c, n)
    real* factors = shares + c * n;    // c
    real* partial = factors + c;       // (c, PARTS)
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) shares[e] = all_shares[task * c * n + e];
    __syncthreads();
    for (int round = 0; round < p.rounds; round++) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            real total = 0;
            for (int q = 0; q < c; q++) total += shares[q * n + i];
            total = at_least(total, tiny);
            for (int q = 0; q < c; q++) shares[q * n + i] /= total;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < c * PARTS; e += blockDim.x) {
            real sum = 0;
            for (int i = e % PARTS; i < n; i += PARTS) sum += shares[e / PARTS * n + i];
            partial[e] = sum;
        }
        __syncthreads();
        for (int q = threadIdx.x; q < c; q += blockDim.x) {
            real mass = 0;
            for (int part = 0; part < PARTS; part++) mass += partial[q * PARTS + part];
            factors[q] = mass < least ? least / at_least(mass, tiny) : 1;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x)
            for (int q = 0; q < c; q++) shares[q * n + i] *= factors[q];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) all_found[task * c * n + e] = shares[e];
}
