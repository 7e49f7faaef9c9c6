// Adam on the class weights of a task by a thread block: what loops share whose gradient is a combination of nodes.
// Nodes are a task's N points and then its C class weights. Compiled for DOUBLE, whether numbers are float64 (float32
// else); N, C; D dimensions; THREADS of a block; BLOCKS of a multiprocessor; SLICES that the inner products' dimensions
// are dealt to; RESIDENT of the columns of four dimensions in shared memory; the others are read from where they came.
//
// A thread has dimensions of its own, of all classes: gradients need no sums over threads, and moments stay in
// registers. Inner products have a point to a lane and every SLICES-th column to a slice, whose sums are added last.
// Every loop gives the same numbers whatever the number of threads.

#if DOUBLE
typedef double real;
__device__ real exponential(real x) { return exp(x); }
__device__ real logarithm(real x) { return log(x); }
__device__ real root(real x) { return sqrt(x); }
#else
typedef float real;
__device__ real exponential(real x) { return expf(x); }
__device__ real logarithm(real x) { return logf(x); }
__device__ real root(real x) { return sqrtf(x); }
#endif

#define NODES (N + C)
#define COLUMNS ((D + 3) / 4)
#define ROW (N | 1)                      // points of a column: odd, so that columns do not share banks
#define WEIGHT_ROW (4 * COLUMNS + 4)     // from class to class of the weights
#define SLOPE_ROW ((NODES + 3) / 4 * 4)  // from class to class of the slopes
#define PARTS 16                         // threads that sum a class
#define TILES (NODES > 96 ? 4 : (NODES + 31) / 32)  // points of a lane at once
#define GROUPS ((C + 4) / 5)
#define GROUP ((C + GROUPS - 1) / GROUPS)           // classes at once
#define SLOTS ((D + THREADS - 1) / THREADS)         // dimensions of a thread

constexpr int UNROLL = SLOTS * C <= 24 ? SLOTS * C : 1;  // beyond, registers do not hold the moments anyway

struct alignas(4 * sizeof(real)) Four {
    real at[4];
};

// Adam's constants, as in ``Adam.constants``
struct Adam {
    real b1, rest1, b2, rest2, eps;
};

struct Moments {
    real mean[SLOTS * C], square[SLOTS * C];
};

// What a task has in shared memory
struct Descent {
    Four* points;               // (RESIDENT, ROW)
    const Four* pieces;         // (COLUMNS, ROW), where they came from
    const real* vectors;        // (N, D), likewise
    real *weights;              // (C, WEIGHT_ROW)
    real *parts, *products;     // (SLICES, C, NODES) and (C, NODES): inner products of weights with nodes
    real *slopes;               // (C, SLOPE_ROW): what a node counts in the gradient of a class
    real *sums;                 // (C, PARTS)
};

// Divides up shared memory but for the parts; where the rest begins, at a multiple of four numbers
__device__ real* divide(Descent& t, double* memory) {
    t.points = (Four*)memory;
    t.weights = (real*)(t.points + RESIDENT * ROW);
    t.slopes = t.weights + C * WEIGHT_ROW;
    t.sums = t.slopes + C * SLOPE_ROW;
    t.products = t.sums + C * PARTS;
    return t.products + (C * NODES + 3) / 4 * 4;
}

// Reads a task and sets moments to zero
__device__ void begin(Descent& t, Moments& moments, const real* pieces, const real* vectors, const real* weights) {
    t.pieces = (const Four*)pieces;
    t.vectors = vectors;
    for (int e = threadIdx.x; e < RESIDENT * ROW; e += blockDim.x) t.points[e] = t.pieces[e];
    for (int e = threadIdx.x; e < C * WEIGHT_ROW; e += blockDim.x) {
        const int q = e / WEIGHT_ROW, j = e % WEIGHT_ROW;
        t.weights[e] = j < D ? weights[q * D + j] : 0;
    }
#pragma unroll UNROLL
    for (int e = 0; e < SLOTS * C; e++) moments.mean[e] = moments.square[e] = 0;
    __syncthreads();
}

__device__ void store_weights(const Descent& t, real* weights) {
    for (int e = threadIdx.x; e < C * D; e += blockDim.x) weights[e] = t.weights[e / D * WEIGHT_ROW + e % D];
}

// Of value(q, i) over nodes from `first` to before `last`, for each class q, given to take(q, sum)
template <class Value, class Take>
__device__ void sum_nodes(const Descent& t, int first, int last, Value value, Take take) {
    for (int e = threadIdx.x; e < C * PARTS; e += blockDim.x) {
        real sum = 0;
        for (int i = first + e % PARTS; i < last; i += PARTS) sum += value(e / PARTS, i);
        t.sums[e] = sum;
    }
    __syncthreads();
    for (int q = threadIdx.x; q < C; q += blockDim.x) {
        real sum = 0;
#pragma unroll
        for (int r = 0; r < PARTS; r++) sum += t.sums[q * PARTS + r];
        take(q, sum);
    }
    __syncthreads();
}

// sums += products of columns from `column` to before `last`, for the nodes at[r] + column * stride[r]
__device__ __forceinline__ void multiply(real (&sums)[TILES][GROUP], const Four* const (&at)[TILES],
                                         const int (&stride)[TILES], const Four* const (&weights)[GROUP], int column,
                                         int last) {
#pragma unroll 2
    for (; column < last; column += SLICES) {
        Four x[TILES];
#pragma unroll
        for (int r = 0; r < TILES; r++) x[r] = at[r][column * stride[r]];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            const Four w = weights[g][column];
#pragma unroll
            for (int r = 0; r < TILES; r++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[r][g] += w.at[k] * x[r].at[k];
        }
    }
}

// products = inner products of all weights with all nodes
__device__ void multiply_nodes(const Descent& t) {
    const Four* weights = (const Four*)t.weights;
    for (int e = threadIdx.x; e < SLICES * 32; e += blockDim.x) {
        const int slice = e / 32, lane = e % 32;
        for (int first = 0; first < NODES; first += 32 * TILES)
            for (int q0 = 0; q0 < C; q0 += GROUP) {
                real sums[TILES][GROUP];
                const Four *at[TILES], *from[TILES], *rows[GROUP];
                int stride[TILES];
#pragma unroll
                for (int r = 0; r < TILES; r++) {
                    const int i = first + 32 * r + lane, own = i < NODES ? i - N : 0;
                    const Four* weight = weights + own * (WEIGHT_ROW / 4);
                    at[r] = i < N ? t.points + i : weight;
                    from[r] = i < N ? t.pieces + i : weight;
                    stride[r] = i < N ? ROW : 1;
#pragma unroll
                    for (int g = 0; g < GROUP; g++) sums[r][g] = 0;
                }
#pragma unroll
                for (int g = 0; g < GROUP; g++) rows[g] = weights + (q0 + g < C ? q0 + g : C - 1) * (WEIGHT_ROW / 4);
                multiply(sums, at, stride, rows, slice, RESIDENT);
                // a slice goes on at its first column behind the resident ones
                const int next = slice + (RESIDENT - slice + SLICES - 1) / SLICES * SLICES;
                if (RESIDENT < COLUMNS) multiply(sums, from, stride, rows, RESIDENT <= slice ? slice : next, COLUMNS);
#pragma unroll
                for (int r = 0; r < TILES; r++)
#pragma unroll
                    for (int g = 0; g < GROUP; g++) {
                        const int i = first + 32 * r + lane, q = q0 + g;
                        if (i < NODES && q < C) t.parts[(slice * C + q) * NODES + i] = sums[r][g];
                    }
            }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < C * NODES; e += blockDim.x) {
        real sum = 0;
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) sum += t.parts[slice * C * NODES + e];
        t.products[e] = sum;
    }
    __syncthreads();
}

__device__ __forceinline__ real adam_move(real gradient, real& mean, real& square, const Adam& adam, real rate,
                                          real correction) {
    mean = adam.b1 * mean + adam.rest1 * gradient;
    square = adam.b2 * square + adam.rest2 * gradient * gradient;
    const real denominator = root(square) * correction + adam.eps;
    return denominator > 0 ? -rate * mean / denominator : 0;
}

// sums += slopes of classes from `first` on times points, whose entries of one dimension are at x[stride * i]; so many
// fours of them are read ahead
template <int AHEAD>
__device__ __forceinline__ void combine(real (&sums)[GROUP], const Descent& t, int first, const real* x, int stride) {
    const real* rows[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; g++) rows[g] = t.slopes + (first + g < C ? first + g : C - 1) * SLOPE_ROW;
    constexpr int STEP = 4 * AHEAD, WHOLE = N / STEP * STEP;
    for (int first = 0; first < WHOLE; first += STEP) {
        real values[STEP];
#pragma unroll
        for (int k = 0; k < STEP; k++) values[k] = x[(first + k) * stride];
#pragma unroll
        for (int i = 0; i < STEP; i += 4)
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                const Four slope = *(const Four*)(rows[g] + first + i);
#pragma unroll
                for (int k = 0; k < 4; k++) sums[g] += slope.at[k] * values[i + k];
            }
    }
#pragma unroll
    for (int i = WHOLE; i < N; i++)
#pragma unroll
        for (int g = 0; g < GROUP; g++) sums[g] += rows[g][i] * x[i * stride];
}

// One step of Adam on the weights, whose gradient is the slopes times the nodes
__device__ void descend(const Descent& t, Moments& moments, const Adam& adam, real rate, real correction) {
#pragma unroll UNROLL
    for (int slot = 0; slot < SLOTS; slot++) {
        const int j = threadIdx.x + slot * THREADS, column = j / 4;
        if (j >= D) break;
        real moves[C];
#pragma unroll UNROLL
        for (int q0 = 0; q0 < C; q0 += GROUP) {
            real sums[GROUP];
#pragma unroll
            for (int g = 0; g < GROUP; g++) sums[g] = 0;
            if (column < RESIDENT) combine<2>(sums, t, q0, (const real*)t.points + column * ROW * 4 + j % 4, 4);
            else combine<5>(sums, t, q0, t.vectors + j, D);  // they are far away
            for (int p = 0; p < C; p++) {
                const real weight = t.weights[p * WEIGHT_ROW + j];
#pragma unroll
                for (int g = 0; g < GROUP; g++)
                    sums[g] += t.slopes[(q0 + g < C ? q0 + g : C - 1) * SLOPE_ROW + N + p] * weight;
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
                const int q = q0 + g;
                if (q >= C) break;
                const int own = slot * C + q;
                moves[q] = adam_move(sums[g], moments.mean[own], moments.square[own], adam, rate, correction);
            }
        }
#pragma unroll UNROLL
        for (int q = 0; q < C; q++) t.weights[q * WEIGHT_ROW + j] += moves[q];
    }
    __syncthreads();
}
