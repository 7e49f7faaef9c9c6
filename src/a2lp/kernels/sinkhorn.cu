// A thread block scales one task by Sinkhorn's rounds until the task stops by itself; see `methods._maths.sinkhorn`.
// Compiled with DOUBLE, whether numbers are float64 (float32 else); RESIDENT, whether shared memory has room for the
// kernel matrix, too. Sizes: n points, c classes.
//
// Masses of points have a thread for each point, those of classes PARTS threads for each class. Every loop is over
// blockDim, so that any number of threads, one included, computes the same numbers.

#define PARTS 8

#if DOUBLE
typedef double real;
#else
typedef float real;
#endif

struct Params {
    double tolerance;
    int n, c, has_fixed, rounds;
};

extern "C" __global__ void __launch_bounds__(256)
a2lp_sinkhorn(const real* all_kernel, const real* all_columns, const real* all_rows, const real* all_fixed,
              real* all_plan, const Params p) {
    extern __shared__ double memory[];
    const int n = p.n, c = p.c;
    const long long task = blockIdx.x;
    const real *columns = all_columns + task * c, *rows = all_rows + task * n, *fixed = all_fixed + task * c;
    const real* kernel = all_kernel + task * c * n;
    real* plan = all_plan + task * c * n;
    const real tolerance = (real)p.tolerance;
    real* by_point = (real*)memory;   // n each
    real* before = by_point + n;      // mass of a point before it is scaled
    real* masses = before + n;        // and after, in the round before
    real* by_class = masses + n;      // c
    real* partial = by_class + c;     // (c, PARTS)
#if RESIDENT
    real* kept = partial + c * PARTS;  // (c, n)
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) kept[e] = kernel[e];
    kernel = kept;
    __syncthreads();
#endif
    for (int q = threadIdx.x; q < c; q += blockDim.x) by_class[q] = 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        real sum = 0;
        for (int q = 0; q < c; q++) sum += kernel[q * n + i];
        before[i] = sum;
        masses[i] = 0;
    }
    for (int round = 0; round < p.rounds; round++) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) by_point[i] = rows[i] / before[i];
        __syncthreads();
        for (int e = threadIdx.x; e < c * PARTS; e += blockDim.x) {
            const real* row = kernel + e / PARTS * n;
            real sum = 0;
#pragma unroll 4
            for (int i = e % PARTS; i < n; i += PARTS) sum += by_point[i] * row[i];
            partial[e] = sum;
        }
        __syncthreads();
        for (int q = threadIdx.x; q < c; q += blockDim.x) {
            real filled = 0;
#pragma unroll
            for (int part = 0; part < PARTS; part++) filled += partial[q * PARTS + part];
            by_class[q] = p.has_fixed ? by_class[q] * columns[q] / (fixed[q] + by_class[q] * filled)
                                      : columns[q] / filled;
        }
        __syncthreads();
        int moving = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            real sum = 0;
            for (int q = 0; q < c; q++) sum += by_class[q] * kernel[q * n + i];
            const real mass = sum * by_point[i], change = mass - masses[i];
            moving |= (change < 0 ? -change : change) > tolerance;
            before[i] = sum;
            masses[i] = mass;
        }
        if (!__syncthreads_or(moving)) break;
    }
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) plan[e] = by_class[e / n] * (kernel[e] * by_point[e % n]);
}
