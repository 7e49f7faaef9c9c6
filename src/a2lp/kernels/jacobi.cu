// A thread block finds eigenvalues and eigenvectors of one symmetric matrix (n, n) by Jacobi's rotations.
// Compiled with DOUBLE, whether numbers are float64 (float32 else).
//
// In a step, all indices are paired, as in a tournament, and every pair is rotated so that its entry outside the
// diagonal vanishes; after a sweep each index has met every other. Rotations of different pairs touch different
// entries, so nothing waits but the end of a step. Every loop is over blockDim, so that any number of threads, one
// included, computes the same numbers.

#define LANES 16  // threads along a row

#if DOUBLE
typedef double real;
__device__ real root(real x) { return sqrt(x); }
#else
typedef float real;
__device__ real root(real x) { return sqrtf(x); }
#endif

struct Params {
    double tolerance;  // of an entry outside the diagonal, relative to the matrix' length
    int n, sweeps;
};

__device__ real size(real x) { return x < 0 ? -x : x; }

// cosine x - sine y, with the tangent of half the angle: roundings are as small as the rotation
__device__ real turned(real x, real y, real sine, real half) { return x - sine * (y + half * x); }

// The k-th of the pairs that meet in a step; with an odd number of indices, one is paired with n, which is none
__device__ void pair(int k, int step, int even, int* p, int* q) {
    const int ring = even - 1;
    *p = k == 0 ? ring : (step + k) % ring;
    *q = k == 0 ? step : (step + ring - k) % ring;
}

extern "C" __global__ void __launch_bounds__(256)
a2lp_jacobi(const real* all_matrices, real* all_values, real* all_vectors, const Params params) {
    extern __shared__ double memory[];
    const int n = params.n, even = n + n % 2, pairs = even / 2;
    const int lanes = blockDim.x % LANES ? 1 : LANES, lane = threadIdx.x % lanes;
    const int row = threadIdx.x / lanes, rows = blockDim.x / lanes;
    const long long task = blockIdx.x;
    const real* matrix = all_matrices + task * n * n;
    real* A = (real*)memory;         // (n, n)
    real* V = A + n * n;             // (n, n)  eigenvectors are its rows
    real* sines = V + n * n;         // of each pair's rotation
    real* halves = sines + pairs;    // tangents of half the angles
    real* lengths = halves + pairs;  // n
    int* first = (int*)(lengths + n);  // the pairs' indices
    int* second = first + pairs;
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) {
        A[e] = matrix[e];
        V[e] = e / n == e % n;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        real sum = 0;
        for (int j = 0; j < n; j++) sum += A[j * n + i] * A[j * n + i];
        lengths[i] = sum;
    }
    __syncthreads();
    real least = 0;
    for (int i = 0; i < n; i++) least += lengths[i];
    least = (real)params.tolerance * root(least);
    for (int sweep = 0; sweep < params.sweeps; sweep++) {
        int rotated = 0;
        for (int step = 0; step < even - 1; step++) {
            for (int k = threadIdx.x; k < pairs; k += blockDim.x) {
                int p, q;
                pair(k, step, even, &p, &q);
                first[k] = p;
                second[k] = q;
                sines[k] = halves[k] = 0;
                if (p < n && q < n && size(A[p * n + q]) > least) {
                    // the smaller of the two rotations
                    const real ratio = (A[q * n + q] - A[p * n + p]) / (2 * A[p * n + q]);
                    const real tangent = (ratio < 0 ? -1 : 1) / (size(ratio) + root(ratio * ratio + 1));
                    const real cosine = 1 / root(tangent * tangent + 1);
                    sines[k] = tangent * cosine;
                    halves[k] = sines[k] / (1 + cosine);
                    rotated = 1;
                }
            }
            __syncthreads();
            for (int k = row; k < pairs; k += rows) {
                const int p = first[k], q = second[k];
                const real s = sines[k], h = halves[k];
                const bool has_p = p < n, has_q = q < n;
                // rows of this pair in the columns of each, from both sides at once
                for (int l = lane; l < pairs; l += lanes) {
                    const int u = first[l], v = second[l];
                    const real t = sines[l], g = halves[l];
                    if (s == 0 && t == 0) continue;
                    const bool has_u = u < n, has_v = v < n;
                    const real pu = has_p && has_u ? A[p * n + u] : 0, pv = has_p && has_v ? A[p * n + v] : 0;
                    const real qu = has_q && has_u ? A[q * n + u] : 0, qv = has_q && has_v ? A[q * n + v] : 0;
                    if (k == l) {  // the diagonal by differences, so that roundings of the cosine do not add up
                        const real move = s / (1 - s * h) * pv;
                        A[p * n + p] = pu - move;
                        A[q * n + q] = qv + move;
                        A[p * n + q] = A[q * n + p] = 0;
                        continue;
                    }
                    const real top_u = turned(pu, qu, s, h), low_u = turned(qu, pu, -s, -h);
                    const real top_v = turned(pv, qv, s, h), low_v = turned(qv, pv, -s, -h);
                    if (has_p && has_u) A[p * n + u] = turned(top_u, top_v, t, g);
                    if (has_p && has_v) A[p * n + v] = turned(top_v, top_u, -t, -g);
                    if (has_q && has_u) A[q * n + u] = turned(low_u, low_v, t, g);
                    if (has_q && has_v) A[q * n + v] = turned(low_v, low_u, -t, -g);
                }
                if (s == 0) continue;
                for (int j = lane; j < n; j += lanes) {
                    const real a = V[p * n + j], b = V[q * n + j];
                    V[p * n + j] = turned(a, b, s, h);
                    V[q * n + j] = turned(b, a, -s, -h);
                }
            }
            __syncthreads();
        }
        if (!__syncthreads_or(rotated)) break;
    }
    const real none = least - least;  // NaN unless all entries were finite
    for (int i = row; i < n; i += rows) {
        const real value = A[i * n + i] + none;
        int place = 0;    // in ascending order
        real square = 0;  // lengths are 1 but for roundings
        for (int m = 0; m < n; m++) {
            const real other = A[m * n + m] + none;
            place += other < value || (!(other > value) && m < i);
        }
        for (int j = 0; j < n; j++) square += V[i * n + j] * V[i * n + j];
        const real scale = 1 / root(square);
        for (int j = lane; j < n; j += lanes) all_vectors[(task * n + place) * n + j] = V[i * n + j] * scale;
        if (lane == 0) all_values[task * n + place] = value;
    }
}
