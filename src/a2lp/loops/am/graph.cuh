// The graph of the adaptive manifold: which nodes are neighbours, and the system of its labels. Compiled after descent.cuh
// and information.cuh.
//
// Matrices of nodes by nodes are padded to whole blocks of four rows, and the padding of the system is the identity.
// A warp has LANES threads, which can exchange numbers.

#ifndef LANES
#define LANES 32
#endif
#define WARPS (THREADS / LANES)
#define ALL_LANES 0xffffffffu

struct Params {
    Adam adam;
    Objective objective;
    real tau, alpha, same, slack, degree_offset;
    int s, k, updates;
};

#define PADDED ((NODES + 3) / 4 * 4)
#define LD ((PADDED / 4 | 1) * 4)  // from row to row: an odd number of fours, so that rows do not share banks
#define FOURS (PADDED / 4)
#define SHARE ((PADDED + LANES - 1) / LANES)  // of a row's entries: a lane's

// Scales of distances, or weights of edges; in global memory, as all threads' together are large
struct Adapted {
    struct alignas(2 * sizeof(real)) Moment {
        real mean, square;
    };
    real *values, *fixed;  // fixed, of scales: the distance, if neither end is a centroid; of edges: the affinity
    Moment* moments;
};

// What of an entry is read ahead
struct Entry {
    real value, fixed;
    Adapted::Moment moment;
};

struct Manifold {
    Adapted scales, edges;  // (N, NODES), (NODES, NODES)
    double* partial;          // (WARPS, 2)
    real* system;             // (PADDED, LD): affinities, then the system, its factors, and the gradient by affinities
    real* diagonal;           // (FOURS, 4, 4): factors of the blocks on the diagonal, with reciprocals of pivots
    real *z, *adjoint, *d_z, *scratch;        // (C, PADDED)
    real* apart;                              // (C, NODES): distances of the centroids
    real *logits, *probabilities, *marginal;  // (C, N) twice, C
    real *length, *threshold, *last;          // N: |x|^2; the k-th affinity; the last column chosen if equal
    real *degree, *scale, *d_degree;          // NODES
};

// The thread's number, computed anew: else what follows from it is kept for all steps, and there are too few registers
__device__ __forceinline__ int thread() {
    int now = threadIdx.x;
    asm volatile("" : "+r"(now));
    return now;
}

// A lane's r-th entry of a row
__device__ __forceinline__ int place(int lane, int r) { return lane + r * LANES; }

// For each of so many rows by one of the warps, whose lanes share a row: begin(i), use(i, j, entry, r) for a lane's entries,
// of which j is the r-th, and end(i); without moments if they are not needed. The next row is read ahead, since it is far.
template <bool MOMENT, class Begin, class Use, class End>
__device__ __forceinline__ void for_rows(const Adapted& from, int rows, Begin begin, Use use, End end) {
    const int now = thread(), lane = now % LANES;
    Entry ahead[SHARE];
    const auto read = [&](int i, int r) {
        const int e = i * NODES + place(lane, r);
        ahead[r].value = from.values[e];
        ahead[r].fixed = from.fixed[e];
        if (MOMENT) ahead[r].moment = from.moments[e];
    };
#pragma unroll
    for (int r = 0; r < SHARE; r++)
        if (now / LANES < rows && place(lane, r) < NODES) read(now / LANES, r);
    for (int i = now / LANES; i < rows; i += WARPS) {
        begin(i);
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            if (place(lane, r) >= NODES) break;
            const Entry entry = ahead[r];
            if (i + WARPS < rows) read(i + WARPS, r);
            use(i, place(lane, r), entry, r);
        }
        end(i);
    }
}

template <class Number>
__device__ __forceinline__ Number warp_sum(Number x) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

// Sums over all threads of two numbers each; partial must not have been read since the threads met
__device__ void block_sums(double& x, double& y, double* partial) {
    x = warp_sum(x), y = warp_sum(y);
    if (thread() % LANES == 0) partial[thread() / LANES * 2] = x, partial[thread() / LANES * 2 + 1] = y;
    __syncthreads();
    x = y = 0;
    for (int warp = 0; warp < WARPS; warp++) x += partial[2 * warp], y += partial[2 * warp + 1];
}

// |v - w| from an inner product; zero where only rounding is left
__device__ real distance(real own, real other, real product, real same) {
    const real lengths = own + other, square = lengths - 2 * product;
    return square > same * lengths ? root(square) : 0;
}

// Distances between the points, which stay, summed up in float64; lengths; and all parameters at their start
__device__ void begin_manifold(const Descent& t, const Manifold& g, const Params& p) {
    for (int i = thread(); i < N; i += blockDim.x) {
        double sum = 0;
        for (int column = 0; column < COLUMNS; column++)
            for (int k = 0; k < 4; k++) sum += (double)t.pieces[column * ROW + i].at[k] * t.pieces[column * ROW + i].at[k];
        g.length[i] = (real)sum;
        g.threshold[i] = 1;
    }
    for (int e = thread(); e < PADDED * LD; e += blockDim.x) g.system[e] = 0;
    __syncthreads();
    for (int e = thread(); e < NODES * NODES; e += blockDim.x) {
        const int i = e / NODES, j = e % NODES;
        g.edges.values[e] = p.alpha;
        g.edges.moments[e] = {0, 0};
        if (i >= N) continue;
        double square = 0;
        if (j < N && j != i)
#pragma unroll 4
            for (int column = 0; column < COLUMNS; column++) {
                const Four x = t.pieces[column * ROW + i], y = t.pieces[column * ROW + j];
                for (int k = 0; k < 4; k++) square += ((double)x.at[k] - y.at[k]) * ((double)x.at[k] - y.at[k]);
            }
        const double lengths = j < N ? g.length[i] + g.length[j] : 0;
        g.scales.values[e] = 1;
        g.scales.fixed[e] = square > p.same * lengths ? root((real)square) : 0;
        g.scales.moments[e] = {0, 0};
    }
    __syncthreads();
}

__device__ real distance_at(const Manifold& g, int i, int j, const Entry& scale) {
    return j < N ? scale.fixed : g.apart[(j - N) * NODES + i];
}

__device__ real affinity(const Manifold& g, int i, int j, const Entry& scale, real per_spread) {
    return exponential(-(distance_at(g, i, j, scale) * per_spread) * scale.value);
}

// Of a row's entries, dealt to the lanes of a warp: how many are as asked for
template <class Asked>
__device__ __forceinline__ int count(const real (&row)[SHARE], Asked asked) {
    int found = 0;
#pragma unroll
    for (int r = 0; r < SHARE; r++) found += __popc(__ballot_sync(ALL_LANES, asked(row[r])));
    return found;
}

// The largest of them that is as asked for, times `sign`; `none` if there is none larger
template <class Asked>
__device__ __forceinline__ real largest(const real (&row)[SHARE], real sign, real none, Asked asked) {
    real top = none;
#pragma unroll
    for (int r = 0; r < SHARE; r++) top = asked(row[r]) && sign * row[r] > top ? sign * row[r] : top;
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        const real other = __shfl_xor_sync(ALL_LANES, top, distance);
        top = other > top ? other : top;
    }
    return sign * top;
}

// The k-th largest, found by walking from `start`, near which it is but in the first round; -1 where numbers are not finite
__device__ real kth_largest(const real (&row)[SHARE], int k, real start) {
    const real infinity = (real)(DOUBLE ? 1e300 : 1e30);
    real at = start;
    if (count(row, [=](real x) { return x > at; }) < k) {
        at = largest(row, 1, -1, [=](real x) { return x <= at; });
        while (at >= 0 && count(row, [=](real x) { return x >= at; }) < k)
            at = largest(row, 1, -1, [=](real x) { return x < at; });
        return at;
    }
    do at = largest(row, -1, -infinity, [=](real x) { return x > at; });
    while (count(row, [=](real x) { return x > at; }) >= k);
    return at;
}

// Which affinities of a row are its k largest: those above `high`, and from `low` on up to column `last`
struct Chosen {
    real low, high;
    int last;
};

__device__ __forceinline__ bool is_in(const Chosen& chosen, real x, int j) {
    return x > chosen.high || (x >= chosen.low && j <= chosen.last);
}

__device__ __forceinline__ Chosen chosen_of(const Manifold& g, int i, const Params& p) {
    const real low = (1 - p.slack) * g.threshold[i];
    return {low, low * (1 + 2 * p.slack), (int)g.last[i]};
}

// Affinities of points to the k nearest nodes into the system's memory, else zero
__device__ void compare(const Manifold& g, real per_spread, const Params& p) {
    const int lane = thread() % LANES;
    real row[SHARE];
    const auto begin = [&](int) {
#pragma unroll
        for (int r = 0; r < SHARE; r++) row[r] = -1;
    };
    const auto use = [&](int i, int j, const Entry& scale, int r) {
        if (j != i) row[r] = affinity(g, i, j, scale, per_spread);
    };
    const auto choose = [&](int i) {
        real* all = g.system + i * LD;
        const real threshold = kth_largest(row, p.k, g.threshold[i]);
        __syncwarp();
        g.threshold[i] = threshold, g.last[i] = NODES;
        Chosen chosen = chosen_of(g, i, p);
        if (count(row, [=](real x) { return x >= chosen.low; }) > p.k) {  // of equal ones at the k-th place the first stay
#pragma unroll
            for (int r = 0; r < SHARE; r++)
                if (place(lane, r) < NODES) all[place(lane, r)] = row[r];
            __syncwarp();
            int room = p.k - count(row, [=](real x) { return x > chosen.high; }), last = -1;
            for (; last < NODES; last++) {
                const real next = last + 1 < NODES ? all[last + 1] : -1;
                if (next >= chosen.low && next <= chosen.high && --room < 0) break;
            }
            __syncwarp();
            g.last[i] = chosen.last = last;
        }
#pragma unroll
        for (int r = 0; r < SHARE; r++)
            if (place(lane, r) < NODES) all[place(lane, r)] = is_in(chosen, row[r], place(lane, r)) ? row[r] : 0;
    };
    for_rows<false>(g.scales, N, begin, use, choose);
    __syncthreads();
}

// I - alpha D^-1/2 W D^-1/2 from the affinities; edges remember the symmetric ones
__device__ void build(const Manifold& g, const Params& p) {
    for (int e = thread(); e < NODES * NODES; e += blockDim.x) {
        const int i = e / NODES, j = e % NODES;
        if (j < i) continue;
        // centroids choose no neighbours
        const real forth = i < N && j > i ? g.system[i * LD + j] : 0, back = j < N && j > i ? g.system[j * LD + i] : 0;
        g.system[i * LD + j] = g.system[j * LD + i] = (real)0.5 * (forth + back);
    }
    __syncthreads();
    real sum;
    const auto begin = [&](int) { sum = 0; };
    const auto weigh = [&](int i, int j, const Entry& edge, int) {
        real& weight = g.system[i * LD + j];
        g.edges.fixed[i * NODES + j] = weight;
        weight *= edge.value;
        sum += weight;
    };
    const auto normalize = [&](int i) {
        const real degree = warp_sum(sum) + p.degree_offset;
        g.degree[i] = degree;
        g.scale[i] = 1 / root(degree);
    };
    for_rows<false>(g.edges, NODES, begin, weigh, normalize);
    __syncthreads();
    for (int e = thread(); e < PADDED * FOURS; e += blockDim.x) {
        const int i = e / FOURS, first = e % FOURS * 4;
        Four* at = (Four*)(g.system + i * LD + first);
        Four line = *at;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int j = first + b;
            const real weight = i < NODES && j < NODES ? p.alpha * g.scale[i] * g.scale[j] * line.at[b] : 0;
            line.at[b] = (i == j) - weight;
        }
        *at = line;
    }
    __syncthreads();
}
