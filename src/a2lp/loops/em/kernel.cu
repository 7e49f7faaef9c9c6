// A thread block runs all rounds of expectation-maximisation of one task, whose shares stay in shared memory.
// Compiled with DOUBLE, whether numbers are float64 (float32 else); GROUP, how many classes a thread multiplies at once;
// RESIDENT, whether shared memory has room for the task's two matrices, too. Sizes: s labelled of n points, c classes.
//
// Products and sums over classes have a thread for each point, sums over points PARTS threads for each class. Every
// loop is over blockDim, so that any number of threads, one included, computes the same numbers.

#define PARTS 16

#if DOUBLE
typedef double real;
__device__ real exponential(real x) { return exp(x); }
#else
typedef float real;
__device__ real exponential(real x) { return expf(x); }
#endif

struct Params {
    double temperature, share_weight, mean_prior, pull, least;
    int n, s, c, priors, rounds, sinkhorn_rounds;
};

// What a task has in shared memory
struct Task {
    const real *gram, *smoothing;  // (n, n), perhaps not there but where they came from
    const real* bias;              // (c, n), where it came from: added to logits
    const real *priors, *weights;  // concentrations of the shares' prior, and what each counts
    real *shares, *found;          // (c, n): shares of points in classes; products of them with a matrix
    real* partial;                 // (c, PARTS)
    real *shots, *mass;            // c each: labelled points, and shares of the others
    real *count, *square, *extra;  // c each: both of them; the mean's square; what is added to logits
};

__device__ real at_least(real x, real least) { return x < least ? least : x; }

// For x > 0, as the array form has it; in float64 whatever the rest is, since it is little work
__device__ double digamma(double x) {
    double below = 0;
    for (int i = 0; i < 8; i++) below += 1 / (x + i);
    x += 8;
    const double inverse = 1 / (x * x);
    const double series =
        inverse * (1. / 12 - inverse * (1. / 120 - inverse * (1. / 252 - inverse * (1. / 240 - inverse / 132))));
    return log(x) - 0.5 / x - series - below;
}

// found = shares times a matrix, in the columns from `first` on
__device__ void multiply(const Task& t, const real* matrix, int first, const Params& p) {
    const int n = p.n, columns = n - first, groups = (p.c + GROUP - 1) / GROUP;
    for (int e = threadIdx.x; e < columns * groups; e += blockDim.x) {
        const int i = first + e % columns, q0 = e / columns * GROUP;
        const real* rows[GROUP];
        real sums[GROUP];
#pragma unroll
        for (int g = 0; g < GROUP; g++) rows[g] = t.shares + (q0 + g < p.c ? q0 + g : p.c - 1) * n, sums[g] = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++) {
            const real entry = matrix[j * n + i];
#pragma unroll
            for (int g = 0; g < GROUP; g++) sums[g] += rows[g][j] * entry;
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++)
            if (q0 + g < p.c) t.found[(q0 + g) * n + i] = sums[g];
    }
    __syncthreads();
}

// Of value(q, i) over points from `first` to before `last`, for each class q
template <class Value>
__device__ void sum_points(const Task& t, real* sums, int first, int last, int c, Value value) {
    for (int e = threadIdx.x; e < c * PARTS; e += blockDim.x) {
        real sum = 0;
        for (int i = first + e % PARTS; i < last; i += PARTS) sum += value(e / PARTS, i);
        t.partial[e] = sum;
    }
    __syncthreads();
    for (int q = threadIdx.x; q < c; q += blockDim.x) {
        real sum = 0;
        for (int r = 0; r < PARTS; r++) sum += t.partial[q * PARTS + r];
        sums[q] = sum;
    }
    __syncthreads();
}

// Shares of the points that are not labelled, propagated; with a uniform marginal, scaled to classes of equal mass
__device__ void smooth(const Task& t, const Params& p) {
    const int n = p.n, s = p.s, c = p.c;
    const real least = (real)p.least, target = (real)((double)(n - s) / c);
    multiply(t, t.smoothing, s, p);
    for (int i = s + threadIdx.x; i < n; i += blockDim.x) {
        real total = 0;
        for (int q = 0; q < c; q++) {
            // a point that nothing reaches has equal shares
            const real share = at_least(t.found[q * n + i], 0) + least;
            t.shares[q * n + i] = share;
            total += share;
        }
        for (int q = 0; q < c; q++) t.shares[q * n + i] /= total;
    }
    __syncthreads();
    for (int round = 0; round < p.sinkhorn_rounds; round++) {
        sum_points(t, t.mass, s, n, c, [&](int q, int i) { return t.shares[q * n + i]; });
        for (int i = s + threadIdx.x; i < n; i += blockDim.x) {
            real total = 0;
            for (int q = 0; q < c; q++) {
                const real share = t.shares[q * n + i] * (target / at_least(t.mass[q], least));
                t.shares[q * n + i] = share;
                total += share;
            }
            total = at_least(total, least);
            for (int q = 0; q < c; q++) t.shares[q * n + i] /= total;
        }
        __syncthreads();
    }
}

// What a class's mass adds to its logits: the expected logarithm of its share, and the pull to its expected mass
__device__ real log_share(const Task& t, double mass, const Params& p) {
    const double rest = p.n - p.s;
    double logarithm = 0, expected = 0;
    for (int a = 0; a < p.priors; a++) {
        const double prior = t.priors[a], weight = t.weights[a];
        logarithm += weight * digamma(mass + prior);
        expected += weight * (mass + prior) * rest / (rest + p.c * prior);
    }
    return (real)(p.share_weight * logarithm + p.pull * log((expected + 1) / (mass + 1)));
}

// New shares of the points that are not labelled, by their distances from the class means under the present ones
__device__ void assign(const Task& t, const Params& p) {
    const int n = p.n, s = p.s, c = p.c;
    const real temperature = (real)p.temperature;
    sum_points(t, t.mass, s, n, c, [&](int q, int i) { return t.shares[q * n + i]; });
    multiply(t, t.gram, 0, p);
    sum_points(t, t.square, 0, n, c, [&](int q, int i) { return t.shares[q * n + i] * t.found[q * n + i]; });
    for (int q = threadIdx.x; q < c; q += blockDim.x) {
        t.count[q] = t.shots[q] + t.mass[q] + (real)p.mean_prior;
        t.square[q] = t.square[q] / t.count[q] / t.count[q];
        t.extra[q] = p.sinkhorn_rounds ? 0 : log_share(t, t.mass[q], p);
    }
    __syncthreads();
    for (int i = s + threadIdx.x; i < n; i += blockDim.x) {
        real top = 0, total = 0;
        for (int q = 0; q < c; q++) {
            const real distance = t.gram[i * n + i] - 2 * (t.found[q * n + i] / t.count[q]) + t.square[q];
            const real logit = t.bias[q * n + i] + t.extra[q] - temperature * distance;
            t.shares[q * n + i] = logit;
            top = q == 0 || logit > top ? logit : top;
        }
        for (int q = 0; q < c; q++) {
            const real share = exponential(t.shares[q * n + i] - top);
            t.shares[q * n + i] = share;
            total += share;
        }
        for (int q = 0; q < c; q++) t.shares[q * n + i] /= total;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(512)
a2lp_em(const real* all_gram, const real* all_smoothing, const long long* all_codes, const real* all_bias,
        const real* priors, const real* all_weights, real* all_shares, const Params p) {
    extern __shared__ double memory[];
    const int n = p.n, s = p.s, c = p.c;
    const long long task = blockIdx.x;
    const long long* codes = all_codes + task * s;
    Task t;
    t.gram = all_gram + task * n * n;
    t.smoothing = all_smoothing + task * n * n;
    t.bias = all_bias + task * c * n;
    t.priors = priors;
    t.weights = all_weights + task * p.priors;
    t.shares = (real*)memory;
    t.found = t.shares + c * n;
    t.partial = t.found + c * n;
    t.shots = t.partial + c * PARTS;
    t.mass = t.shots + c;
    t.count = t.mass + c;
    t.square = t.count + c;
    t.extra = t.square + c;
#if RESIDENT
    real *gram = t.extra + c, *smoothing = gram + n * n;
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) gram[e] = t.gram[e], smoothing[e] = t.smoothing[e];
    t.gram = gram;
    t.smoothing = smoothing;
#endif
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) t.shares[e] = e % n < s && codes[e % n] == e / n;
    __syncthreads();
    sum_points(t, t.shots, 0, s, c, [&](int q, int i) { return t.shares[q * n + i]; });
    if (p.rounds == 0) smooth(t, p);  // label propagation
    for (int e = threadIdx.x; e < c * n; e += blockDim.x)
        if (p.rounds > 0 && e % n >= s) t.shares[e] = all_shares[task * c * n + e];
    __syncthreads();
    for (int round = 0; round < p.rounds; round++) {
        assign(t, p);
        smooth(t, p);
    }
    for (int e = threadIdx.x; e < c * n; e += blockDim.x) all_shares[task * c * n + e] = t.shares[e];
}
