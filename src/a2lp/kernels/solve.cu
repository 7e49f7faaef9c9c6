// A thread block solves one system of linear equations by Gauss-Jordan elimination with row exchanges.
// Compiled with DOUBLE, whether numbers are float64 (float32 else). Sizes: n equations, k right sides.
//
// Every loop is over blockDim, so that any number of threads, one included, computes the same numbers.

#if DOUBLE
typedef double real;
#else
typedef float real;
#endif

struct Params {
    int n, k;
};

__device__ real size(real x) { return x < 0 ? -x : x; }

extern "C" __global__ void __launch_bounds__(512)
a2lp_solve(const real* all_matrices, const real* all_right, real* all_found, const Params p) {
    extern __shared__ double memory[];
    const int n = p.n, k = p.k, width = n + k;
    const long long task = blockIdx.x;
    real* M = (real*)memory;                // (n, n + k)  the matrix and the right sides
    real* pivot = M + n * width;            // of this column
    int* exchanged = (int*)(pivot + 1);     // the row where it was
    for (int e = threadIdx.x; e < n * width; e += blockDim.x) {
        const int i = e / width, j = e % width;
        M[e] = j < n ? all_matrices[(task * n + i) * n + j] : all_right[(task * n + i) * k + j - n];
    }
    __syncthreads();
    for (int column = 0; column < n; column++) {
        if (threadIdx.x == 0) {
            int row = column;
            for (int i = column + 1; i < n; i++)
                if (size(M[i * width + column]) > size(M[row * width + column])) row = i;
            *pivot = M[row * width + column];
            *exchanged = row;
        }
        __syncthreads();
        const int row = *exchanged;
        for (int j = column + threadIdx.x; j < width; j += blockDim.x) {
            const real upper = M[column * width + j];
            M[column * width + j] = M[row * width + j] / *pivot;
            if (row != column) M[row * width + j] = upper;
        }
        __syncthreads();
        // the column itself is not needed again
        const int rest = width - column - 1;
        for (int e = threadIdx.x; e < n * rest; e += blockDim.x) {
            const int i = e / rest, j = column + 1 + e % rest;
            if (i != column) M[i * width + j] -= M[i * width + column] * M[column * width + j];
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < n * k; e += blockDim.x) all_found[task * n * k + e] = M[e / k * width + n + e % k];
}
