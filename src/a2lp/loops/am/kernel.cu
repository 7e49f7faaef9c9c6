// A thread block runs all rounds of one task, whose weights are the centroids; after descent.cuh and information.cuh.
// Matrices of nodes by nodes are padded to whole blocks of four rows, and the padding of the system is the identity.

struct Params {
    Adam adam;
    Objective objective;
    real tau, alpha, same, slack, degree_offset;
    int s, k, updates;
};

#define PADDED ((NODES + 3) / 4 * 4)
#define LD ((PADDED / 4 | 1) * 4)  // from row to row: an odd number of fours, so that rows do not share banks
#define FOURS (PADDED / 4)
#define BELOW ((real)1 - (real)(DOUBLE ? 0x1p-53 : 0x1p-24))  // times a number: the next smaller one

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
    double* partial;          // THREADS, and 32
    real* system;             // (PADDED, LD): affinities, then the system, its factors, and the gradient by affinities
    real* diagonal;           // (FOURS, 4, 4): factors of the blocks on the diagonal, with reciprocals of pivots
    real *z, *adjoint, *d_z, *scratch;        // (C, PADDED)
    real* apart;                              // (C, NODES): distances of the centroids
    real *logits, *probabilities, *marginal;  // (C, N) twice, C
    real *length, *threshold, *last;          // N: |x|^2; the k-th affinity; the last column chosen if equal
    real *degree, *scale, *d_degree;          // NODES
};

// use(e, entry) for each entry, without its moment if that is not needed; some are read ahead, since they are far away
template <int AHEAD, bool MOMENT, class Use>
__device__ __forceinline__ void for_entries(const Adapted& from, int count, Use use) {
    for (int first = threadIdx.x; first < count; first += AHEAD * blockDim.x) {
        Entry entries[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int e = first + k * (int)blockDim.x;
            if (e >= count) break;
            entries[k].value = from.values[e];
            entries[k].fixed = from.fixed[e];
            if (MOMENT) entries[k].moment = from.moments[e];
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * (int)blockDim.x < count) use(first + k * (int)blockDim.x, entries[k]);
    }
}

__device__ double block_sum(double x, double* partial) {
    partial[threadIdx.x] = x;
    __syncthreads();
    for (int lane = threadIdx.x; lane < 32; lane += blockDim.x) {
        double sum = 0;
        for (int i = lane; i < blockDim.x; i += 32) sum += partial[i];
        partial[THREADS + lane] = sum;
    }
    __syncthreads();
    double sum = 0;
    for (int lane = 0; lane < 32; lane++) sum += partial[THREADS + lane];
    return sum;
}

// |v - w| from an inner product; zero where only rounding is left
__device__ real distance(real own, real other, real product, real same) {
    const real lengths = own + other, square = lengths - 2 * product;
    return square > same * lengths ? root(square) : 0;
}

// Distances between the points, which stay, summed up in float64; lengths; and all parameters at their start
__device__ void begin_manifold(const Descent& t, const Manifold& g, const Params& p) {
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        double sum = 0;
        for (int column = 0; column < COLUMNS; column++)
            for (int k = 0; k < 4; k++) sum += (double)t.pieces[column * ROW + i].at[k] * t.pieces[column * ROW + i].at[k];
        g.length[i] = (real)sum;
    }
    for (int e = threadIdx.x; e < PADDED * LD; e += blockDim.x) g.system[e] = 0;
    __syncthreads();
    for (int e = threadIdx.x; e < NODES * NODES; e += blockDim.x) {
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

// An affinity of point i to node j, if it is among the k largest of i; else zero
__device__ real if_chosen(const Manifold& g, int i, int j, real value, const Params& p) {
    const real low = (1 - p.slack) * g.threshold[i], high = low * (1 + 2 * p.slack);
    return value > high || (value >= low && j <= g.last[i]) ? value : 0;
}

// Affinities of points to nodes into the system's memory, and which are the k largest of each
__device__ void compare(const Manifold& g, real per_spread, const Params& p) {
    for_entries<6, false>(g.scales, N * NODES, [&](int e, const Entry& scale) {
        const int i = e / NODES, j = e % NODES;
        g.system[i * LD + j] = j == i ? -1 : affinity(g, i, j, scale, per_spread);
    });
    for (int e = threadIdx.x; e < N * (LD - NODES); e += blockDim.x)
        g.system[e / (LD - NODES) * LD + NODES + e % (LD - NODES)] = -1;
    __syncthreads();
    // how many affinities of the row come before, for four at a time: larger ones, and equal ones further left
    for (int e = threadIdx.x; e < N * FOURS; e += blockDim.x) {
        const int i = e / FOURS, place = e % FOURS;
        const Four* row = (const Four*)(g.system + i * LD);
        const Four own = row[place];
        int before[4] = {0, 0, 0, 0};
        for (int block = 0; block < FOURS; block++) {
            const Four other = row[block];
#pragma unroll
            for (int a = 0; a < 4; a++) {
                const real limit = block < place ? own.at[a] * BELOW : own.at[a];
#pragma unroll
                for (int b = 0; b < 4; b++) before[a] += other.at[b] > limit;
            }
        }
#pragma unroll
        for (int a = 1; a < 4; a++)
#pragma unroll
            for (int b = 0; b < a; b++) before[a] += own.at[b] == own.at[a];
#pragma unroll
        for (int a = 0; a < 4; a++)
            if (before[a] == p.k - 1) g.threshold[i] = own.at[a];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        const Four* row = (const Four*)(g.system + i * LD);
        const real low = (1 - p.slack) * g.threshold[i], high = low * (1 + 2 * p.slack);
        int reached = 0, last = NODES;
        for (int block = 0; block < FOURS; block++)
#pragma unroll
            for (int b = 0; b < 4; b++) reached += row[block].at[b] >= low;
        if (reached > p.k) {  // of equal affinities at the k-th place, the first stay
            int room = p.k;
            for (int j = 0; j < NODES; j++) room -= g.system[i * LD + j] > high;
            for (last = -1; last < NODES; last++) {
                const real next = last + 1 < NODES ? g.system[i * LD + last + 1] : -1;
                if (next >= low && next <= high && --room < 0) break;
            }
        }
        g.last[i] = last;
    }
    __syncthreads();
}

// I - alpha D^-1/2 W D^-1/2 from the affinities; edges remember the symmetric ones
__device__ void build(const Manifold& g, const Params& p) {
    for (int e = threadIdx.x; e < NODES * NODES; e += blockDim.x) {
        const int i = e / NODES, j = e % NODES;
        if (j < i) continue;
        // centroids choose no neighbours
        const real forth = i < N && j > i ? if_chosen(g, i, j, g.system[i * LD + j], p) : 0;
        const real back = j < N && j > i ? if_chosen(g, j, i, g.system[j * LD + i], p) : 0;
        g.system[i * LD + j] = g.system[j * LD + i] = (real)0.5 * (forth + back);
    }
    for (int e = threadIdx.x; e < NODES * (LD - NODES); e += blockDim.x)
        g.system[e / (LD - NODES) * LD + NODES + e % (LD - NODES)] = 0;
    __syncthreads();
    for_entries<6, false>(g.edges, NODES * NODES, [&](int e, const Entry& edge) {
        real& weight = g.system[e / NODES * LD + e % NODES];
        g.edges.fixed[e] = weight;
        weight *= edge.value;
    });
    __syncthreads();
    for (int i = threadIdx.x; i < NODES; i += blockDim.x) {
        const Four* row = (const Four*)(g.system + i * LD);
        real sum = 0;
        for (int block = 0; block < FOURS; block++)
#pragma unroll
            for (int b = 0; b < 4; b++) sum += row[block].at[b];
        g.degree[i] = sum + p.degree_offset;
        g.scale[i] = 1 / root(g.degree[i]);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < PADDED * LD; e += blockDim.x) {
        const int i = e / LD, j = e % LD;
        const real weight = i < NODES && j < NODES ? p.alpha * g.scale[i] * g.scale[j] * g.system[e] : 0;
        g.system[e] = (i == j) - weight;
    }
    __syncthreads();
}

// LU of a block of four by four, without pivots; the diagonal becomes reciprocals of pivots
__device__ __forceinline__ void factor_block(real (&m)[4][4]) {
#pragma unroll
    for (int a = 0; a < 4; a++) {
        m[a][a] = 1 / m[a][a];
#pragma unroll
        for (int b = a + 1; b < 4; b++) {
            m[b][a] *= m[a][a];
#pragma unroll
            for (int c = a + 1; c < 4; c++) m[b][c] -= m[b][a] * m[a][c];
        }
    }
}

// LU of the system in place, but for the blocks on the diagonal. No pivots: the system is similar to I - alpha D^-1 W,
// whose diagonal is dominant.
__device__ void factor(const Manifold& g) {
    for (int first = 0; first < PADDED; first += 4) {
        const int rest = PADDED - first - 4;
        for (int e = threadIdx.x; e < 2 * rest + 1; e += blockDim.x) {
            real m[4][4], x[4];
#pragma unroll
            for (int a = 0; a < 4; a++) {
                const Four row = *(const Four*)(g.system + (first + a) * LD + first);
                for (int b = 0; b < 4; b++) m[a][b] = row.at[b];
            }
            factor_block(m);
            if (e == 2 * rest) {
#pragma unroll
                for (int a = 0; a < 16; a++) g.diagonal[first * 4 + a] = m[a / 4][a % 4];
            } else if (e < rest) {  // a column of U
                real* at = g.system + first * LD + first + 4 + e;
#pragma unroll
                for (int a = 0; a < 4; a++) {
                    x[a] = at[a * LD];
#pragma unroll
                    for (int b = 0; b < a; b++) x[a] -= m[a][b] * x[b];
                    at[a * LD] = x[a];
                }
            } else {  // a row of L
                Four* at = (Four*)(g.system + (first + 4 + e - rest) * LD + first);
                Four row = *at;
#pragma unroll
                for (int a = 0; a < 4; a++) {
#pragma unroll
                    for (int b = 0; b < a; b++) row.at[a] -= row.at[b] * m[b][a];
                    row.at[a] *= m[a][a];
                }
                *at = row;
            }
        }
        __syncthreads();
        for (int e = threadIdx.x; e < SLICES * 32; e += blockDim.x)
            for (int column = first + 4 + e % 32 * 4; column < PADDED; column += 128) {
                Four upper[4];
#pragma unroll
                for (int a = 0; a < 4; a++) upper[a] = *(const Four*)(g.system + (first + a) * LD + column);
                for (int top = first + 4 + e / 32; top < PADDED; top += 4 * SLICES) {
                    Four lower[4], value[4];
                    Four* at[4];
#pragma unroll
                    for (int r = 0; r < 4; r++) {  // past the end the last row again, which is not stored
                        const int i = top + r * SLICES < PADDED ? top + r * SLICES : PADDED - 1;
                        lower[r] = *(const Four*)(g.system + i * LD + first);
                        at[r] = (Four*)(g.system + i * LD + column);
                        value[r] = *at[r];
                    }
#pragma unroll
                    for (int r = 0; r < 4; r++) {
#pragma unroll
                        for (int a = 0; a < 4; a++)
#pragma unroll
                            for (int b = 0; b < 4; b++) value[r].at[b] -= lower[r].at[a] * upper[a].at[b];
                        if (top + r * SLICES < PADDED) *at[r] = value[r];
                    }
                }
            }
        __syncthreads();
    }
}

// Solves with one factor, from block `first` on (downwards, or upwards from the last): found from given (C, PADDED each),
// which is changed. UPPER: the factor U, whose pivots count, else L; TURNED: its transpose.
template <bool UPPER, bool TURNED>
__device__ void substitute(const Manifold& g, real* given, real* found, int first) {
    constexpr bool DOWN = UPPER == TURNED;
    for (int block = DOWN ? first : FOURS - 1; DOWN ? block < FOURS : block >= 0; block += DOWN ? 1 : -1) {
        const int row = 4 * block;
        for (int e = threadIdx.x; e < C * PADDED; e += blockDim.x) {
            const int q = e / PADDED, i = e % PADDED;
            if (DOWN ? i < row : i >= row + 4) continue;
            const real* m = g.diagonal + 16 * block;
            Four x = *(const Four*)(given + q * PADDED + row);
#pragma unroll
            for (int step = 0; step < 4; step++) {
                const int a = DOWN ? step : 3 - step;
#pragma unroll
                for (int before = 0; before < step; before++) {
                    const int b = DOWN ? before : 3 - before;
                    x.at[a] -= (TURNED ? m[b * 4 + a] : m[a * 4 + b]) * x.at[b];
                }
                if (UPPER) x.at[a] *= m[a * 5];
            }
            if (i / 4 == block) {
                const real low = i % 2 ? x.at[1] : x.at[0], high = i % 2 ? x.at[3] : x.at[2];
                found[e] = i % 4 < 2 ? low : high;
            } else {
                real value = given[e];
#pragma unroll
                for (int b = 0; b < 4; b++)
                    value -= (TURNED ? g.system[(row + b) * LD + i] : g.system[i * LD + row + b]) * x.at[b];
                given[e] = value;
            }
        }
        __syncthreads();
    }
}

// Z = the columns of the system's inverse that belong to centroids
__device__ void propagate(const Manifold& g) {
    for (int e = threadIdx.x; e < C * PADDED; e += blockDim.x)
        g.z[e] = e % PADDED == N + e / PADDED, g.scratch[e] = 0;
    __syncthreads();
    substitute<false, false>(g, g.z, g.scratch, N / 4);
    substitute<true, false>(g, g.scratch, g.z, 0);
}

// dL/dZ, its adjoint, and the gradient by the degrees
__device__ void adjoin(const Descent& t, const Manifold& g, const long long* codes, const Params& p) {
    for (int e = threadIdx.x; e < C * N; e += blockDim.x) g.logits[e] = p.tau * g.z[e / N * PADDED + e % N];
    for (int e = threadIdx.x; e < C * PADDED; e += blockDim.x) g.d_z[e] = 0;
    __syncthreads();
    softmax(g.logits, N, g.probabilities);
    information_gradient(t, g.probabilities, g.logits, N, codes, p.s, p.tau, p.objective, g.marginal, g.d_z, PADDED);
    for (int e = threadIdx.x; e < C * PADDED; e += blockDim.x) g.adjoint[e] = g.d_z[e];
    __syncthreads();
    substitute<true, true>(g, g.adjoint, g.scratch, 0);
    substitute<false, true>(g, g.scratch, g.adjoint, 0);
    for (int i = threadIdx.x; i < NODES; i += blockDim.x) {
        real sum = 0;
        for (int q = 0; q < C; q++) {
            const int e = q * PADDED + i;
            sum += g.adjoint[e] * g.z[e] + g.z[e] * (g.adjoint[e] - g.d_z[e]);
        }
        if (i >= N) sum -= g.adjoint[(i - N) * PADDED + i];
        g.d_degree[i] = (real)-0.5 * sum / g.degree[i];
    }
    __syncthreads();
}

__device__ __forceinline__ void adapt(const Adapted& all, int e, Entry& entry, real gradient, const Adam& adam, real rate,
                                      real correction) {
    all.values[e] = entry.value + adam_move(gradient, entry.moment.mean, entry.moment.square, adam, rate, correction);
    all.moments[e] = entry.moment;
}

// A step of the edges, then of the scales; slopes of the centroids become dL/d(distance / spread). Returns the thread's
// part of the gradient by the spread, times the spread.
__device__ real adapt_graph(const Descent& t, const Manifold& g, real per_spread, const Params& p, real rate,
                            real correction) {
    for_entries<4, true>(g.edges, NODES * NODES, [&](int e, Entry& edge) {
        const int i = e / NODES, j = e % NODES;
        real pair = 0;
        for (int q = 0; q < C; q++) pair += g.adjoint[q * PADDED + i] * g.z[q * PADDED + j];
        const real d_weight = p.alpha * g.scale[i] * g.scale[j] * pair + g.d_degree[i];
        g.system[i * LD + j] = d_weight * edge.value;
        adapt(g.edges, e, edge, d_weight * edge.fixed, p.adam, rate, correction);
    });
    __syncthreads();
    real d_spread = 0;
    for_entries<4, true>(g.scales, N * NODES, [&](int e, Entry& scale) {
        const int i = e / NODES, j = e % NODES;
        const real near = j == i ? 0 : if_chosen(g, i, j, affinity(g, i, j, scale, per_spread), p);
        const real d_exponent = (real)-0.5 * (g.system[i * LD + j] + g.system[j * LD + i]) * near;
        const real far = distance_at(g, i, j, scale) * per_spread, d_far = d_exponent * scale.value;
        d_spread -= d_far * far;
        if (j >= N) t.slopes[(j - N) * SLOPE_ROW + i] = d_far;
        adapt(g.scales, e, scale, d_exponent * far, p.adam, rate, correction);
    });
    return d_spread;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
a2lp_am(const real* all_pieces, const real* all_vectors, const long long* all_codes, const real* rates,
        real* all_weights, real* all_adapted, real* all_z, const Params p) {
    extern __shared__ double memory[];
    const long long task = blockIdx.x;
    const long long* codes = all_codes + task * p.s;
    real* weights = all_weights + task * C * D;
    Descent t;
    Manifold g;
    Moments moments;
    g.partial = (double*)divide(t, memory);
    g.system = t.parts = (real*)(g.partial + (THREADS + 32 + 3) / 4 * 4);  // parts are needed before affinities are
    g.diagonal = g.system + PADDED * LD;
    g.z = g.diagonal + FOURS * 16;
    g.adjoint = g.z + C * PADDED;
    g.d_z = g.adjoint + C * PADDED;
    g.scratch = g.d_z + C * PADDED;
    g.apart = g.scratch + C * PADDED;
    g.logits = g.apart + C * NODES;
    g.probabilities = g.logits + C * N;
    g.marginal = g.probabilities + C * N;
    g.length = g.marginal + C;
    g.threshold = g.length + N;
    g.last = g.threshold + N;
    g.degree = g.last + N;
    g.scale = g.degree + NODES;
    g.d_degree = g.scale + NODES;
    // moments first, which are pairs
    real* adapted = all_adapted + task * 4 * (N + NODES) * NODES;
    g.scales.moments = (Adapted::Moment*)adapted;
    g.edges.moments = g.scales.moments + N * NODES;
    g.scales.values = (real*)(g.edges.moments + NODES * NODES);
    g.scales.fixed = g.scales.values + N * NODES;
    g.edges.values = g.scales.fixed + N * NODES;
    g.edges.fixed = g.edges.values + NODES * NODES;
    begin(t, moments, all_pieces + task * COLUMNS * ROW * 4, all_vectors + task * N * D, weights);
    begin_manifold(t, g, p);

    double fixed_sum = 0, fixed_squares = 0;
    for (int e = threadIdx.x; e < N * NODES; e += blockDim.x) {
        const double value = g.scales.fixed[e];
        fixed_sum += value;
        fixed_squares += value * value;
    }
    fixed_sum = block_sum(fixed_sum, g.partial);
    fixed_squares = block_sum(fixed_squares, g.partial);

    for (int step = 0;; step++) {
        multiply_nodes(t);
        double total = 0, squares = 0;
        for (int e = threadIdx.x; e < C * NODES; e += blockDim.x) {
            const int a = e / NODES, j = e % NODES;
            const real own = t.products[a * NODES + N + a];
            const real other = j < N ? g.length[j] : t.products[(j - N) * NODES + j];
            const real value = j == N + a ? 0 : distance(own, other, t.products[e], p.same);
            g.apart[e] = value;
            const double times = j < N ? 2 : 1;  // each pair is counted in both orders
            total += times * value;
            squares += times * value * value;
        }
        total = fixed_sum + block_sum(total, g.partial);
        squares = fixed_squares + block_sum(squares, g.partial);
        const double pairs = (double)NODES * NODES, average = total / pairs;
        const double variance = (squares - total * average) / (pairs - 1);
        const real per_spread = (real)(variance > 1e-30 ? 1 / sqrt(variance) : 1);

        compare(g, per_spread, p);
        build(g, p);
        factor(g);
        propagate(g);
        if (step == p.updates) break;
        const real rate = rates[2 * step], correction = rates[2 * step + 1];
        adjoin(t, g, codes, p);
        real d_spread = adapt_graph(t, g, per_spread, p, rate, correction);
        d_spread = (real)(block_sum(d_spread, g.partial) * per_spread / (pairs - 1));
        for (int e = threadIdx.x; e < C * NODES; e += blockDim.x) {
            const int a = e / NODES, j = e % NODES;
            real& pull = t.slopes[a * SLOPE_ROW + j];
            const real away = g.apart[e];
            const real slope = per_spread * ((j < N ? pull : 0) + 2 * d_spread * (away - (real)average));
            pull = away > 0 ? -slope / away : 0;
        }
        __syncthreads();
        sum_nodes(
            t, 0, NODES, [&](int q, int i) { return t.slopes[q * SLOPE_ROW + i]; },
            [&](int q, real sum) { t.slopes[q * SLOPE_ROW + N + q] = -sum; });
        descend(t, moments, p.adam, rate, correction);
    }
    for (int e = threadIdx.x; e < N * C; e += blockDim.x)
        all_z[task * N * C + e] = g.z[e % C * PADDED + e / C];
    store_weights(t, weights);
}
